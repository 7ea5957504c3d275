//! Frames of the server, read into what the brain understands. Whatever a broken server sends ends
//! here: a frame that makes no sense is a [`BadFrame`], never a panic and never half a meaning.

use std::borrow::Cow;
use std::time::Duration;

use rejoin_core::client::{Event, ExportedState, MessageId, Secret, ServerEvent};
use rejoin_core::codes::ErrorCode;
use rejoin_core::position::SeqRange;
use rejoin_core::resume::Gap;
use rejoin_core::{Epoch, EventId, InSeq, Seq, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::limits;

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Something for the brain; several things if it is a batch of replayed events.
    Told(Vec<ServerEvent>),
    /// `system.authenticated`.
    Authenticated,
    /// Nothing that a client of this version knows of.
    Unknown,
}

/// A frame that makes no sense. It does not say what is in it: that may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error("not JSON of the shape of an event")]
    Envelope,
    #[error("a number that is no seq")]
    Seq,
    #[error("content of another shape than its event has")]
    Content,
    #[error("metadata of another shape than its event has")]
    Metadata,
    #[error("a field is missing that its event needs")]
    Missing,
    #[error("an id that can be none")]
    Id,
}

/// What all frames have in common.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow)]
    pub(crate) event: Cow<'a, str>,
    session_id: Option<String>,
    seq: Option<u64>,
    event_id: Option<String>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) metadata: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    pub(crate) fn read(text: &'a str) -> Result<Self, BadFrame> {
        serde_json::from_str(text).map_err(|_| BadFrame::Envelope)
    }

    /// The content as a `T`; its default if there is none.
    fn content<T: DeserializeOwned + Default>(&self) -> Result<T, BadFrame> {
        part(self.content).map_err(|_| BadFrame::Content)
    }

    /// The metadata as a `T`; its default if there is none.
    fn metadata<T: DeserializeOwned + Default>(&self) -> Result<T, BadFrame> {
        part(self.metadata).map_err(|_| BadFrame::Metadata)
    }
}

fn part<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> serde_json::Result<T> {
    raw.map_or_else(|| Ok(T::default()), |raw| serde_json::from_str(raw.get()))
}

/// Reads a frame. Whatever has a `seq` is an event of the out log, whatever its name.
pub(crate) fn read(text: &str) -> Result<Frame, BadFrame> {
    let envelope = Envelope::read(text)?;
    if envelope.seq.is_some() {
        return one(ServerEvent::Event(event(&envelope, text)?));
    }
    match &*envelope.event {
        "system.connected" => one(connected(&envelope)?),
        "system.authenticated" => Ok(Frame::Authenticated),
        "system.heartbeat" => one(heartbeat(&envelope)?),
        "system.accepted" => one(accepted(&envelope)?),
        "system.notice" => notice(&envelope),
        "agent.session_created" => one(session_created(&envelope)?),
        "agent.state_restored" => one(state_restored(&envelope)?),
        "agent.state_exported" => one(state_exported(&envelope)?),
        "agent.error" | "error.recovery_failed" => one(refused(&envelope)?),
        "agent.session_ended" => one(ServerEvent::SessionEnded),
        _ => Ok(Frame::Unknown),
    }
}

/// `retry_after_ms` in the reason of a close frame.
pub(crate) fn retry_after_in(reason: &str) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Reason {
        retry_after_ms: u64,
    }
    serde_json::from_str(reason).ok().map(|Reason { retry_after_ms }| millis(retry_after_ms))
}

fn one(event: ServerEvent) -> Result<Frame, BadFrame> {
    Ok(Frame::Told(vec![event]))
}

fn event(envelope: &Envelope<'_>, text: &str) -> Result<Event, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        replayed: bool,
    }
    // An agent may put anything into its metadata; what is not ours is not looked at.
    let replayed = envelope.metadata::<Metadata>().is_ok_and(|metadata| metadata.replayed);
    let seq = seq(envelope.seq.ok_or(BadFrame::Missing)?)?;
    let event_id = envelope.event_id.as_deref().and_then(EventId::parse);
    Ok(Event { seq, event_id, replayed, body: text.as_bytes().into() })
}

fn connected(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Content {
        heartbeat_interval_seconds: Option<f64>,
        reconnect_backoff: Vec<f64>,
        max_reconnect_attempts: Option<u32>,
    }
    let content: Content = envelope.content()?;
    let interval = content.heartbeat_interval_seconds.and_then(seconds);
    Ok(ServerEvent::Connected {
        backoff: content.reconnect_backoff.into_iter().filter_map(seconds).collect(),
        max_attempts: content.max_reconnect_attempts.unwrap_or(rejoin_core::limits::MAX_ATTEMPTS),
        heartbeat_interval: interval.unwrap_or(rejoin_core::limits::HEARTBEAT_INTERVAL),
    })
}

fn heartbeat(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        seq: Option<u64>,
        reconnect_token: Option<String>,
    }
    let metadata: Metadata = envelope.metadata()?;
    let head = metadata.seq.map_or(Ok(Seq::ZERO), seq_or_zero)?;
    Ok(ServerEvent::Heartbeat { head, token: secret(metadata.reconnect_token) })
}

fn accepted(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Content {
        message_id: String,
        in_seq: u64,
        duplicate: bool,
    }
    let Content { message_id, in_seq, duplicate } = envelope.content()?;
    let message_id = MessageId::parse(&message_id).map_err(|_| BadFrame::Id)?;
    Ok(ServerEvent::Accepted { message_id, in_seq: InSeq::new(in_seq), duplicate })
}

fn session_created(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    let Confirmation { resumed, epoch, replay_from, gap, reconnect_token, .. } =
        envelope.metadata()?;
    // A new session's id also stands in the content; for an old one that is a sentence.
    #[derive(Default, Deserialize)]
    struct Content {
        session_id: Option<String>,
    }
    let in_content = || envelope.content::<Content>().ok()?.session_id;
    let id = envelope.session_id.clone().or_else(in_content).ok_or(BadFrame::Missing)?;
    Ok(ServerEvent::SessionCreated {
        session_id: SessionId::parse(&id).map_err(|_| BadFrame::Id)?,
        resumed,
        epoch: Epoch::from_text(&epoch.ok_or(BadFrame::Missing)?),
        replay_from: seq(replay_from.ok_or(BadFrame::Missing)?)?,
        gap: confirmed_gap(gap)?,
        token: secret(reconnect_token),
    })
}

fn state_restored(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    let Confirmation { new_session_id, epoch, gap, reconnect_token, .. } = envelope.metadata()?;
    let id = new_session_id.ok_or(BadFrame::Missing)?;
    Ok(ServerEvent::StateRestored {
        new_session_id: SessionId::parse(&id).map_err(|_| BadFrame::Id)?,
        epoch: Epoch::from_text(&epoch.ok_or(BadFrame::Missing)?),
        gap: confirmed_gap(gap)?,
        token: secret(reconnect_token),
    })
}

/// The metadata of a session that is confirmed, whichever way.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Confirmation {
    resumed: bool,
    new_session_id: Option<String>,
    epoch: Option<String>,
    replay_from: Option<u64>,
    gap: Option<MaybeEnds>,
    reconnect_token: Option<String>,
}

fn state_exported(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        signed_state: Option<String>,
        seq: Option<u64>,
        session_state: Option<Box<RawValue>>,
    }
    let metadata: Metadata = envelope.metadata()?;
    let state = metadata.session_state.as_deref().map_or("null", RawValue::get);
    Ok(ServerEvent::StateExported(ExportedState {
        signed_state: secret(metadata.signed_state).ok_or(BadFrame::Missing)?,
        seq: seq_or_zero(metadata.seq.ok_or(BadFrame::Missing)?)?,
        state: state.as_bytes().into(),
    }))
}

fn refused(envelope: &Envelope<'_>) -> Result<ServerEvent, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        error_code: Option<String>,
        retry_after_ms: Option<u64>,
        message_id: Option<String>,
    }
    let metadata: Metadata = envelope.metadata()?;
    let word = metadata.error_code.unwrap_or_default();
    let known = ErrorCode::ALL.iter().find(|code| code.as_str() == word);
    Ok(ServerEvent::Refused {
        code: known.copied().unwrap_or(ErrorCode::InternalError),
        retry_after: metadata.retry_after_ms.map(millis),
        message_id: metadata.message_id.and_then(|id| MessageId::parse(&id).ok()),
    })
}

/// The metadata of a notice.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Notice {
    code: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    lost: Option<Ends>,
}

fn notice(envelope: &Envelope<'_>) -> Result<Frame, BadFrame> {
    let notice: Notice = envelope.metadata()?;
    match notice.code.as_deref().unwrap_or_default() {
        "gap" => one(ServerEvent::Gap(gap(&notice)?)),
        "replay" => batch(envelope),
        "replay_complete" => one(ServerEvent::ReplayComplete),
        "superseded" => one(ServerEvent::Superseded),
        "draining" => one(ServerEvent::Draining),
        _ => Ok(Frame::Unknown),
    }
}

/// Where the server can't say what is missing, the ends are null.
fn gap(notice: &Notice) -> Result<Gap, BadFrame> {
    let lost = range(notice.lost)?;
    match missing(MaybeEnds { from: notice.from, to: notice.to })? {
        Some(missing) => Ok(Gap::Evicted { missing, lost }),
        None => Ok(Gap::PositionUnknown),
    }
}

/// A confirmation does not say what the state makes up for: all of it is taken for lost.
fn confirmed_gap(ends: Option<MaybeEnds>) -> Result<Option<Gap>, BadFrame> {
    let Some(ends) = ends else { return Ok(None) };
    Ok(Some(match missing(ends)? {
        Some(missing) => Gap::Evicted { missing, lost: Some(missing) },
        None => Gap::PositionUnknown,
    }))
}

fn missing(ends: MaybeEnds) -> Result<Option<SeqRange>, BadFrame> {
    match (ends.from, ends.to) {
        (Some(from), Some(to)) => range(Some(Ends { from, to })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(BadFrame::Missing),
    }
}

/// Replayed events, several in a frame. One that makes no sense spoils the batch: the hole it leaves
/// would only be noticed at the next one.
fn batch(envelope: &Envelope<'_>) -> Result<Frame, BadFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Content {
        events: Vec<Box<RawValue>>,
    }
    let Content { events } = envelope.content()?;
    let read_one = |raw: &RawValue| {
        let inner = event(&Envelope::read(raw.get())?, raw.get())?;
        Ok(ServerEvent::Event(Event { replayed: true, ..inner }))
    };
    events.iter().map(Box::as_ref).map(read_one).collect::<Result<_, _>>().map(Frame::Told)
}

#[derive(Clone, Copy, Deserialize)]
struct Ends {
    from: u64,
    to: u64,
}

/// Both null where the server can't say what is missing.
#[derive(Clone, Copy, Deserialize)]
struct MaybeEnds {
    from: Option<u64>,
    to: Option<u64>,
}

fn range(ends: Option<Ends>) -> Result<Option<SeqRange>, BadFrame> {
    let Some(Ends { from, to }) = ends else { return Ok(None) };
    SeqRange::new(seq(from)?, seq(to)?).map(Some).ok_or(BadFrame::Seq)
}

fn seq(value: u64) -> Result<Seq, BadFrame> {
    if value == 0 { Err(BadFrame::Seq) } else { seq_or_zero(value) }
}

fn seq_or_zero(value: u64) -> Result<Seq, BadFrame> {
    if value > limits::MAX_SEQ { Err(BadFrame::Seq) } else { Ok(Seq::new(value)) }
}

fn secret(text: Option<String>) -> Option<Secret> {
    text.map(|text| Secret::new(&text))
}

fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value).ok().map(|duration| duration.min(limits::MAX_RETRY_AFTER))
}

fn millis(value: u64) -> Duration {
    Duration::from_millis(value).min(limits::MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests;
