//! What clients send, as it is stored in the in log and handed to the agent.

use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::Body;
use rejoin_core::{Generation, MessageId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The body of an entry: what the client said, as it came, and the id it gave it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntryBody {
    /// What it says; nothing for a cancel.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub content: Option<Box<RawValue>>,
    /// The id the client gave it, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}

impl EntryBody {
    /// The bytes to store.
    pub fn to_body(&self) -> Body {
        // Text, and JSON that was read as such before: it can't fail.
        serde_json::to_vec(self).unwrap_or_else(|_| b"{}".to_vec()).into()
    }

    /// What was stored. Bytes that are none of ours read as an empty entry.
    pub fn from_body(body: &[u8]) -> Self {
        let empty = Self { content: None, message_id: None };
        serde_json::from_slice(body).unwrap_or(empty)
    }
    /// What was stored, for an agent. Bytes that are none of ours, which whoever embeds the library may
    /// send, are content as text.
    pub(crate) fn for_agent(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body);
            Self { content: serde_json::value::to_raw_value(&text).ok(), message_id: None }
        })
    }

    /// The content as JSON; `null` if there is none.
    pub(crate) fn content_json(&self) -> &str {
        self.content.as_deref().map_or("null", RawValue::get)
    }
}

/// Something for the agent that is not entered yet.
#[derive(Debug)]
pub(crate) struct NewEntry {
    /// The generation of the client that sends it; none over HTTP.
    pub(crate) generation: Option<Generation>,
    pub(crate) kind: EntryKind,
    /// Its id and content, if it has an id.
    pub(crate) digest: Option<MessageDigest>,
    pub(crate) body: Body,
}

/// The event by which agents and readers know an entry.
pub(crate) fn event_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Message => "user.message",
        EntryKind::Cancel => "user.cancel",
    }
}

/// A `null` that is there is content, unlike none.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// What is known of something that came under an id, to know it again: what it says, however that is written.
/// Whoever sends it again may write its JSON with other spaces, escapes, or order of members.
pub(crate) fn digest(id: &str, json: &[u8]) -> MessageDigest {
    match serde_json::from_slice::<Value>(json) {
        Ok(value) => MessageDigest::of(id, value.to_string().as_bytes()),
        Err(_) => MessageDigest::of(id, json), // bytes of whoever embeds the library
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_kept_byte_for_byte_and_what_is_absent_stays_absent() {
        for text in [
            r#"{"content":{"b": 1.50, "a":[]},"message_id":"m-1"}"#,
            r#"{"content":null}"#,
            r#"{"content":"hi"}"#,
            r#"{"message_id":"m-1"}"#,
            "{}",
        ] {
            let body = EntryBody::from_body(text.as_bytes()).to_body();
            assert_eq!(&*body, text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn the_content_of_a_cancel_reads_as_null_and_that_of_others_as_it_is() {
        assert_eq!(EntryBody::for_agent(b"{}").content_json(), "null");
        assert_eq!(EntryBody::for_agent(br#"{"content":[1]}"#).content_json(), "[1]");
        assert_eq!(EntryBody::for_agent(b"hello").content_json(), r#""hello""#);
    }

    #[test]
    fn what_says_the_same_is_the_same_however_it_is_written() {
        let one = digest("m", r#"{"content":{"a":1.0,"b":"é/"}}"#.as_bytes());
        let again = r#"{ "content" : {"b":"\u00e9\/", "a": 1.00} }"#;
        assert_eq!(digest("m", again.as_bytes()), one);
        for other in [r#"{"content":{"a":2.0,"b":"é/"}}"#, r#"{"content":{"a":1.0}}"#, "no JSON"] {
            assert_ne!(digest("m", other.as_bytes()), one);
        }
        assert_ne!(digest("n", again.as_bytes()), one);
    }
}
