//! What a server says that is no proper JSON-RPC. Where its meaning is clear it is put right; where it is clear only
//! which request it answers, that is answered with an error: nobody else would, and the call would wait for ever.
//! Good messages never come here, and what may as well be a line of a log is left alone.

use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

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

/// What a server said at once: one message, several of the revision that has batches, or several that it forgot to
/// put on lines of their own.
pub(crate) fn heard(text: &str) -> Vec<Meant> {
    let text = unmarked(text).trim();
    if !text.starts_with('[')
        && let Ok(message) = Message::parse(text)
    {
        return vec![Meant::Message(message)];
    }
    one_after_another(text).into_iter().flat_map(message_or_batch).collect()
}

/// A text without the byte order mark that some put before it.
pub(crate) fn unmarked(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Objects and arrays that follow each other, and at last whatever is none.
fn one_after_another(text: &str) -> Vec<&str> {
    let mut values = Deserializer::from_str(text).into_iter::<&RawValue>();
    let (mut pieces, mut read) = (Vec::new(), 0);
    while let Some(Ok(value)) = values.next()
        && value.get().starts_with(['{', '['])
    {
        pieces.push(value.get());
        read = values.byte_offset();
    }
    let rest = text[read..].trim();
    pieces.extend(Some(rest).filter(|rest| !rest.is_empty()));
    pieces
}

fn message_or_batch(text: &str) -> Vec<Meant> {
    match text.starts_with('[') {
        true => parts(text).all().map(meant).collect(),
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
    let (members, cut_off) = members(text);
    let value = |name: &str| members.iter().find(|member| member.name == name).map(|m| m.value);
    let (Some(_), Some(id)) = (value("jsonrpc"), value("id").and_then(id)) else {
        return Meant::Nothing;
    };
    if let Ok(message) = Message::parse(&in_this_version(&members)) {
        return Meant::Message(message);
    }
    let begins_method = cut_off.is_some_and(|member| member.name == "method");
    if begins_method || value("method").is_some_and(|method| method != NULL) {
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
    let (members, _) = members(text);
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

/// The members of an object, as far as they can be told apart, whatever is inside of them; and the one at which it was
/// cut off, of which only the name can be trusted: a 3 may be the beginning of 31.
fn members(text: &str) -> (Vec<Member<'_>>, Option<Member<'_>>) {
    if !text.starts_with('{') {
        return (Vec::new(), None);
    }
    let member = |text| {
        let (name, value) = str::trim_start(text).strip_prefix('"')?.split_once('"')?;
        let value = value.trim_start().strip_prefix(':')?.trim();
        Some(Member { text, name, value })
    };
    let Parts { whole, cut_off } = parts(text);
    (whole.into_iter().filter_map(member).collect(), cut_off.and_then(member))
}

/// What stands between the commas inside the outermost brackets.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    whole: Vec<&'a str>,
    /// What came of the last one, if the brackets were not closed.
    cut_off: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn all(self) -> impl Iterator<Item = &'a str> {
        self.whole.into_iter().chain(self.cut_off)
    }
}

fn parts(text: &str) -> Parts<'_> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let (mut whole, mut from) = (Vec::new(), 0);
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
                whole.push(&text[from..at]);
                from = at + 1;
                if byte != b',' {
                    return Parts { whole, cut_off: None };
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Parts { whole, cut_off: Some(&text[from..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_outermost_commas_is_told_apart_whatever_it_is() {
        let text = r#"{"a":{"b":[1,2]},"c}":"x,\",{" , "d":NaN}, "e""#;
        let whole = vec![r#""a":{"b":[1,2]}"#, r#""c}":"x,\",{" "#, r#" "d":NaN"#];
        assert_eq!(parts(text), Parts { whole, cut_off: None });
        let (whole, cut_off) = (vec![r#"{"a":1}"#], Some(r#"{"b":"#));
        assert_eq!(parts(r#"[{"a":1},{"b":"#), Parts { whole, cut_off });
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
    fn a_question_that_is_cut_off_is_no_answer() {
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"method":"pi"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"ping""#,
        ] {
            assert!(matches!(&heard(text)[..], [Meant::Question(_)]), "{text}");
        }
    }

    #[test]
    fn a_line_of_a_log_is_no_message_whatever_is_in_it() {
        let log = r#"{"level":"info","id":3,"method":"tools/call","result":"ok"}"#;
        let echo = r#"3 {"jsonrpc":"2.0","id":3,"result":{}}"#;
        let echo_of_level = r#"[INFO] {"jsonrpc":"2.0","id":3,"result":{}}"#;
        let nobodys = r#"{"jsonrpc":"2.0","id":{}}"#;
        for text in [log, "3", "", "{", "[", "[INFO] ready", nobodys, echo, echo_of_level] {
            assert!(heard(text).iter().all(|meant| matches!(meant, Meant::Nothing)), "{text}");
        }
    }
}
