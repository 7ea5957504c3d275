//! What happens in a case, in the brain's words. A frame that makes no sense is merely heard, as a
//! driver does it; `rejoin-client` has the reader that programs use.

use std::time::Duration;

use rejoin_core::client::{
    ClientOptions, Event, ExportedState, Input, MessageId, Saved, Secret, ServerEvent,
};
use rejoin_core::codes::ErrorCode;
use rejoin_core::position::SeqRange;
use rejoin_core::resume::Gap;
use rejoin_core::{Epoch, EventId, InSeq, Seq, SessionId, limits};
use serde_json::Value;

use crate::conformance::cases::{Book, seqs};

/// A step's inputs.
pub(crate) fn inputs(book: &Book, happens: &Value) -> Vec<Input> {
    if let Some(frame) = happens.get("frame") {
        return frame_inputs(&book.named(frame, happens.get("with")));
    }
    if let Some(ends) = happens.get("events") {
        let frame =
            |seq: u64| book.named(&"event".into(), Some(&serde_json::json!({ "seq": seq })));
        return seqs(ends).flat_map(|seq| frame_inputs(&frame(seq))).collect();
    }
    vec![input(happens)]
}

/// What was saved.
pub(crate) fn saved(saved: &Value) -> Saved {
    serde_json::from_value(saved.clone()).expect("it has the shape of what is saved")
}

/// What can be set.
pub(crate) fn options(given: &Value) -> ClientOptions {
    let number = |name: &str, usual: usize| {
        given[name].as_u64().map_or(usual, |value| usize::try_from(value).unwrap())
    };
    let usual = ClientOptions::default();
    ClientOptions {
        create_when_lost: given["create_when_lost"].as_bool().unwrap_or(usual.create_when_lost),
        messages_in_flight: number("messages_in_flight", usual.messages_in_flight),
        max_unaccepted: number("max_unaccepted", usual.max_unaccepted),
        max_unaccepted_bytes: number("max_unaccepted_bytes", usual.max_unaccepted_bytes),
    }
}

fn input(happens: &Value) -> Input {
    let bare = happens.as_str().map(|word| (word, &Value::Null));
    let detailed =
        || happens.as_object()?.iter().next().map(|(word, detail)| (word.as_str(), detail));
    let (word, detail) = bare.or_else(detailed).unwrap();
    let message_id = || MessageId::parse(detail["message_id"].as_str().unwrap()).unwrap();
    let random = || u32::try_from(detail["random"].as_u64().unwrap()).unwrap();
    match word {
        "opened" => Input::Opened,
        "heard" => Input::Heard,
        "tick" => Input::Tick,
        "wake" => Input::Wake,
        "request_state" => Input::RequestState,
        "end" => Input::End,
        "connect_failed" => Input::ConnectFailed { random: random() },
        "closed" => Input::Closed {
            code: detail["code"].as_u64().map(|code| u16::try_from(code).unwrap()),
            retry_after: millis(&detail["retry_after_ms"]),
            random: random(),
        },
        "send" => Input::Send {
            message_id: message_id(),
            content: detail["content"].to_string().into_bytes().into(),
        },
        "cancel" => Input::Cancel { message_id: message_id() },
        other => panic!("nothing can happen like {other}"),
    }
}

fn frame_inputs(frame: &Value) -> Vec<Input> {
    match told(frame) {
        Some(told) => told.into_iter().map(Input::Received).collect(),
        None => vec![Input::Heard],
    }
}

/// What a frame says; nothing if it makes no sense.
fn told(frame: &Value) -> Option<Vec<ServerEvent>> {
    let name = frame["event"].as_str()?;
    if !frame["seq"].is_null() {
        return Some(vec![event(frame)?]);
    }
    let (content, metadata) = (&frame["content"], &frame["metadata"]);
    let one = match name {
        "system.connected" => connected(content),
        "system.heartbeat" => ServerEvent::Heartbeat {
            head: seq(&metadata["seq"]).unwrap_or(Seq::ZERO),
            token: secret(&metadata["reconnect_token"]),
        },
        "system.accepted" => ServerEvent::Accepted {
            message_id: MessageId::parse(content["message_id"].as_str()?).ok()?,
            in_seq: InSeq::new(content["in_seq"].as_u64()?),
            duplicate: content["duplicate"] == true,
        },
        "system.notice" => return notice(content, metadata),
        "agent.session_created" => session_created(frame)?,
        "agent.state_restored" => ServerEvent::StateRestored {
            new_session_id: SessionId::parse(metadata["new_session_id"].as_str()?).ok()?,
            epoch: Epoch::from_text(metadata["epoch"].as_str()?),
            gap: confirmed_gap(&metadata["gap"])?,
            token: secret(&metadata["reconnect_token"]),
        },
        "agent.state_exported" => ServerEvent::StateExported(ExportedState {
            signed_state: secret(&metadata["signed_state"])?,
            seq: seq(&metadata["seq"])?,
            state: metadata["session_state"].to_string().into_bytes().into(),
        }),
        "agent.error" | "error.recovery_failed" => refused(metadata),
        "agent.session_ended" => ServerEvent::SessionEnded,
        _ => return None,
    };
    Some(vec![one])
}

fn event(frame: &Value) -> Option<ServerEvent> {
    frame["event"].as_str()?;
    Some(ServerEvent::Event(Event {
        seq: seq(&frame["seq"]).filter(|seq| *seq > Seq::ZERO)?,
        event_id: frame["event_id"].as_str().and_then(EventId::parse),
        replayed: frame["metadata"]["replayed"] == true,
        body: frame.to_string().into_bytes().into(),
    }))
}

fn connected(content: &Value) -> ServerEvent {
    let seconds = |value: &Value| value.as_f64().map(Duration::from_secs_f64);
    let interval = seconds(&content["heartbeat_interval_seconds"]);
    let attempts = content["max_reconnect_attempts"].as_u64();
    ServerEvent::Connected {
        backoff: content["reconnect_backoff"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(seconds)
            .collect(),
        max_attempts: attempts.map_or(limits::MAX_ATTEMPTS, |value| value.try_into().unwrap()),
        heartbeat_interval: interval.unwrap_or(limits::HEARTBEAT_INTERVAL),
    }
}

fn session_created(frame: &Value) -> Option<ServerEvent> {
    let metadata = &frame["metadata"];
    Some(ServerEvent::SessionCreated {
        session_id: SessionId::parse(frame["session_id"].as_str()?).ok()?,
        resumed: metadata["resumed"] == true,
        epoch: Epoch::from_text(metadata["epoch"].as_str()?),
        replay_from: seq(&metadata["replay_from"])?,
        gap: confirmed_gap(&metadata["gap"])?,
        token: secret(&metadata["reconnect_token"]),
    })
}

fn notice(content: &Value, metadata: &Value) -> Option<Vec<ServerEvent>> {
    Some(match metadata["code"].as_str()? {
        "gap" => vec![ServerEvent::Gap(gap(metadata)?)],
        "replay" => content["events"].as_array()?.iter().map(event).collect::<Option<_>>()?,
        "replay_complete" => vec![ServerEvent::ReplayComplete],
        "superseded" => vec![ServerEvent::Superseded],
        "draining" => vec![ServerEvent::Draining],
        _ => return None,
    })
}

fn refused(metadata: &Value) -> ServerEvent {
    let known = ErrorCode::ALL.iter().find(|code| metadata["error_code"] == code.as_str());
    ServerEvent::Refused {
        code: known.copied().unwrap_or(ErrorCode::InternalError),
        retry_after: millis(&metadata["retry_after_ms"]),
        message_id: metadata["message_id"].as_str().map(|id| MessageId::parse(id).unwrap()),
    }
}

/// A gap as a notice tells it.
fn gap(metadata: &Value) -> Option<Gap> {
    if metadata["from"].is_null() && metadata["to"].is_null() {
        return Some(Gap::PositionUnknown);
    }
    let lost = &metadata["lost"];
    let lost = if lost.is_null() { None } else { Some(range(lost)?) };
    Some(Gap::Evicted { missing: range(metadata)?, lost })
}

/// A gap as a confirmation tells it: all of it is taken for lost.
fn confirmed_gap(ends: &Value) -> Option<Option<Gap>> {
    if ends.is_null() {
        return Some(None);
    }
    Some(Some(match gap(ends)? {
        Gap::PositionUnknown => Gap::PositionUnknown,
        Gap::Evicted { missing, .. } => Gap::Evicted { missing, lost: Some(missing) },
    }))
}

fn range(ends: &Value) -> Option<SeqRange> {
    SeqRange::new(seq(&ends["from"])?, seq(&ends["to"])?)
}

fn seq(value: &Value) -> Option<Seq> {
    value.as_u64().map(Seq::new)
}

fn secret(value: &Value) -> Option<Secret> {
    value.as_str().map(Secret::new)
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}
