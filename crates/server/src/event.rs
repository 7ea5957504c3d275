//! What agents and backends say, between the JSON they write and the bytes that are stored and sent.
//!
//! An event is stored in one form: `{"event":"<name>", …, "metadata":{…}}`, its name first and its
//! metadata last, everything else as it came. The rest of the envelope (session, seq, id, time) is
//! known to the store and joined on when it is sent, which so takes two copies and no parsing.

use rejoin_core::page::{Body, StoredEvent};
use rejoin_core::session::Publication;
use rejoin_core::{EventId, InSeq, LogId, Seq, SessionId, Timestamp};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The longest name of an event.
const MAX_NAME_CHARS: usize = 128;

/// How deep JSON from outside may be nested: what is deeper, other programs can't read.
pub const MAX_DEPTH: usize = 128;

/// Names that only the server itself uses; besides these, all that begin with `system.` or `session.`, and
/// with `user.`, which are the client's.
pub(crate) const RESERVED: [&str; 6] = [
    "agent.session_created",
    "agent.session_ended",
    "agent.state_exported",
    "agent.state_restored",
    "agent.error",
    "error.recovery_failed",
];

/// The event by which an agent sets its state and says nothing.
const SET_STATE: &str = "session.state";

/// What an agent said in one piece: an event, the state that goes with it, what it has dealt with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// The event as it is stored; none if only the state is set.
    pub event: Option<Body>,
    /// The agent's state after it, as JSON.
    pub state: Option<Body>,
    /// Entries up to this one are dealt with.
    pub in_seq: Option<InSeq>,
}

/// Why something an agent said is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefused {
    /// It can't be read.
    #[error("an event is a JSON object: {0}")]
    NotAnObject(String),
    /// It is nested too deep.
    #[error("JSON nested deeper than {MAX_DEPTH} levels is not taken")]
    TooDeep,
    /// It has no name, or one that can be none.
    #[error("`event` must be a name of 1 to {MAX_NAME_CHARS} printable ASCII characters")]
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

impl Spoken {
    /// Reads one JSON object: an event, or `session.state`.
    pub fn parse(text: &[u8]) -> Result<Self, EventRefused> {
        check_depth(text)?;
        let unreadable = |error: serde_json::Error| EventRefused::NotAnObject(error.to_string());
        Self::from_members(serde_json::from_slice(text).map_err(unreadable)?)
    }

    fn from_members(members: Members<'_>) -> Result<Self, EventRefused> {
        let name = members.name()?;
        let in_seq = members.in_seq()?;
        if name == SET_STATE {
            let state = members.get("content").ok_or(EventRefused::WrongType {
                member: "content",
                expected: "the state, in `session.state`",
            })?;
            return Ok(Self { event: None, state: Some(one_line(state)), in_seq });
        }
        if is_reserved(&name) {
            return Err(EventRefused::Reserved(name));
        }
        let state = members.get("state").filter(|state| *state != "null").map(one_line);
        let event = Some(members.stored_form(&name)?);
        Ok(Self { event, state, in_seq })
    }
}

impl From<Spoken> for Publication {
    fn from(spoken: Spoken) -> Self {
        let Spoken { event, state, in_seq } = spoken;
        let events = event.into_iter().collect();
        Self { events, state, in_seq, ..Self::default() }
    }
}

/// Whether only the server itself, or a client, may use this name.
pub fn is_reserved(name: &str) -> bool {
    let of_others = ["system.", "session.", "user."];
    of_others.iter().any(|prefix| name.starts_with(prefix)) || RESERVED.contains(&name)
}

/// Refuses JSON that is nested too deep, before anything recursive looks at it. What is no JSON is
/// left to the parser.
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
        if depth > MAX_DEPTH {
            return Err(EventRefused::TooDeep);
        }
    }
    Ok(())
}

/// The envelope of one stored event, complete, as one line of JSON; [`Envelopes`] does it for many.
pub fn envelope(session: &SessionId, log: LogId, event: &StoredEvent, replayed: bool) -> String {
    Envelopes::of(session.as_str(), log).envelope(event, replayed)
}

/// Puts events of one session into envelopes. What these have in common is written once.
#[derive(Debug)]
pub struct Envelopes {
    /// From behind the name to before the seq.
    session: String,
    /// From there to before the seq in the event's id.
    id: String,
    /// From there to the end of the time, which is that of the last event.
    time: String,
    at: Timestamp,
}

impl Envelopes {
    /// For the events of this session's log.
    pub fn of(session: &str, log: LogId) -> Self {
        let session = format!(r#","session_id":"{session}","seq":"#);
        let id = EventId { log, seq: Seq::ZERO }.to_string();
        let id = format!(r#","event_id":"{}"#, id.strip_suffix('0').unwrap_or(&id));
        let at = Timestamp::default();
        Self { session, id, time: behind_seq(at), at }
    }

    /// The event in its envelope, as one line of JSON.
    pub fn envelope(&mut self, event: &StoredEvent, replayed: bool) -> String {
        if event.at != self.at {
            (self.time, self.at) = (behind_seq(event.at), event.at);
        }
        let stored = std::str::from_utf8(&event.body).unwrap_or(UNREADABLE);
        let name_at = r#"{"event":""#.len();
        let name_end = stored[name_at..].find('"').map_or(stored.len(), |end| name_at + end + 1);
        let (name, rest) = stored.split_at(name_end);
        let (rest, end) = match replayed.then(|| rest.strip_suffix("}}")).flatten() {
            Some(open) if open.ends_with('{') => (open, r#""replayed":true}}"#),
            Some(open) => (open, r#","replayed":true}}"#),
            None => (rest, ""),
        };
        let seq = event.seq.to_string();
        let parts = [name, &self.session, &seq, &self.id, &seq, &self.time, rest, end];
        parts.concat() // of exactly its length, so that it becomes a frame without another copy
    }
}

fn behind_seq(at: Timestamp) -> String {
    format!(r#"","timestamp":"{at}""#)
}

/// Stands for bytes that are no event: somebody wrote into the log past this file.
const UNREADABLE: &str = r#"{"event":"agent.unreadable","metadata":{}}"#;

/// The members of a JSON object, in their order, unread.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl Members<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    fn name(&self) -> Result<String, EventRefused> {
        let text = self.get("event").ok_or(EventRefused::NoName)?;
        let name: String = serde_json::from_str(text).map_err(|_| EventRefused::NoName)?;
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let good = !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.bytes().all(plain);
        if good { Ok(name) } else { Err(EventRefused::NoName) }
    }

    fn in_seq(&self) -> Result<Option<InSeq>, EventRefused> {
        let wrong = EventRefused::WrongType { member: "in_seq", expected: "a whole number" };
        match self.get("in_seq") {
            None | Some("null") => Ok(None),
            Some(text) => text.parse().map(|number| Some(InSeq::new(number))).map_err(|_| wrong),
        }
    }

    /// The event as it is stored. What the envelope says is left out: the server knows it better.
    fn stored_form(&self, name: &str) -> Result<Body, EventRefused> {
        let mut text = format!(r#"{{"event":"{name}""#);
        for (key, value) in &self.0 {
            if !ELSEWHERE.contains(&key.as_str()) {
                push_member(&mut text, key, value.get());
            }
        }
        push_member(&mut text, "metadata", &self.metadata()?);
        text.push('}');
        Ok(one_line(&text))
    }

    /// The metadata without `replayed`, which is for the server to say.
    fn metadata(&self) -> Result<String, EventRefused> {
        let given = match self.get("metadata") {
            None | Some("null") => return Ok("{}".to_owned()),
            Some(given) => given,
        };
        let wrong = EventRefused::WrongType { member: "metadata", expected: "an object" };
        let members: Members<'_> = serde_json::from_str(given).map_err(|_| wrong)?;
        let mut text = String::from("{");
        for (key, value) in members.0.iter().filter(|(key, _)| key != "replayed") {
            push_member(&mut text, key, value.get());
        }
        text.push('}');
        Ok(text)
    }
}

/// Members that are stored elsewhere, or are the envelope's.
const ELSEWHERE: [&str; 8] =
    ["event", "metadata", "state", "in_seq", "session_id", "seq", "event_id", "timestamp"];

fn push_member(text: &mut String, key: &str, value: &str) {
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push_str(&serde_json::Value::from(key).to_string());
    text.push(':');
    text.push_str(value);
}

/// JSON without line breaks. Those in it stand between its parts, never inside a text, where they
/// would be escaped.
fn one_line(text: &str) -> Body {
    if text.contains(['\n', '\r']) {
        return text.replace(['\n', '\r'], " ").into_bytes().into();
    }
    text.as_bytes().into()
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
    use super::*;

    fn stored(text: &str) -> String {
        let event = Spoken::parse(text.as_bytes()).unwrap().event.unwrap();
        String::from_utf8(event.to_vec()).unwrap()
    }

    fn sent(text: &str, replayed: bool) -> serde_json::Value {
        let body = Spoken::parse(text.as_bytes()).unwrap().event.unwrap();
        let event = StoredEvent { seq: Seq::new(43), at: Timestamp::from_millis(0), body };
        let text = envelope(&SessionId::from_random([1; 16]), LogId::new(7), &event, replayed);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_event_is_stored_with_its_name_first_and_its_metadata_last() {
        let text = r#"{"metadata":{"n":1,"replayed":true},"content":[1, 2],"event":"plan.made","x":1.0,"seq":9}"#;
        assert_eq!(
            stored(text),
            r#"{"event":"plan.made","content":[1, 2],"x":1.0,"metadata":{"n":1}}"#
        );
        assert_eq!(stored(r#"{"event":"a.b"}"#), r#"{"event":"a.b","metadata":{}}"#);
    }

    #[test]
    fn the_envelope_has_what_the_store_knows_and_says_whether_it_is_a_replay() {
        let live = sent(r#"{"event":"a.b","content":"\"}}","metadata":{"n":1}}"#, false);
        assert_eq!(live["seq"], 43);
        assert_eq!(live["event"], "a.b");
        assert_eq!(live["content"], "\"}}");
        assert_eq!(live["event_id"], "evt_0000000000000007-43");
        assert_eq!(live["timestamp"], "1970-01-01T00:00:00.000Z");
        assert_eq!(live["metadata"], serde_json::json!({"n": 1}));
        let replayed = sent(r#"{"event":"a.b","metadata":{"n":1}}"#, true);
        assert_eq!(replayed["metadata"], serde_json::json!({"n": 1, "replayed": true}));
        let bare = sent(r#"{"event":"a.b"}"#, true);
        assert_eq!(bare["metadata"], serde_json::json!({"replayed": true}));
    }

    #[test]
    fn state_and_cover_go_beside_the_event() {
        let spoken = Spoken::parse(br#"{"event":"a.b","state":{"k":1},"in_seq":4}"#).unwrap();
        assert_eq!(spoken.state.as_deref(), Some(&br#"{"k":1}"#[..]));
        assert_eq!(spoken.in_seq, Some(InSeq::new(4)));
        assert_eq!(spoken.event.as_deref(), Some(&br#"{"event":"a.b","metadata":{}}"#[..]));
        let alone =
            Spoken::parse(br#"{"event":"session.state","content":[1],"in_seq":4}"#).unwrap();
        assert_eq!((alone.event, alone.state.as_deref()), (None, Some(&b"[1]"[..])));
    }

    #[test]
    fn what_is_no_event_is_refused_with_the_reason() {
        let refused = |text: &str| Spoken::parse(text.as_bytes()).unwrap_err();
        assert!(matches!(refused("[1]"), EventRefused::NotAnObject(_)));
        assert!(matches!(refused("{"), EventRefused::NotAnObject(_)));
        assert!(matches!(refused(r#"{"event":"a","event":"b"}"#), EventRefused::NotAnObject(_)));
        assert_eq!(refused(r#"{"content":1}"#), EventRefused::NoName);
        assert_eq!(refused(r#"{"event":"a b"}"#), EventRefused::NoName);
        assert_eq!(refused(r#"{"event":7}"#), EventRefused::NoName);
        let reserved = |name: &str| EventRefused::Reserved(name.to_owned());
        assert_eq!(refused(r#"{"event":"system.notice"}"#), reserved("system.notice"));
        assert_eq!(refused(r#"{"event":"agent.error"}"#), reserved("agent.error"));
        assert_eq!(refused(r#"{"event":"user.message"}"#), reserved("user.message"));
        assert!(matches!(refused(r#"{"event":"a","metadata":3}"#), EventRefused::WrongType { .. }));
        assert!(matches!(refused(r#"{"event":"a","in_seq":-1}"#), EventRefused::WrongType { .. }));
        let deep = format!(r#"{{"event":"a","content":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(refused(&deep), EventRefused::TooDeep);
    }

    #[test]
    fn a_duplicate_is_found_wherever_it_stands_and_however_it_is_written() {
        for text in [
            r#"{"event":"a","x":1,"y":2,"x":3}"#,
            r#"{"event":"a","x":1,"\u0078":3}"#,
            r#"{"event":"a","metadata":{"b":1,"a":2,"b":3}}"#,
        ] {
            assert!(Spoken::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    /// Comparing each member with each other takes minutes for these; the limit is no measurement.
    #[test]
    fn an_event_of_a_hundred_thousand_members_is_read_in_no_time() {
        let members: Vec<String> = (0..100_000).map(|n| format!(r#""{n}":0"#)).collect();
        let members = members.join(",");
        let (done, parsed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for text in [
                format!(r#"{{"event":"a",{members}}}"#),
                format!(r#"{{"event":"a","metadata":{{{members}}}}}"#),
            ] {
                let _ = done.send(Spoken::parse(text.as_bytes()).is_ok());
            }
        });
        for _ in 0..2 {
            let limit = std::time::Duration::from_secs(15);
            assert_eq!(parsed.recv_timeout(limit), Ok(true));
        }
    }

    #[test]
    fn line_breaks_between_the_parts_do_not_reach_a_line_protocol() {
        assert_eq!(
            stored("{\"event\":\"a\",\"content\":{\n\"k\":\r\n\"\\n\"}}"),
            r#"{"event":"a","content":{ "k":  "\n"},"metadata":{}}"#
        );
    }
}
