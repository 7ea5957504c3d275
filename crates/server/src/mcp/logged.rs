//! MCP messages as they stand in the two logs.
//!
//! What the client sent is an entry of the in log: the message, the stream that its answer goes to, and the
//! process that took it in (if that is another one, nobody knows whether the message had been handed on).
//! What the server sent is an event of the out log, in the form that all events have: the message is its
//! content; its metadata says which stream it belongs to and which entry it answers.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use rejoin_core::page::Body;
use rejoin_core::token::TokenRecipe;
use rejoin_core::{EventBody, InSeq, ProcessId, Seq, SessionId};
use rejoin_store::Unavailable;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::message::Message;
use crate::store_view::StoreView;

/// Whether a request is dealt with: it waits in the in log no more. Its answer was in the out log before
/// this is true.
pub(crate) async fn is_answered(
    store: &StoreView,
    session: &SessionId,
    in_seq: InSeq,
) -> Result<bool, Unavailable> {
    let waiting = store.entries(session, in_seq.previous(), 1).await?;
    Ok(waiting.first().is_none_or(|next| next.in_seq != in_seq))
}

/// Names one stream of a session: the answer to one POST, or the stream that a GET opens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamName(Box<str>);

impl StreamName {
    /// The stream that a GET without a position opens: of what belongs to no request.
    pub fn general() -> Self {
        Self("g".into())
    }

    /// The one stream of a client of revision 2024-11-05, which carries whatever the session has to say.
    pub fn whole() -> Self {
        Self("s".into())
    }

    /// Whether it carries what the whole session has to say.
    pub fn is_whole(&self) -> bool {
        &*self.0 == "s"
    }

    /// Whether it carries what belongs to `other`.
    pub fn carries(&self, other: &Self) -> bool {
        self.is_whole() || self == other
    }

    /// A stream for a POST.
    pub fn from_random(bytes: [u8; 8]) -> Self {
        Self(format!("r{:016x}", u64::from_be_bytes(bytes)).into())
    }

    /// A stream that carries nothing but answers: its client accepts no server-sent events.
    pub fn answers_only(bytes: [u8; 8]) -> Self {
        Self(format!("a{:016x}", u64::from_be_bytes(bytes)).into())
    }

    /// The stream on which it is said that the call of this one became a task.
    pub(crate) fn of_task(&self) -> Self {
        Self(format!("t{}", self.0.get(1..).unwrap_or_default()).into())
    }

    /// Whether it is said on it that a call became a task.
    pub(crate) fn is_task(&self) -> bool {
        self.0.starts_with('t')
    }

    /// Whether it carries nothing but answers.
    pub fn is_answer_only(&self) -> bool {
        self.0.starts_with('a')
    }

    /// A name that a client gave back.
    pub fn parse(text: &str) -> Option<Self> {
        let good =
            (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
        good.then(|| Self(text.into()))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry of the in log.
#[derive(Debug)]
pub struct Entry {
    /// The process that took it in.
    pub process: ProcessId,
    /// Where its answer goes.
    pub stream: StreamName,
    /// Where it came from, where whoever deals with it must know: a use of a token is written down.
    pub from: Option<IpAddr>,
    /// The message as it came.
    pub message: Message,
}

#[derive(Serialize, Deserialize)]
struct StoredEntry<'a> {
    process: ProcessId,
    stream: StreamName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    #[serde(borrow)]
    message: &'a RawValue,
}

impl Entry {
    /// The bytes to store.
    pub fn to_body(&self) -> Body {
        let message = serde_json::from_str(self.message.text()).unwrap_or(RawValue::NULL);
        let (process, stream) = (self.process.clone(), self.stream.clone());
        let stored = StoredEntry { process, stream, from: self.from, message };
        serde_json::to_vec(&stored).unwrap_or_default().into()
    }

    /// What was stored; nothing if it is none of ours.
    pub fn from_body(body: &[u8]) -> Option<Self> {
        let stored: StoredEntry<'_> = serde_json::from_slice(body).ok()?;
        let message = Message::parse(stored.message.get()).ok()?;
        Some(Self { process: stored.process, stream: stored.stream, from: stored.from, message })
    }
}

/// An event of the out log.
#[derive(Debug)]
pub struct Event<'a> {
    /// The message; nothing if a request just ends, because it was cancelled.
    pub message: Option<&'a str>,
    /// The stream it belongs to.
    pub stream: StreamName,
    /// The entry that it answers, if it does.
    pub answers: Option<InSeq>,
    /// The request that it answers, where that must be known when the request is long dealt with.
    pub request: Option<&'a str>,
    /// What it says of other answers.
    pub notes: Notes,
}

/// What an answer says of others, so that it is known without a commit of its own which of them a client has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Those that a client had fetched when this one was stored.
    pub fetched: Vec<Seq>,
    /// Those that it repeats: whoever fetches this one has them too.
    pub repeats: Vec<Seq>,
    /// The reconnect token that its client is given with it.
    pub token: Option<Box<TokenRecipe>>,
}

#[derive(Deserialize)]
struct StoredEvent<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    stream: StreamName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answers: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fetched: Vec<Seq>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    repeats: Vec<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Box<TokenRecipe>>,
}

impl<'a> Event<'a> {
    /// A message that answers nothing.
    pub fn said(stream: StreamName, message: &'a str) -> Self {
        let notes = Notes::default();
        Self { message: Some(message), stream, answers: None, request: None, notes }
    }

    /// What to store: `{"event":…,"content":<the message>,"metadata":{…}}`.
    pub fn to_body(&self) -> EventBody {
        let name = match (self.answers, self.message) {
            (_, None) => "mcp.cancelled",
            (Some(_), Some(_)) => "mcp.response",
            (None, Some(_)) => "mcp.message",
        };
        let Notes { fetched, repeats, token } = self.notes.clone();
        let (stream, answers) = (self.stream.clone(), self.answers.map(InSeq::get));
        let metadata = Metadata { stream, answers, fetched, repeats, token };
        let content = json(self.message.unwrap_or("null"));
        let request = self.request.map(json);
        let members = [Some(("content", &*content)), request.as_deref().map(|it| ("request", it))];
        let members: Vec<_> = members.into_iter().flatten().collect();
        EventBody::of_raw(name, &members, &metadata)
    }

    /// What was stored; nothing if it is none of ours.
    pub fn from_body(body: &'a [u8]) -> Option<Self> {
        let stored: StoredEvent<'a> = serde_json::from_slice(body).ok()?;
        let Metadata { stream, answers, fetched, repeats, token } = stored.metadata;
        let (message, request) =
            (stored.content.map(RawValue::get), stored.request.map(RawValue::get));
        let (answers, notes) = (answers.map(InSeq::new), Notes { fetched, repeats, token });
        Some(Self { message, stream, answers, request, notes })
    }
}

/// Text that is JSON, as it is; any other as a JSON text.
fn json(text: &str) -> Cow<'_, RawValue> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => Cow::Borrowed(raw),
        Err(_) => Cow::Owned(serde_json::value::to_raw_value(text).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_message_as_it_came() {
        let text = r#"{"jsonrpc":"2.0", "id":1,"method":"a","x":1.50}"#;
        let entry = Entry {
            process: ProcessId::from_random([1; 9]),
            stream: StreamName::from_random([2; 8]),
            from: Some([127, 0, 0, 1].into()),
            message: Message::parse(text).unwrap(),
        };
        let again = Entry::from_body(&entry.to_body()).unwrap();
        assert_eq!((again.message.text(), &again.stream), (text, &entry.stream));
        assert_eq!((again.process, again.from), (entry.process, entry.from));
    }

    #[test]
    fn an_event_is_stored_like_every_other_event() {
        let stream = StreamName::general();
        let (message, answers) = (Some(r#"{"a": 1}"#), Some(InSeq::new(4)));
        let event = Event { message, stream, answers, request: None, notes: Notes::default() };
        let body = event.to_body();
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"event":"mcp.response","content":{"a": 1},"metadata":{"stream":"g","answers":4}}"#
        );
        let again = Event::from_body(&body).unwrap();
        assert_eq!((again.message, again.answers), (event.message, event.answers));
        let (fetched, repeats) = (vec![Seq::new(1), Seq::new(3)], vec![Seq::new(2)]);
        let notes = Notes { fetched, repeats, token: None };
        let ended = Event { message: None, request: Some("{}"), notes: notes.clone(), ..event };
        let ended = ended.to_body();
        let ended = Event::from_body(&ended).unwrap();
        assert_eq!((ended.message, ended.request, ended.notes), (None, Some("{}"), notes));
        assert!(Event::from_body(br#"{"event":"agent.failed","metadata":{}}"#).is_none());
    }
}
