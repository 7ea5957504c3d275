//! What has to be true of every frame that a server sends, whatever a test is about: sections 2 and 10
//! of the protocol. A client checks each frame it gets.

use serde_json::Value;

/// Names that only the server uses, besides `system.*`. They belong to the connection.
const CONTROL: [&str; 6] = [
    "agent.session_created",
    "agent.session_ended",
    "agent.state_exported",
    "agent.state_restored",
    "agent.error",
    "error.recovery_failed",
];

const NOTICES: [&str; 6] =
    ["replay", "replay_complete", "gap", "no_buffered_events", "draining", "superseded"];

const STATE_EXPORTED: [&str; 10] = [
    "signed_state",
    "state_size",
    "snapshot_time",
    "expire_after_hours",
    "session_id",
    "session_state",
    "current_operation",
    "seq",
    "exported_at",
    "valid_until",
];

const ATTACHED: [&str; 7] = [
    "generation",
    "epoch",
    "last_seq",
    "replay_from",
    "gap",
    "reconnect_token",
    "reconnect_token_expires_at",
];

/// The recovery that goes with each error code.
pub(crate) fn recovery(code: &str) -> &'static str {
    match code {
        "SESSION_NOT_FOUND" | "SESSION_EXPIRED" | "SESSION_INACTIVE" | "SESSION_CLOSED"
        | "STATE_EXPIRED" | "STATE_SUPERSEDED" => "create_new_session",
        "STATE_VERIFICATION_FAILED" => "export_state_again",
        "SESSION_ALREADY_ACTIVE"
        | "RATE_LIMITED"
        | "SERVER_BUSY"
        | "DATABASE_UNAVAILABLE"
        | "AGENT_FAILED"
        | "INTERNAL_ERROR" => "retry_later",
        "SESSION_NOT_OWNED" | "UNAUTHORIZED" | "TOKEN_INVALID" | "TOKEN_EXPIRED"
        | "TOKEN_REUSED" => "authenticate_again",
        "MISSING_SESSION_ID" | "INVALID_MESSAGE" | "UNKNOWN_EVENT" | "ACK_AHEAD"
        | "MESSAGE_TOO_LARGE" | "STATE_TOO_LARGE" | "ID_INVALID" => "fix_request",
        other => panic!("{other} is no error code of the protocol"),
    }
}

/// Checks one frame.
pub(super) fn check(frame: &Value) {
    let event = frame["event"].as_str().unwrap_or_else(|| panic!("no event name: {frame}"));
    assert!(is_time(&frame["timestamp"]), "no time: {frame}");
    if event.starts_with("system.") || CONTROL.contains(&event) {
        assert!(frame.get("seq").is_none(), "a control event with a seq: {frame}");
        assert!(frame.get("event_id").is_none(), "a control event with an id: {frame}");
        check_control(event, frame);
    } else {
        assert!(frame["seq"].as_u64().is_some_and(|seq| seq > 0), "no seq: {frame}");
        let id = frame["event_id"].as_str().unwrap_or_default();
        assert!(id.starts_with("evt_"), "no event id: {frame}");
        assert!(has_session(frame), "no session: {frame}");
        assert!(frame.get("state").is_none(), "the agent's state goes to nobody: {frame}");
        let replayed = &frame["metadata"]["replayed"];
        assert!(replayed.is_null() || *replayed == true, "{frame}");
    }
}

fn check_control(event: &str, frame: &Value) {
    let (content, metadata) = (&frame["content"], &frame["metadata"]);
    let has = |keys: &[&str]| {
        for key in keys {
            assert!(metadata.get(key).is_some(), "no {key} in {frame}");
        }
    };
    match event {
        "system.connected" | "system.authenticated" => {}
        "system.heartbeat" => {
            assert!(is_time(&content["server_time"]), "{frame}");
            assert!(metadata["seq"].is_u64(), "{frame}");
            assert!(metadata["server_uptime_seconds"].is_u64(), "{frame}");
        }
        "system.notice" => {
            let code = metadata["code"].as_str().unwrap_or_default();
            assert!(NOTICES.contains(&code), "{frame}");
            assert_eq!(content.is_string(), code != "replay", "{frame}");
        }
        "system.accepted" => {
            assert!(content["message_id"].is_string(), "{frame}");
            assert!(content["in_seq"].as_u64().is_some_and(|in_seq| in_seq > 0), "{frame}");
            assert!(content["duplicate"].is_boolean(), "{frame}");
        }
        "agent.session_created" => {
            has(&ATTACHED);
            has(&["resumed", "session_ttl_seconds", "server_version", "capabilities"]);
            assert!(has_session(frame), "{frame}");
        }
        "agent.state_restored" => {
            has(&ATTACHED);
            has(&["original_session_id", "new_session_id", "restored_step", "replayed"]);
            assert_eq!(frame["session_id"], metadata["new_session_id"], "{frame}");
        }
        "agent.state_exported" => {
            has(&STATE_EXPORTED);
            assert_eq!(metadata["current_operation"], metadata["session_state"]["stage"]);
            let size = metadata["signed_state"].as_str().map(str::len);
            assert_eq!(metadata["state_size"].as_u64(), size.map(|size| size as u64), "{frame}");
        }
        "agent.session_ended" => assert!(has_session(frame), "{frame}"),
        "agent.error" | "error.recovery_failed" => check_error(frame),
        other => panic!("{other} is no control event of the protocol: {frame}"),
    }
}

fn check_error(frame: &Value) {
    let metadata = &frame["metadata"];
    let code = metadata["error_code"].as_str().unwrap_or_default();
    let sentence = frame["content"].as_str().unwrap_or_default();
    assert!(sentence.contains(' '), "no sentence: {frame}");
    assert_eq!(metadata["recovery_action"], recovery(code), "{frame}");
    assert_eq!(metadata["recovery_strategy"], recovery(code), "{frame}");
}

fn has_session(frame: &Value) -> bool {
    frame["session_id"].as_str().is_some_and(|id| !id.is_empty())
}

/// Whether it is a time like `2026-11-15T12:00:00.000Z`.
fn is_time(value: &Value) -> bool {
    const SHAPE: &str = "0000-00-00T00:00:00.000Z";
    let Some(text) = value.as_str() else { return false };
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == SHAPE
}
