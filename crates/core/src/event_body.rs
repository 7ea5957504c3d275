//! The form in which every event is stored: `{"event":"<name>", …, "metadata":{…}}`, its name first and its
//! metadata last, in one line, everything else as its producer wrote it. Delivery joins the rest of the
//! envelope on without parsing, so bytes in any other form would give every client broken frames for good.
//!
//! [`EventBody`] is the only way into a [`Publication`](crate::worker::Publication), and each of its
//! constructors checks the form or makes it.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::MessageId;
use crate::limits::{MAX_EVENT_NAME_CHARS, MAX_JSON_DEPTH};
use crate::page::Body;
use crate::position::InSeq;

/// An event as it is stored.
///
/// ```
/// use rejoin_core::event_body::EventBody;
///
/// let event = EventBody::new("agent.answer", &serde_json::json!({ "text": "hello" }))?;
/// assert_eq!(&*event, br#"{"event":"agent.answer","content":{"text":"hello"},"metadata":{}}"#);
/// assert!(EventBody::parse(b"hello").is_err());
/// # Ok::<(), rejoin_core::event_body::EventRefused>(())
/// ```
///
/// Bytes that nobody has checked are none, and can't be published:
///
/// ```compile_fail,E0277
/// use rejoin_core::worker::Publication;
///
/// Publication { events: vec![b"hello".to_vec().into()], ..Publication::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBody {
    body: Body,
    /// Whether its metadata says which entry it belongs to.
    names_entry: bool,
}

/// Why something is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefused {
    /// It can't be read.
    #[error("an event is a JSON object: {0}")]
    NotAnObject(String),
    /// It is nested too deep.
    #[error("JSON nested deeper than {MAX_JSON_DEPTH} levels is not taken")]
    TooDeep,
    /// It has no name, or one that can be none.
    #[error("`event` must be a name of 1 to {MAX_EVENT_NAME_CHARS} printable ASCII characters")]
    NoName,
    /// The name is the server's own.
    #[error("the event name {0:?} is reserved")]
    Reserved(String),
    /// A member has the wrong type.
    #[error("`{member}` must be {expected}")]
    WrongType {
        /// Which.
        member: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
}

/// Names that only the server itself uses; besides these, all that begin with `system.` or `session.`, and
/// with `user.`, which are the client's.
pub const RESERVED: [&str; 6] = [
    "agent.session_created",
    "agent.session_ended",
    "agent.state_exported",
    "agent.state_restored",
    "agent.error",
    "error.recovery_failed",
];

/// Members of an envelope that are stored elsewhere, or that the server knows better.
const ELSEWHERE: [&str; 8] =
    ["event", "metadata", "state", "in_seq", "session_id", "seq", "event_id", "timestamp"];

/// Whether only the server itself, or a client, may use this name.
pub fn is_reserved(name: &str) -> bool {
    let of_others = ["system.", "session.", "user."];
    of_others.iter().any(|prefix| name.starts_with(prefix)) || RESERVED.contains(&name)
}

impl EventBody {
    /// Reads an event as a producer writes it: one JSON object with a name. What belongs to the envelope
    /// (`seq`, `session_id`, …) and what is stored beside the event (`state`, `in_seq`) is left out.
    pub fn parse(json: &[u8]) -> Result<Self, EventRefused> {
        Self::from_members(&Members::parse(json)?)
    }

    /// An event of this name with this content.
    pub fn new(name: &str, content: &impl Serialize) -> Result<Self, EventRefused> {
        Self::with_metadata(name, content, &serde_json::Map::new())
    }

    /// The same with metadata, which must be an object.
    pub fn with_metadata(
        name: &str,
        content: &impl Serialize,
        metadata: &impl Serialize,
    ) -> Result<Self, EventRefused> {
        let unreadable = |error: serde_json::Error| EventRefused::NotAnObject(error.to_string());
        let content = serde_json::to_string(content).map_err(unreadable)?;
        let metadata = serde_json::to_string(metadata).map_err(unreadable)?;
        let name = serde_json::Value::from(name);
        let json = format!(r#"{{"event":{name},"content":{content},"metadata":{metadata}}}"#);
        Self::parse(json.as_bytes())
    }

    /// An event of members that are JSON already. It costs no parsing; for names of the server's own that are
    /// constants.
    pub fn of_raw(
        name: &'static str,
        members: &[(&'static str, &RawValue)],
        metadata: &impl Serialize,
    ) -> Self {
        debug_assert!(is_name(name) && !is_reserved(name), "{name} is no event's name");
        let mut text = format!(r#"{{"event":"{name}""#);
        for (key, value) in members {
            push_member(&mut text, key, value.get());
        }
        let metadata = serde_json::to_string(metadata).ok();
        let metadata = metadata.filter(|text| text.starts_with('{'));
        debug_assert!(metadata.is_some(), "metadata is an object");
        push_member(&mut text, "metadata", metadata.as_deref().unwrap_or("{}"));
        text.push('}');
        Self { body: one_line(&text), names_entry: false }
    }

    /// An event of members that were read.
    pub fn from_members(members: &Members<'_>) -> Result<Self, EventRefused> {
        let name = members.name()?;
        if is_reserved(&name) {
            return Err(EventRefused::Reserved(name));
        }
        let mut text = format!(r#"{{"event":"{name}""#);
        for (key, value) in &members.0 {
            if !ELSEWHERE.contains(&key.as_str()) {
                push_member(&mut text, key, value.get());
            }
        }
        let (metadata, names_entry) = members.metadata()?;
        push_member(&mut text, "metadata", &metadata);
        text.push('}');
        Ok(Self { body: one_line(&text), names_entry })
    }

    /// The same event saying in its metadata which entry it belongs to, unless it says so itself.
    #[must_use]
    pub fn belonging_to(self, in_seq: InSeq, message_id: Option<&MessageId>) -> Self {
        let text = std::str::from_utf8(&self.body).ok().filter(|_| !self.names_entry);
        let Some(open) = text.and_then(|text| text.strip_suffix("}}")) else { return self };
        let comma = if open.ends_with('{') { "" } else { "," };
        let id = message_id.map_or_else(String::new, |id| {
            format!(r#","message_id":{}"#, serde_json::Value::from(id.as_str()))
        });
        let text = format!(r#"{open}{comma}"in_seq":{in_seq}{id}}}}}"#);
        Self { body: text.into_bytes().into(), names_entry: true }
    }

    /// Its bytes.
    pub fn into_body(self) -> Body {
        self.body
    }
}

impl Deref for EventBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.body
    }
}

impl From<EventBody> for Body {
    fn from(event: EventBody) -> Self {
        event.body
    }
}

/// A stored event in the form that delivery needs: as it is if it has it, and else put right as far as
/// possible. For what older versions stored unchecked.
pub fn in_stored_form(body: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(body) {
        Ok(text) if has_stored_form(text) => Cow::Borrowed(text),
        Ok(_) | Err(_) => Cow::Owned(put_right(body)),
    }
}

fn put_right(body: &[u8]) -> String {
    let event = EventBody::parse(body).ok();
    let text = event.and_then(|event| String::from_utf8(event.to_vec()).ok());
    text.unwrap_or_else(|| unreadable(body))
}

/// Whether delivery can splice it: in one line, a plain `event` first and an object `metadata` last. What lies
/// between is not looked at: this is asked of every event that is sent, and must cost less than copying it.
fn has_stored_form(text: &str) -> bool {
    let name = text.strip_prefix(r#"{"event":""#).and_then(|rest| rest.split_once('"'));
    name.is_some_and(|(name, _)| is_name(name))
        && last_metadata(text).is_some_and(is_object)
        && memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none()
}

/// What may be the object in the last member, if that is `metadata`.
fn last_metadata(text: &str) -> Option<&str> {
    let text = text.strip_suffix('}')?;
    let objects = text.rmatch_indices('{').map(|(at, _)| text.split_at(at));
    let mut metadata = objects.filter(|(before, _)| before.ends_with(r#","metadata":"#));
    metadata.next().map(|(_, object)| object)
}

fn is_object(json: &str) -> bool {
    json == "{}" || serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok()
}

/// What stands for bytes that are no event: their text, for a person to look at.
fn unreadable(body: &[u8]) -> String {
    let text = serde_json::Value::from(String::from_utf8_lossy(body));
    format!(r#"{{"event":"agent.unreadable","content":{text},"metadata":{{}}}}"#)
}

/// The members of a JSON object, in their order, unread. No two have the same name.
#[derive(Debug)]
pub struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object that is not nested too deep.
    pub fn parse(json: &'a [u8]) -> Result<Self, EventRefused> {
        check_depth(json)?;
        let unreadable = |error: serde_json::Error| EventRefused::NotAnObject(error.to_string());
        serde_json::from_slice(json).map_err(unreadable)
    }

    /// The JSON of a member.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    /// The name of the event that it is.
    pub fn name(&self) -> Result<String, EventRefused> {
        let text = self.get("event").ok_or(EventRefused::NoName)?;
        let name: String = serde_json::from_str(text).map_err(|_| EventRefused::NoName)?;
        if is_name(&name) { Ok(name) } else { Err(EventRefused::NoName) }
    }

    /// The entries that it says are dealt with.
    pub fn in_seq(&self) -> Result<Option<InSeq>, EventRefused> {
        let wrong = EventRefused::WrongType { member: "in_seq", expected: "a whole number" };
        match self.get("in_seq") {
            None | Some("null") => Ok(None),
            Some(text) => text.parse().map(|number| Some(InSeq::new(number))).map_err(|_| wrong),
        }
    }

    /// The metadata without `replayed`, which is for the server to say; and whether it names an entry.
    fn metadata(&self) -> Result<(String, bool), EventRefused> {
        let given = match self.get("metadata") {
            None | Some("null") => return Ok(("{}".to_owned(), false)),
            Some(given) => given,
        };
        let wrong = EventRefused::WrongType { member: "metadata", expected: "an object" };
        let members: Members<'_> = serde_json::from_str(given).map_err(|_| wrong)?;
        let names_entry = members.0.iter().any(|(key, _)| key == "in_seq" || key == "message_id");
        let mut text = String::from("{");
        for (key, value) in members.0.iter().filter(|(key, _)| key != "replayed") {
            push_member(&mut text, key, value.get());
        }
        text.push('}');
        Ok((text, names_entry))
    }
}

/// JSON without line breaks. Those in it stand between its parts, never inside a text, where they would be
/// escaped.
pub fn one_line(text: &str) -> Body {
    if text.contains(['\n', '\r']) {
        return text.replace(['\n', '\r'], " ").into_bytes().into();
    }
    text.as_bytes().into()
}

/// Refuses JSON that is nested too deep, before anything recursive looks at it. What is no JSON is left to
/// the parser.
pub fn check_depth(text: &[u8]) -> Result<(), EventRefused> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_JSON_DEPTH {
            return Err(EventRefused::TooDeep);
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    !name.is_empty() && name.len() <= MAX_EVENT_NAME_CHARS && name.bytes().all(plain)
}

fn push_member(text: &mut String, key: &str, value: &str) {
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push_str(&serde_json::Value::from(key).to_string());
    text.push(':');
    text.push_str(value);
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            members.push(member);
        }
        match duplicate(&members) {
            Some(key) => Err(serde::de::Error::custom(format!("{key:?} is there twice"))),
            None => Ok(Members(members)),
        }
    }
}

/// A name that more than one member has. Sorted rather than compared each with each: the number of members
/// is the sender's choice.
fn duplicate<'a>(members: &'a [(String, &RawValue)]) -> Option<&'a str> {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(body: &[u8]) -> String {
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn an_event_names_the_entry_it_belongs_to_unless_it_names_one_itself() {
        let id = MessageId::parse("m\"1").unwrap();
        let stamped = |text: &str, id: Option<&MessageId>| {
            stored(&EventBody::parse(text.as_bytes()).unwrap().belonging_to(InSeq::new(7), id))
        };
        assert_eq!(
            stamped(r#"{"event":"a"}"#, Some(&id)),
            r#"{"event":"a","metadata":{"in_seq":7,"message_id":"m\"1"}}"#
        );
        assert_eq!(
            stamped(r#"{"event":"a","metadata":{"k":{}}}"#, None),
            r#"{"event":"a","metadata":{"k":{},"in_seq":7}}"#
        );
        for own in [r#"{"in_seq":2}"#, r#"{"message_id":"own"}"#] {
            let text = format!(r#"{{"event":"a","metadata":{own}}}"#);
            assert_eq!(stamped(&text, Some(&id)), text);
        }
    }

    #[test]
    fn members_in_any_order_make_the_same_event() {
        let value = json!({ "metadata": { "n": 1 }, "content": "}}\n", "event": "plan.made" });
        let body = EventBody::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(stored(&body), r#"{"event":"plan.made","content":"}}\n","metadata":{"n":1}}"#);
        let made = EventBody::with_metadata("plan.made", &"}}\n", &json!({ "n": 1 })).unwrap();
        assert_eq!(made, body);
        for (name, metadata) in [("", json!({})), ("a b", json!({})), ("a", json!(3))] {
            assert!(EventBody::with_metadata(name, &1, &metadata).is_err(), "{name} {metadata}");
        }
    }

    #[test]
    fn what_was_stored_unchecked_is_put_right_when_it_is_read() {
        for good in [
            r#"{"event":"a","x":1,"metadata":{}}"#,
            r#"{"event":"a","metadata":{"x":{"y":[{}]},"s":",\"metadata\":{"}}"#,
        ] {
            assert!(matches!(in_stored_form(good.as_bytes()), Cow::Borrowed(text) if text == good));
        }
        let put_right = |text: &str| in_stored_form(text.as_bytes()).into_owned();
        assert_eq!(
            put_right(r#"{"content":1,"event":"a"}"#),
            r#"{"event":"a","content":1,"metadata":{}}"#
        );
        assert_eq!(
            put_right(r#"{"event":"a","metadata":{"k":1},"content":{}}"#),
            r#"{"event":"a","content":{},"metadata":{"k":1}}"#
        );
        for text in ["one", "", r#"{"event":"a","#, "{\"event\":\"system.notice\"}", "\u{1}}}"] {
            let whole: Value = serde_json::from_str(&put_right(text)).unwrap();
            assert_eq!(
                (&whole["event"], &whole["content"]),
                (&json!("agent.unreadable"), &json!(text))
            );
        }
    }
}
