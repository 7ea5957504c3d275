//! Reconnect tokens in results. What is stored has the recipe of a token beside it; the token itself is put in when the
//! result is written to an MCP client, the same one each time. So nobody else who may read the log reads a token.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::logged::Event;
use super::message::{Message, present, read, splice, with_member};
use crate::sessions::Sessions;

/// Where a result says which session it belongs to.
const META: &str = "rejoin/session";

/// Whether a token can be given with an answer: it is a result that has members.
pub(crate) fn can_carry_token(answer: &Message) -> bool {
    answer.result().is_some_and(|result| result.get().starts_with('{'))
}

/// The message of an event as an MCP client is told it.
pub(crate) fn told_to_client(sessions: &Sessions, event: &Event<'_>) -> Option<String> {
    let text = event.message?;
    let with_token = event.notes.token.as_ref().and_then(|recipe| {
        let issued = sessions.service()?.token_of(recipe)?;
        let about = json!({
            "session_id": recipe.session_id().client_name(),
            "reconnect_token": issued.token.as_str(),
            "expires_at": issued.expires_at.to_string(),
        });
        with_meta(text, META, &about.to_string())
    });
    Some(with_token.unwrap_or_else(|| text.to_owned()))
}

/// A response with another member in its result's `_meta`.
fn with_meta(text: &str, name: &str, value: &str) -> Option<String> {
    #[derive(Default, Deserialize)]
    struct Result<'a> {
        #[serde(borrow, rename = "_meta", default, deserialize_with = "present")]
        meta: Option<&'a RawValue>,
    }
    let message = Message::parse(text).ok()?;
    let result = message.result().filter(|result| result.get().starts_with('{'))?.get();
    let known = read::<Result<'_>>(Some(result)).meta;
    let result = match known {
        Some(meta) => splice(result, meta.get(), &with_member(meta.get(), name, value)),
        None => with_member(result, "_meta", &with_member("{}", name, value)),
    };
    Some(message.with_result(&result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_added_beside_whatever_a_result_says() {
        let add = |text: &str| with_meta(text, "rejoin/session", "1").unwrap();
        assert_eq!(
            add(r#"{"jsonrpc":"2.0","id":1,"result":{"content": []}}"#),
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"rejoin/session":1},"content": []}}"#
        );
        assert_eq!(
            add(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1,"_meta":{"a": 2}}}"#),
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":1,"_meta":{"rejoin/session":1,"a": 2}}}"#
        );
        assert_eq!(
            add(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1,"_meta": null}}"#),
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":1,"_meta": {"rejoin/session":1}}}"#
        );
    }
}
