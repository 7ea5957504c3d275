//! What clients are told: replies and control events, as frames. They belong to the connection, have
//! no seq and are never replayed.

use std::time::Duration;

use rejoin_core::codes::{CloseCode, ErrorCode};
use rejoin_core::page::StoredEvent;
use rejoin_core::position::SeqRange;
use rejoin_core::reader::Confirmed;
use rejoin_core::record::Record;
use rejoin_core::resume::Gap;
use rejoin_core::state::Entered;
use rejoin_core::{Epoch, LogId, MessageId, Seq, SessionId, Timestamp};
use serde_json::{Value, json};

use crate::event::Envelopes;
use crate::service::{Denial, Exported, Issued, Joined, Restored};

/// What a client can rely on from this server.
const CAPABILITIES: [&str; 6] = [
    "replay",
    "batch_replay",
    "state_export",
    "state_restore",
    "reconnect_token",
    "message_dedupe",
];

/// Frames of a batch hold at most this many bytes; a larger single event goes alone.
const BATCH_BYTES: usize = 256 * 1024;

/// More than the envelope around a batch ever takes.
const ENVELOPE_BYTES: usize = 512;

/// A control event of a session, or of the connection alone.
pub(super) fn control(
    event: &str,
    session: Option<&SessionId>,
    now: Timestamp,
    content: Value,
    metadata: Value,
) -> String {
    frame(event, session, now, &content.to_string(), &metadata.to_string())
}

/// The envelope around content and metadata that are JSON already.
fn frame(
    event: &str,
    session: Option<&SessionId>,
    now: Timestamp,
    content: &str,
    metadata: &str,
) -> String {
    let session =
        session.map_or(String::new(), |id| format!(r#""session_id":"{}","#, id.client_name()));
    let head = format!(r#""event":"{event}",{session}"timestamp":"{now}""#);
    format!(r#"{{{head},"content":{content},"metadata":{metadata}}}"#)
}

/// `agent.session_created`.
pub(super) fn session_created(joined: &Joined, ttl: Duration, now: Timestamp) -> String {
    let Joined { confirmed, token, .. } = joined;
    let Confirmed { resumed, record, replay_from, gap, .. } = &**confirmed;
    let id = record.id();
    let content = if *resumed {
        json!("Session reconnected successfully")
    } else {
        let created_at = record.about.created_at.to_string();
        json!({ "session_id": id.client_name(), "created_at": created_at, "epoch": epoch(&record.epoch) })
    };
    let mut metadata = json!({
        "resumed": resumed,
        "session_ttl_seconds": ttl.as_secs(),
        "server_version": env!("CARGO_PKG_VERSION"),
        "capabilities": CAPABILITIES,
    });
    add_attached(&mut metadata, record, *replay_from, *gap, token);
    control("agent.session_created", Some(id), now, content, metadata)
}

/// `agent.session_ended`.
pub(super) fn session_ended(session: &SessionId, now: Timestamp) -> String {
    control("agent.session_ended", Some(session), now, json!("Session ended"), json!({}))
}

/// `agent.state_restored`.
pub(super) fn state_restored(restored: &Restored, now: Timestamp) -> String {
    let Restored { joined, original, step, .. } = restored;
    let Confirmed { record, replay_from, gap, .. } = &*joined.confirmed;
    let mut metadata = json!({
        "original_session_id": original.client_name(),
        "new_session_id": record.id().client_name(),
        "restored_step": step,
        "replayed": record.head.next().steps_from(*replay_from),
    });
    add_attached(&mut metadata, record, *replay_from, *gap, &joined.token);
    let content = json!("State restored successfully");
    control("agent.state_restored", Some(record.id()), now, content, metadata)
}

/// What both ways of coming back say.
fn add_attached(
    metadata: &mut Value,
    record: &Record,
    replay_from: Seq,
    gap: Option<Gap>,
    token: &Issued,
) {
    metadata["generation"] = record.generation.get().into();
    metadata["epoch"] = epoch(&record.epoch);
    metadata["last_seq"] = record.head.get().into();
    metadata["replay_from"] = replay_from.get().into();
    metadata["gap"] = match gap {
        None => Value::Null,
        Some(Gap::Evicted { missing, .. }) => range(Some(missing)),
        Some(Gap::PositionUnknown) => json!({ "from": null, "to": null }),
    };
    metadata["reconnect_token"] = token.token.as_str().into();
    metadata["reconnect_token_expires_at"] = token.expires_at.to_string().into();
}

/// `system.notice` with code `gap`.
pub(super) fn gap(session: &SessionId, gap: Gap, now: Timestamp) -> String {
    let (content, metadata) = match gap {
        Gap::Evicted { missing, lost } => (
            format!("Events {} to {} are gone", missing.from, missing.to),
            json!({
                "code": "gap", "reason": "evicted",
                "from": missing.from.get(), "to": missing.to.get(), "lost": range(lost),
            }),
        ),
        Gap::PositionUnknown => (
            "The position is not one of this log; everything that is held follows".to_owned(),
            json!({
                "code": "gap", "reason": "position_unknown",
                "from": null, "to": null, "lost": null,
            }),
        ),
    };
    control("system.notice", Some(session), now, content.into(), metadata)
}

/// `agent.state_exported`.
pub(super) fn state_exported(session: &SessionId, exported: Exported, now: Timestamp) -> String {
    let operation = exported.state.get("stage").cloned().unwrap_or(Value::Null);
    let metadata = json!({
        "state_size": exported.signed_state.len(),
        "signed_state": exported.signed_state,
        "snapshot_time": exported.taken_at.to_string(),
        "expire_after_hours": exported.expire_after_hours(),
        "session_id": session.client_name(),
        "session_state": exported.state,
        "current_operation": operation,
        "seq": exported.seq.get(),
        "exported_at": exported.exported_at.to_string(),
        "valid_until": exported.valid_until.to_string(),
    });
    let content = json!("Session state exported");
    control("agent.state_exported", Some(session), now, content, metadata)
}

/// A `system.notice`.
pub(super) fn notice(
    session: Option<&SessionId>,
    code: &str,
    content: impl Into<Value>,
    now: Timestamp,
) -> String {
    control("system.notice", session, now, content.into(), json!({ "code": code }))
}

/// `system.notice` with code `replay_complete`.
pub(super) fn replay_complete(
    session: &SessionId,
    range: Option<SeqRange>,
    replayed: u64,
    now: Timestamp,
) -> String {
    let metadata = json!({
        "code": "replay_complete",
        "replayed": replayed,
        "from": range.map(|range| range.from.get()),
        "to": range.map(|range| range.to.get()),
    });
    control("system.notice", Some(session), now, json!("Replay complete"), metadata)
}

/// `system.notice` with code `replay`: replayed events, as many to a frame as fit.
pub(super) fn batches(
    session: &SessionId,
    log: LogId,
    events: &[StoredEvent],
    now: Timestamp,
) -> Vec<String> {
    let room = BATCH_BYTES - ENVELOPE_BYTES;
    let (mut frames, mut batch) = (Vec::new(), String::new());
    let mut finish = |batch: &mut String| {
        if !batch.is_empty() {
            let content = format!(r#"{{"events":[{batch}]}}"#);
            let metadata = r#"{"code":"replay"}"#;
            frames.push(frame("system.notice", Some(session), now, &content, metadata));
            batch.clear();
        }
    };
    let mut envelopes = Envelopes::of(session.client_name(), log);
    for event in events {
        let text = envelopes.envelope(event, true);
        if batch.len() + 1 + text.len() > room {
            finish(&mut batch);
        }
        if !batch.is_empty() {
            batch.push(',');
        }
        batch.push_str(&text);
    }
    finish(&mut batch);
    frames
}

/// `system.heartbeat`.
pub(super) fn heartbeat(
    session: Option<&SessionId>,
    head: Seq,
    uptime: Duration,
    token: Option<&Issued>,
    now: Timestamp,
) -> String {
    let mut metadata = json!({ "seq": head.get(), "server_uptime_seconds": uptime.as_secs() });
    if let Some(token) = token {
        metadata["reconnect_token"] = token.token.as_str().into();
        metadata["reconnect_token_expires_at"] = token.expires_at.to_string().into();
    }
    let content = json!({ "server_time": now.to_string() });
    control("system.heartbeat", session, now, content, metadata)
}

/// `system.accepted`.
pub(super) fn accepted(
    session: &SessionId,
    message_id: &MessageId,
    entered: Entered,
    now: Timestamp,
) -> String {
    let content = json!({
        "message_id": message_id,
        "in_seq": entered.in_seq.get(),
        "duplicate": entered.duplicate,
    });
    control("system.accepted", Some(session), now, content, json!({}))
}

/// Something that went wrong, on its way to a client.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) code: ErrorCode,
    pub(super) sentence: String,
    pub(super) retry_after: Option<Duration>,
}

impl From<Denial> for Trouble {
    fn from(denial: Denial) -> Self {
        let (code, retry_after) = (denial.code(), denial.retry_after());
        Self { code, sentence: denial.sentence(), retry_after }
    }
}

impl Trouble {
    pub(super) fn new(code: ErrorCode, sentence: &str) -> Self {
        Self { code, sentence: sentence.to_owned(), retry_after: None }
    }

    /// `agent.error`, or `error.recovery_failed` where the client was coming back with a position.
    pub(super) fn frame(
        &self,
        event: &str,
        session: Option<&SessionId>,
        message_id: Option<&MessageId>,
        now: Timestamp,
    ) -> String {
        let recovery = self.code.recovery().as_str();
        let mut metadata = json!({
            "error_code": self.code.as_str(),
            "recovery_action": recovery,
            "recovery_strategy": recovery,
        });
        if let Some(wait) = self.retry_after {
            metadata["retry_after_ms"] = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).into();
        }
        if let Some(message_id) = message_id {
            metadata["message_id"] = message_id.as_str().into();
        }
        control(event, session, now, self.sentence.clone().into(), metadata)
    }
}

/// The reason in a close frame: which code it is in words, and when to come back if one should.
pub(super) fn close_reason(code: CloseCode, retry_after: Duration) -> String {
    let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    match code {
        CloseCode::Draining => json!({ "reason": "draining", "retry_after_ms": millis }),
        CloseCode::HeartbeatLost => json!({ "reason": "heartbeat_lost", "retry_after_ms": millis }),
        CloseCode::Busy => json!({ "reason": "busy", "retry_after_ms": millis }),
        CloseCode::Superseded => json!({ "reason": "superseded" }),
        CloseCode::SessionEnded => json!({ "reason": "session_ended" }),
        CloseCode::NotAuthorised => json!({ "reason": "not_authorised" }),
        CloseCode::ProtocolAbuse => json!({ "reason": "protocol_abuse" }),
    }
    .to_string()
}

fn epoch(epoch: &Epoch) -> Value {
    epoch.as_str().into()
}

fn range(range: Option<SeqRange>) -> Value {
    range.map_or(Value::Null, |range| json!({ "from": range.from.get(), "to": range.to.get() }))
}
