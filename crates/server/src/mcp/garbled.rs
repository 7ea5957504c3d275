//! What a server says that is no proper JSON-RPC. Where its meaning is clear it is put right; where it is clear only
//! which request it answers, that is answered with an error: nobody else would, and the call would wait for ever.
//! Good messages never come here, and what may as well be a line of a log is left alone.

use serde_json::Value;

use super::message::{Message, NoMessage, RequestId};
use super::own_words::{RpcError, code, error_response};

/// What a server meant.
#[derive(Debug)]
pub(crate) enum Meant {
    /// This.
    Message(Message),
    /// A question that can't be read; the server waits for its answer.
    Question(RequestId),
    /// Nothing that can be told.
    Nothing,
}

/// What a server said at once: one message, or several of the revision that has batches.
pub(crate) fn heard(text: &str) -> Vec<Meant> {
    let text = text.trim();
    match text.starts_with('[') {
        true => parts(text).into_iter().map(meant).collect(),
        false => vec![meant(text)],
    }
}

fn meant(text: &str) -> Meant {
    match Message::parse(text) {
        Ok(message) => Meant::Message(message),
        Err(why) => guess(text.trim(), &why),
    }
}

/// Only what says that it is JSON-RPC, and names a request, is taken for some.
fn guess(text: &str, why: &NoMessage) -> Meant {
    let members = members(text);
    let value = |name: &str| members.iter().find(|member| member.name == name).map(|m| m.value);
    let (Some(_), Some(id)) = (value("jsonrpc"), value("id").and_then(id)) else {
        return Meant::Nothing;
    };
    if let Ok(message) = Message::parse(&in_this_version(&members)) {
        return Meant::Message(message);
    }
    if value("method").is_some_and(|method| method != NULL) {
        return Meant::Question(id);
    }
    let sentence = format!("the MCP server's answer can't be understood: {why}");
    let error = RpcError::new(code::INTERNAL, sentence).because("answer_invalid");
    let answer = Message::parse(&error_response(Some(&id), &error));
    answer.map_or(Meant::Nothing, Meant::Message)
}

fn id(raw: &str) -> Option<RequestId> {
    let value: Value = serde_json::from_str(raw).ok()?;
    RequestId::parse(raw).filter(|_| value.is_string() || value.is_number())
}

const NULL: &str = "null";

/// A message without the nulls that some write beside a result or an error; nothing if it has none.
pub(super) fn without_nulls(text: &str) -> Option<String> {
    let members = members(text);
    let is_null = |name: &str| members.iter().any(|m| m.name == name && m.value == NULL);
    let has = |name: &str| members.iter().any(|m| m.name == name && m.value != NULL);
    let silent = match (is_null("error"), is_null("result") && has("error")) {
        (true, _) => "error",
        (false, true) => "result",
        (false, false) => return None,
    };
    let told = members.iter().filter(|member| member.name != silent).map(|member| member.text);
    Some(format!("{{{}}}", told.collect::<Vec<_>>().join(",")))
}

/// A message of whatever version, as one of the version that there is.
fn in_this_version(members: &[Member<'_>]) -> String {
    let others = members.iter().filter(|member| member.name != "jsonrpc");
    let others: String = others.map(|member| format!(",{}", member.text)).collect();
    format!(r#"{{"jsonrpc":"2.0"{others}}}"#)
}

/// A member of an object, as it was written.
struct Member<'a> {
    text: &'a str,
    name: &'a str,
    value: &'a str,
}

/// The members of an object, as far as they can be told apart, whatever is inside of them.
fn members(text: &str) -> Vec<Member<'_>> {
    if !text.starts_with('{') {
        return Vec::new();
    }
    let member = |text| {
        let (name, value) = str::trim_start(text).strip_prefix('"')?.split_once('"')?;
        let value = value.trim_start().strip_prefix(':')?.trim();
        Some(Member { text, name, value })
    };
    parts(text).into_iter().filter_map(member).collect()
}

/// What stands between the commas inside the outermost brackets; the last part may have been cut off.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                from = if depth == 1 { at + 1 } else { from };
            }
            b',' | b'}' | b']' if depth == 1 => {
                parts.push(&text[from..at]);
                from = at + 1;
                if byte != b',' {
                    return parts;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_outermost_commas_is_told_apart_whatever_it_is() {
        let text = r#"{"a":{"b":[1,2]},"c}":"x,\",{" , "d":NaN}, "e""#;
        assert_eq!(parts(text), [r#""a":{"b":[1,2]}"#, r#""c}":"x,\",{" "#, r#" "d":NaN"#]);
        assert_eq!(parts(r#"[{"a":1},{"b":"#), [r#"{"a":1}"#, r#"{"b":"#]);
    }

    #[test]
    fn a_null_says_nothing_where_the_other_says_something() {
        let good = r#"{"jsonrpc":"2.0","id":1,"result":{ "error": null}}"#;
        assert_eq!(without_nulls(good), None);
        assert_eq!(without_nulls(r#"{"id":1,"result":null}"#), None, "a null is a result too");
        let both = r#"{"id":1,"error": null, "result":null }"#;
        assert_eq!(without_nulls(both).as_deref(), Some(r#"{"id":1, "result":null }"#));
        let failed = r#"{"id":1,"result":null,"error":{"code":1}}"#;
        assert_eq!(without_nulls(failed).as_deref(), Some(r#"{"id":1,"error":{"code":1}}"#));
    }

    #[test]
    fn a_line_of_a_log_is_no_message_whatever_is_in_it() {
        let log = r#"{"level":"info","id":3,"method":"tools/call","result":"ok"}"#;
        for text in [log, "3", "", "{", "[", "[INFO] ready", r#"{"jsonrpc":"2.0","id":{}}"#] {
            assert!(heard(text).iter().all(|meant| matches!(meant, Meant::Nothing)), "{text}");
        }
    }
}
