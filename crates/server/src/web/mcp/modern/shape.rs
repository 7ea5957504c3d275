//! What the revision demands of results that an older server made: `resultType`, who made it, and, of lists
//! and resources, how long they may be kept. Everything else passes as it came.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::server::ServerDescription;
use super::wire::meta;
use crate::mcp::message::{read, splice, with_member};

/// Methods whose results say how long they may be kept.
const CACHED: [&str; 6] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// A result of the server behind, as its client of this revision gets it.
pub(super) fn result(method: &str, server: &ServerDescription, result: &str) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Known<'a> {
        #[serde(borrow, rename = "resultType")]
        kind: Option<&'a RawValue>,
        #[serde(borrow, rename = "ttlMs")]
        keep: Option<&'a RawValue>,
        #[serde(borrow, rename = "cacheScope")]
        scope: Option<&'a RawValue>,
    }
    if !result.trim_start().starts_with('{') {
        return result.to_owned();
    }
    let known: Known<'_> = read(Some(result));
    let mut shaped = with_server(server, result);
    if CACHED.contains(&method) {
        // Nobody knows how long it holds, and whether it is for everybody.
        if known.scope.is_none() {
            shaped = with_member(&shaped, "cacheScope", r#""private""#);
        }
        if known.keep.is_none() {
            shaped = with_member(&shaped, "ttlMs", "0");
        }
    }
    if known.kind.is_none() {
        shaped = with_member(&shaped, "resultType", r#""complete""#);
    }
    shaped
}

/// A result with the name of whoever made it, unless it says that itself.
fn with_server(server: &ServerDescription, result: &str) -> String {
    let Some(info) = server.info.as_deref() else { return result.to_owned() };
    with_meta(result, meta::SERVER, info.get())
}

/// An object with a member in its `_meta`, unless there is one of that name.
pub(super) fn with_meta(object: &str, name: &str, value: &str) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Known<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    match read::<Known<'_>>(Some(object)).meta.map(RawValue::get) {
        Some(known) if read::<serde_json::Value>(Some(known)).get(name).is_some() => {
            object.to_owned()
        }
        Some(known) if known.starts_with('{') => {
            splice(object, known, &with_member(known, name, value))
        }
        Some(_) | None => with_member(object, "_meta", &with_member("{}", name, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(method: &str, text: &str) -> String {
        let info = serde_json::from_str(r#"{"name":"s","version":"1"}"#).ok();
        result(method, &ServerDescription { info, ..ServerDescription::default() }, text)
    }

    #[test]
    fn an_older_result_gets_what_the_revision_demands_and_keeps_the_rest() {
        let server = r#"{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}"#;
        assert_eq!(
            shaped("tools/call", r#"{"content": [1.50],"x":null}"#),
            format!(r#"{{"resultType":"complete","_meta":{server}}},"content": [1.50],"x":null}}"#)
        );
        assert_eq!(
            shaped("tools/list", r#"{"tools":[],"_meta":{"a":1}}"#),
            format!(
                r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[],"_meta":{server},"a":1}}}}"#
            )
        );
    }

    #[test]
    fn what_a_server_says_itself_is_not_said_again() {
        let said = r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
        assert_eq!(shaped("tools/list", said), said);
    }
}
