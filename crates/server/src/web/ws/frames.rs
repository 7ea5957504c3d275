//! What clients say: each frame is read once into a [`Request`] that can't be wrong any more.

use rejoin_core::codes::ErrorCode;
use rejoin_core::log::EntryKind;
use rejoin_core::resume::Asked;
use rejoin_core::{Epoch, EventId, MessageId, Seq, SessionId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::event::check_depth;
use crate::service::{Admission, Include};

/// Something a client wants.
#[derive(Debug)]
pub(super) enum Request {
    Authenticate {
        credential: String,
    },
    /// A message or a cancel for the agent.
    Post {
        session: SessionId,
        kind: EntryKind,
        content: Option<Box<RawValue>>,
        message_id: Option<MessageId>,
    },
    Ack {
        session: SessionId,
        last_seq: Seq,
        gap_detected: bool,
    },
    Rare(Rare),
}

/// What a client wants now and then: it is answered before its next frame is read.
#[derive(Debug)]
pub(super) enum Rare {
    CreateSession { client: String, name: Option<String> },
    Reconnect(Reconnect),
    ReconnectWithState(Reconnect),
    Restore { signed_state: String, position: Position },
    ExportState { session: SessionId, include: Include },
    EndSession { session: SessionId },
}

/// A session to come back to, and from where.
#[derive(Debug)]
pub(super) struct Reconnect {
    pub(super) session: SessionId,
    pub(super) position: Position,
}

/// Where a client wants to go on, and what it brings.
#[derive(Debug, Default)]
pub(super) struct Position {
    pub(super) admission: Admission,
    /// Whether replayed events come many to a frame.
    pub(super) batch: bool,
}

/// Why a frame is no request.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) code: ErrorCode,
    pub(super) sentence: String,
    /// Whether the client was coming back when it said that.
    pub(super) recovering: bool,
    /// Which message it would have been.
    pub(super) message_id: Option<MessageId>,
}

type Read<T> = Result<T, Unreadable>;

/// Reads one text frame.
pub(super) fn read(text: &str) -> Read<Request> {
    check_depth(text.as_bytes()).map_err(|error| invalid(&error.to_string()))?;
    let wrong = "A frame is one JSON object with a text `event`";
    let frame: FrameMembers<'_> = object(text, wrong)?;
    let event: String = match frame.event {
        Some(event) => typed(event, "`event` must be a text")?,
        None => return Err(invalid("`event` is missing")),
    };
    let about = |unreadable| match &*event {
        "user.message" | "user.cancel" => {
            Unreadable { message_id: frame.message_id().ok().flatten(), ..unreadable }
        }
        _ => unreadable,
    };
    frame.request(&event).map_err(about)
}

/// The members of a frame that mean something, unread.
#[derive(Deserialize)]
struct FrameMembers<'a> {
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    signed_state: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message_id: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PositionContent {
    last_seq: Option<u64>,
    last_event_id: Option<String>,
    epoch: Option<String>,
    reconnect_token: Option<String>,
    batch: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncludeContent {
    include_memory: Option<bool>,
    include_plan: Option<bool>,
    include_work: Option<bool>,
}

#[derive(Deserialize)]
struct AckMetadata {
    last_seq: u64,
    #[serde(rename = "received_count")]
    _received_count: Option<u64>,
    gap_detected: Option<bool>,
}

#[derive(Deserialize)]
struct TokenContent {
    token: String,
}

impl FrameMembers<'_> {
    fn request(&self, event: &str) -> Read<Request> {
        Ok(match event {
            "user.authenticate" => Request::Authenticate { credential: self.credential()? },
            "user.create_session" => {
                let client = present(self.content).map_or("{}", RawValue::get).to_owned();
                object::<IgnoredAny>(&client, "`content` must be an object")?;
                let wrong = "`session_id` must be a text";
                let name = present(self.session_id).map(|raw| typed(raw, wrong)).transpose()?;
                Request::Rare(Rare::CreateSession { client, name })
            }
            "user.reconnect" => {
                let (session, position) = (self.session()?, self.position()?);
                Request::Rare(Rare::Reconnect(Reconnect { session, position }))
            }
            "user.reconnect_with_state" => self.with_state()?,
            "user.request_state" => {
                let (session, include) = (self.session()?, self.include()?);
                Request::Rare(Rare::ExportState { session, include })
            }
            "user.message" => {
                let session = self.session()?;
                let content = self.content.ok_or_else(|| invalid("`content` is missing"))?;
                self.post(session, EntryKind::Message, Some(content.to_owned()))?
            }
            "user.cancel" => self.post(self.session()?, EntryKind::Cancel, None)?,
            "user.ack" => self.ack()?,
            "user.end_session" => Request::Rare(Rare::EndSession { session: self.session()? }),
            _ => {
                let sentence = "There is no such event; see docs/protocol.md for those there are";
                return Err(Unreadable::new(ErrorCode::UnknownEvent, sentence));
            }
        })
    }

    fn with_state(&self) -> Read<Request> {
        let Some(signed_state) = present(self.signed_state) else {
            let read = || Ok(Reconnect { session: self.session()?, position: self.position()? });
            let recovering = |unreadable| Unreadable { recovering: true, ..unreadable };
            let reconnect = read().map_err(recovering)?;
            return Ok(Request::Rare(Rare::ReconnectWithState(reconnect)));
        };
        let signed_state = typed(signed_state, "`signed_state` must be a text")?;
        let position = self.position()?;
        Ok(Request::Rare(Rare::Restore { signed_state, position }))
    }

    fn post(
        &self,
        session: SessionId,
        kind: EntryKind,
        content: Option<Box<RawValue>>,
    ) -> Read<Request> {
        Ok(Request::Post { session, kind, content, message_id: self.message_id()? })
    }

    fn credential(&self) -> Read<String> {
        let wrong = "`content` must be an object with a text `token`";
        let content = present(self.content).ok_or_else(|| invalid(wrong))?;
        Ok(object::<TokenContent>(content.get(), wrong)?.token)
    }

    fn session(&self) -> Read<SessionId> {
        let Some(raw) = present(self.session_id) else {
            let sentence = "`session_id` is missing";
            return Err(Unreadable::new(ErrorCode::MissingSessionId, sentence));
        };
        let text: String = typed(raw, "`session_id` must be a text")?;
        let unknown = |_| {
            let sentence = "Session not found; create a new one";
            Unreadable::new(ErrorCode::SessionNotFound, sentence)
        };
        SessionId::parse(&text).map_err(unknown)
    }

    fn message_id(&self) -> Read<Option<MessageId>> {
        let wrong = "`message_id` must be a text of 1 to 128 characters";
        let Some(raw) = present(self.message_id) else { return Ok(None) };
        let text: String = typed(raw, wrong)?;
        MessageId::parse(&text).map(Some).map_err(|_| invalid(wrong))
    }

    fn position(&self) -> Read<Position> {
        let wrong = "`content` may have `last_seq` (a whole number), `last_event_id`, `epoch` and \
                     `reconnect_token` (texts), and `batch` (true or false)";
        let content: PositionContent = present(self.content)
            .map(|raw| object(raw.get(), wrong))
            .transpose()?
            .unwrap_or_default();
        let asked = Asked {
            last_seq: content.last_seq.map(Seq::new),
            last_event_id: content.last_event_id.as_deref().and_then(EventId::parse),
            epoch: content.epoch.as_deref().map(Epoch::from_text),
        };
        let admission = Admission { asked, token: content.reconnect_token };
        Ok(Position { admission, batch: content.batch.unwrap_or(false) })
    }

    fn include(&self) -> Read<Include> {
        let wrong = "`include_memory`, `include_plan` and `include_work` are true or false";
        let content: IncludeContent = present(self.content)
            .map(|raw| object(raw.get(), wrong))
            .transpose()?
            .unwrap_or_default();
        Ok(Include {
            memory: content.include_memory.unwrap_or(true),
            plan: content.include_plan.unwrap_or(true),
            work: content.include_work.unwrap_or(true),
        })
    }

    fn ack(&self) -> Read<Request> {
        let session = self.session()?;
        let wrong = "`metadata` must be an object with a whole number `last_seq`, and may have \
                     `received_count` (a whole number) and `gap_detected` (true or false)";
        let raw = present(self.metadata).ok_or_else(|| invalid(wrong))?;
        let AckMetadata { last_seq, gap_detected, .. } = object(raw.get(), wrong)?;
        let gap_detected = gap_detected.unwrap_or(false);
        Ok(Request::Ack { session, last_seq: Seq::new(last_seq), gap_detected })
    }
}

impl Unreadable {
    fn new(code: ErrorCode, sentence: &str) -> Self {
        Self { code, sentence: sentence.to_owned(), recovering: false, message_id: None }
    }
}

fn invalid(sentence: &str) -> Unreadable {
    Unreadable::new(ErrorCode::InvalidMessage, sentence)
}

/// `null` is as good as nothing.
fn present(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

/// What stands in a member. The parser's own words are not repeated: they may quote a secret.
fn typed<'a, T: Deserialize<'a>>(raw: &'a RawValue, wrong: &str) -> Read<T> {
    serde_json::from_str(raw.get()).map_err(|_| invalid(wrong))
}

/// What stands in an object. An array would do for the parser, its items taken for members in the order
/// in which they are declared here.
fn object<'a, T: Deserialize<'a>>(text: &'a str, wrong: &str) -> Read<T> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(invalid(wrong));
    }
    serde_json::from_str(text).map_err(|_| invalid(wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> ErrorCode {
        read(text).unwrap_err().code
    }

    #[test]
    fn what_is_said_of_a_message_that_is_none_names_it() {
        for text in [
            r#"{"event":"user.message","message_id":"e1","session_id":"s","content":null}"#,
            r#"{"event":"user.message","message_id":"e1","session_id":5,"content":1}"#,
            r#"{"event":"user.cancel","message_id":"e1"}"#,
        ] {
            let named = read(text).unwrap_err().message_id;
            assert_eq!(named.as_ref().map(MessageId::as_str), Some("e1"), "{text}");
        }
        assert!(
            read(r#"{"event":"user.ack","message_id":"e1"}"#).unwrap_err().message_id.is_none()
        );
    }

    #[test]
    fn frames_that_are_no_requests_get_the_code_that_says_why() {
        let table = [
            ("", ErrorCode::InvalidMessage),
            ("{", ErrorCode::InvalidMessage),
            ("[]", ErrorCode::InvalidMessage),
            (r#"["user.create_session"]"#, ErrorCode::InvalidMessage),
            (r#"{"event":"user.ack","session_id":"s","metadata":[3]}"#, ErrorCode::InvalidMessage),
            (
                r#"{"event":"user.ack","session_id":"s","metadata":{"last_seq":1,"received_count":-4}}"#,
                ErrorCode::InvalidMessage,
            ),
            (r#"{"event":"user.create_session","content":5}"#, ErrorCode::InvalidMessage),
            (r#"{"event":"user.create_session","content":[1]}"#, ErrorCode::InvalidMessage),
            (
                r#"{"event":"user.reconnect","session_id":"s","content":[]}"#,
                ErrorCode::InvalidMessage,
            ),
            ("\"user.message\"", ErrorCode::InvalidMessage),
            ("{}", ErrorCode::InvalidMessage),
            (r#"{"event":7}"#, ErrorCode::InvalidMessage),
            (r#"{"event":"user.ack","event":"user.ack"}"#, ErrorCode::InvalidMessage),
            (r#"{"event":"user.dance"}"#, ErrorCode::UnknownEvent),
            (r#"{"event":"agent.error"}"#, ErrorCode::UnknownEvent),
            (r#"{"event":"user.message","content":"x"}"#, ErrorCode::MissingSessionId),
            (r#"{"event":"user.message","session_id":"s"}"#, ErrorCode::InvalidMessage),
            (r#"{"event":"user.message","session_id":7,"content":1}"#, ErrorCode::InvalidMessage),
            (
                r#"{"event":"user.message","session_id":"a/b","content":1}"#,
                ErrorCode::SessionNotFound,
            ),
            (
                r#"{"event":"user.message","session_id":"s","content":1,"message_id":""}"#,
                ErrorCode::InvalidMessage,
            ),
            (r#"{"event":"user.ack","session_id":"s"}"#, ErrorCode::InvalidMessage),
            (
                r#"{"event":"user.ack","session_id":"s","metadata":{"last_seq":-1}}"#,
                ErrorCode::InvalidMessage,
            ),
            (
                r#"{"event":"user.reconnect","session_id":"s","content":{"last_seq":"9"}}"#,
                ErrorCode::InvalidMessage,
            ),
            (r#"{"event":"user.reconnect_with_state"}"#, ErrorCode::MissingSessionId),
            (r#"{"event":"user.authenticate"}"#, ErrorCode::InvalidMessage),
        ];
        for (text, expected) in table {
            assert_eq!(code(text), expected, "{text}");
        }
        let deep = format!(r#"{{"event":"user.message","content":{}"#, "[".repeat(100_000));
        assert_eq!(code(&deep), ErrorCode::InvalidMessage);
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_repeated() {
        let text =
            r#"{"event":"user.reconnect","session_id":"s","content":{"last_seq":"hunter2"}}"#;
        assert!(!format!("{:?}", read(text).unwrap_err()).contains("hunter2"));
    }

    #[test]
    fn the_two_forms_of_reconnecting_with_state_are_told_apart() {
        let known =
            r#"{"event":"user.reconnect_with_state","session_id":"s","content":{"last_seq":4}}"#;
        assert!(matches!(read(known), Ok(Request::Rare(Rare::ReconnectWithState(_)))));
        let sealed = r#"{"event":"user.reconnect_with_state","signed_state":"v1.x.y"}"#;
        assert!(matches!(read(sealed), Ok(Request::Rare(Rare::Restore { .. }))));
        assert!(read(r#"{"event":"user.reconnect_with_state"}"#).unwrap_err().recovering);
    }
}
