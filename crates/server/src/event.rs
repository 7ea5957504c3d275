//! What agents and backends say, between the JSON they write and the envelopes that are sent.
//!
//! An event is stored in one form, that of [`EventBody`]. The rest of the envelope (session, seq, id, time) is
//! known to the store and joined on when it is sent, which so takes two copies and no parsing.

pub use rejoin_core::event_body::{EventBody, EventRefused, check_depth, is_reserved};
use rejoin_core::event_body::{Members, in_stored_form, one_line};
use rejoin_core::page::{Body, StoredEvent};
use rejoin_core::worker::Publication;
use rejoin_core::{EventId, InSeq, LogId, Seq, SessionId, Timestamp};

/// The event by which an agent sets its state and says nothing.
const SET_STATE: &str = "session.state";

/// What an agent said in one piece: an event, the state that goes with it, what it has dealt with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// The event as it is stored; none if only the state is set.
    pub event: Option<EventBody>,
    /// The agent's state after it, as JSON.
    pub state: Option<Body>,
    /// Entries up to this one are dealt with.
    pub in_seq: Option<InSeq>,
}

impl Spoken {
    /// Reads one JSON object: an event, or `session.state`.
    pub fn parse(text: &[u8]) -> Result<Self, EventRefused> {
        Self::from_members(&Members::parse(text)?)
    }

    fn from_members(members: &Members<'_>) -> Result<Self, EventRefused> {
        let name = members.name()?;
        let in_seq = members.in_seq()?;
        if name == SET_STATE {
            let state = members.get("content").ok_or(EventRefused::WrongType {
                member: "content",
                expected: "the state, in `session.state`",
            })?;
            return Ok(Self { event: None, state: Some(one_line(state)), in_seq });
        }
        let state = members.get("state").filter(|state| *state != "null").map(one_line);
        let event = Some(EventBody::from_members(members)?);
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
        let stored = &*in_stored_form(&event.body);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> String {
        let event = Spoken::parse(text.as_bytes()).unwrap().event.unwrap();
        String::from_utf8(event.to_vec()).unwrap()
    }

    fn sent(text: &str, replayed: bool) -> serde_json::Value {
        let body = Spoken::parse(text.as_bytes()).unwrap().event.unwrap();
        let body = body.into_body();
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
