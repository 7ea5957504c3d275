//! What the application gets: events, gaps, states, and how things stand.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rejoin_core::client::{ExportedState, Secret, Status};
use rejoin_core::codes::ErrorCode;
use rejoin_core::resume::Gap;
use rejoin_core::{EventId, Seq};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::frames::Envelope;

/// One item of a [`Session`](crate::Session)'s stream, in the order in which things happened.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// An event of the out log. They come in order, each once, without holes.
    Event(Event),
    /// Events that were not seen are gone. Told before the event that follows them.
    Gap(Gap),
    /// The agent's state: because it was asked for, because it stands in for a gap, or because the
    /// server saves one from time to time. It is kept, to restore the session from.
    State(State),
    /// How things stand with the connection. [`Status::Stopped`] is the last item.
    Status(Status),
    /// Something other than a message was refused, such as the wish for the state.
    Refused(ErrorCode),
    /// What there is to keep could not be kept. The session goes on; the server is not told to forget
    /// what was received since, so that nothing is lost if the program now ends. Told once until it
    /// works again.
    KeepFailed(Arc<io::Error>),
}

impl Incoming {
    /// What it weighs in the window between socket and application.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => event.body.len(),
            Self::State(state) => state.json.len() + state.signed_state.reveal().len(),
            Self::Gap(_) | Self::Status(_) | Self::Refused(_) | Self::KeepFailed(_) => 0,
        }
    }

    /// The event up to which everything was seen once this is handled, if this changes that.
    pub(crate) fn seq(&self) -> Option<Seq> {
        match self {
            Self::Event(event) => Some(event.seq),
            Self::Gap(Gap::Evicted { missing, .. }) => Some(missing.to),
            Self::Gap(Gap::PositionUnknown)
            | Self::State(_)
            | Self::Status(_)
            | Self::Refused(_)
            | Self::KeepFailed(_) => None,
        }
    }
}

/// An event of the out log.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// Its name for ever.
    pub event_id: Option<EventId>,
    /// Whether it was sent because the client came back, and not because it is new.
    pub replayed: bool,
    name: Box<str>,
    body: Arc<[u8]>,
    content: Range<usize>,
    metadata: Range<usize>,
}

impl Event {
    /// What kind of event it is, such as `agent.thinking`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says, as JSON text; `null` if it says nothing.
    pub fn content_json(&self) -> &str {
        self.text(&self.content)
    }

    /// What it says, read as a `T`.
    pub fn content<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.content_json())
    }

    /// What is said about it, as JSON text; `null` if nothing is.
    pub fn metadata_json(&self) -> &str {
        self.text(&self.metadata)
    }

    /// The whole frame as it came, as JSON text.
    pub fn frame_json(&self) -> &str {
        self.text(&(0..self.body.len()))
    }

    fn text(&self, range: &Range<usize>) -> &str {
        let bytes = self.body.get(range.clone()).filter(|bytes| !bytes.is_empty());
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("null")
    }

    /// An event as the brain delivers it.
    pub(crate) fn from_core(event: rejoin_core::client::Event) -> Self {
        let rejoin_core::client::Event { seq, event_id, replayed, body } = event;
        let envelope = std::str::from_utf8(&body).ok().and_then(|text| Envelope::read(text).ok());
        let name = envelope.as_ref().map_or("", |e| &*e.event).into();
        let place = |part: Option<&RawValue>| part.map_or(0..0, |part| place_of(part.get(), &body));
        let content = place(envelope.as_ref().and_then(|e| e.content));
        let metadata = place(envelope.as_ref().and_then(|e| e.metadata));
        Self { seq, event_id, replayed, name, body, content, metadata }
    }
}

/// Without its content: a log is no place for what an agent says.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("seq", &self.seq)
            .field("name", &self.name)
            .field("replayed", &self.replayed)
            .finish_non_exhaustive()
    }
}

/// The agent's state, as of a position.
#[derive(Clone)]
pub struct State {
    /// The sealed copy. It is kept by the client; an application that wants to restore elsewhere can
    /// take it along.
    pub signed_state: Secret,
    /// The out position it stands for: events up to here are reflected in it.
    pub seq: Seq,
    /// Whether it stands in for the events of the gap just told.
    pub fills_gap: bool,
    json: Arc<[u8]>,
}

impl State {
    /// The clear copy, as JSON text; `null` if the server gave none.
    pub fn json(&self) -> &str {
        std::str::from_utf8(&self.json).ok().filter(|text| !text.is_empty()).unwrap_or("null")
    }

    /// The clear copy, read as a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.json())
    }

    /// A state as the brain delivers it.
    pub(crate) fn from_core(state: ExportedState, fills_gap: bool) -> Self {
        let ExportedState { signed_state, seq, state: json } = state;
        Self { signed_state, seq, fills_gap, json }
    }
}

/// Without the state itself: a log is no place for an agent's memory.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("seq", &self.seq)
            .field("fills_gap", &self.fills_gap)
            .finish_non_exhaustive()
    }
}

/// Where `part`, which was read out of `whole`, lies in it.
fn place_of(part: &str, whole: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start.saturating_add(part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: &str) -> Event {
        Event::from_core(rejoin_core::client::Event {
            seq: Seq::new(3),
            event_id: None,
            replayed: false,
            body: body.as_bytes().into(),
        })
    }

    #[test]
    fn an_event_shows_its_parts_as_they_came() {
        let body = r#"{"event":"agent.th\u0069nking","seq":3,"content": {"a" : [1, "ü"]} ,"metadata":{"x":1}}"#;
        let event = event(body);
        assert_eq!(event.name(), "agent.thinking");
        assert_eq!(event.content_json(), r#"{"a" : [1, "ü"]}"#);
        assert_eq!(event.metadata_json(), r#"{"x":1}"#);
        assert_eq!(event.frame_json(), body);
        assert_eq!(event.content::<serde_json::Value>().unwrap()["a"][1], "ü");
    }

    #[test]
    fn what_is_not_there_reads_as_null() {
        let event = event(r#"{"event":"agent.done","seq":3}"#);
        assert_eq!((event.content_json(), event.metadata_json()), ("null", "null"));
        assert_eq!(event.content::<Option<String>>().unwrap(), None);
    }

    #[test]
    fn neither_content_nor_state_shows_up_in_debug() {
        let event = event(r#"{"event":"agent.done","seq":3,"content":"hunter2"}"#);
        let state = ExportedState {
            signed_state: Secret::new("hunter2"),
            seq: Seq::new(3),
            state: br#""hunter2""#.as_slice().into(),
        };
        let state = State::from_core(state, false);
        assert_eq!(state.read::<String>().unwrap(), "hunter2");
        let shown = format!("{event:?} {state:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
