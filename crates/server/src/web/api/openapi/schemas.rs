//! The schemas of what is taken and answered.

use rejoin_core::codes::{ErrorCode, Reason};
use rejoin_core::limits::{MAX_ID_CHARS, NAMED_ID_EXTRA_CHARS};
use serde_json::{Map, Value, json};

use super::looking;

/// A schema by its name.
pub(super) fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The id of a session, or the name that its client chose.
pub(super) fn id() -> Value {
    let longest = MAX_ID_CHARS + NAMED_ID_EXTRA_CHARS;
    json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._~-]{{1,{longest}}}$") })
}

/// The id of a message: whatever its sender likes.
fn message_id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128 })
}

/// All of them.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in answers().into_iter().chain(looking::answers()).chain(requests()) {
        all.insert(name.to_owned(), schema);
    }
    all
}

/// What is answered.
fn answers() -> Vec<(&'static str, Value)> {
    let token = [("reconnect_token", text()), ("expires_in_minutes", json!({ "type": "number" }))];
    let session = session();
    let new_session: Vec<_> = session.iter().cloned().chain(token.clone()).collect();
    let handed_out: Vec<_> = [("session_id", id())].into_iter().chain(token.clone()).collect();
    let renewal = [
        ("success", json!({ "const": true })),
        ("session_id", id()),
        ("message", text()),
        ("reconnect_count", count()),
        ("generation", count()),
    ];
    let renewal: Vec<_> = renewal.into_iter().chain(token).collect();
    vec![
        ("Session", object(&session)),
        ("NewSession", object(&new_session)),
        ("Token", object(&handed_out)),
        ("Renewal", object(&renewal)),
        ("SessionPage", object(&[("sessions", list("Session")), ("next", or_null(id()))])),
        ("Health", object(&health())),
        (
            "Disconnected",
            object(&[("session_id", id()), ("disconnected", json!({ "type": "boolean" }))]),
        ),
        ("Restarted", object(&[("session_id", id()), ("restarted", json!({ "type": "boolean" }))])),
        ("Envelope", object(&envelope())),
        ("Gap", gap()),
        ("EventPage", object(&event_page())),
        (
            "Published",
            object(&[("epoch", text()), ("first_seq", or_null(count())), ("last_seq", count())]),
        ),
        (
            "Entered",
            object(&[
                ("message_id", message_id()),
                ("in_seq", count()),
                ("duplicate", json!({ "type": "boolean" })),
            ]),
        ),
        ("StoredMessage", object(&stored_message())),
        ("MessagePage", object(&[("messages", list("StoredMessage")), ("last_in_seq", count())])),
        ("State", object(&state())),
        ("AuditRecord", object(&audit_record())),
        ("AuditPage", object(&[("records", list("AuditRecord")), ("next", or_null(count()))])),
        ("Failure", failure()),
        ("Document", json!({ "type": "object", "required": ["openapi", "paths"] })),
    ]
}

/// A message that was sent to the agent.
fn stored_message() -> Vec<(&'static str, Value)> {
    vec![
        ("in_seq", count()),
        ("message_id", or_null(message_id())),
        ("event", json!({ "type": "string", "enum": ["user.message", "user.cancel"] })),
        ("content", json!({})),
        ("timestamp", text()),
        ("covered", json!({ "type": "boolean" })),
    ]
}

/// What is taken.
fn requests() -> Vec<(&'static str, Value)> {
    let flag = || json!({ "type": ["boolean", "null"], "default": true });
    let object_or_null = || json!({ "type": ["object", "null"] });
    vec![
        (
            "ClientInfo",
            json!({
                "description": "What the client says of itself: `client`, or if that is absent all of it.",
                "type": "object",
                "properties": { "client": object_or_null() },
            }),
        ),
        (
            "Presented",
            json!({ "type": "object", "required": ["token"], "properties": { "token": text() } }),
        ),
        (
            "Message",
            json!({
                "type": "object",
                "required": ["content"],
                "properties": { "content": {}, "message_id": or_null(message_id()) },
            }),
        ),
        (
            "Wanted",
            json!({
                "type": "object",
                "properties": {
                    "include_memory": flag(), "include_plan": flag(), "include_work": flag(),
                },
            }),
        ),
        ("Event", event()),
        ("SetState", set_state()),
        (
            "Events",
            json!({
                "description": "One, or several that are stored together. In an array, a `state` \
                                must come with the last event.",
                "oneOf": [
                    named("Event"),
                    named("SetState"),
                    { "type": "array", "minItems": 1, "items": named("Event") },
                ],
            }),
        ),
    ]
}

fn event() -> Value {
    json!({
        "type": "object",
        "required": ["event"],
        "properties": {
            "event": {
                "description": "Any name but the server's own.",
                "type": "string",
                "pattern": r"^(?!system\.|session\.|user\.)[!#-\[\]-~]{1,128}$",
                "not": { "enum": rejoin_core::event_body::RESERVED },
            },
            "content": {},
            "metadata": { "type": ["object", "null"] },
            "state": { "description": "The agent's state after the event." },
            "in_seq": or_null(count()),
        },
    })
}

fn set_state() -> Value {
    json!({
        "description": "Sets the agent's state and says nothing.",
        "type": "object",
        "required": ["event", "content"],
        "properties": {
            "event": { "const": "session.state" },
            "content": {},
            "in_seq": or_null(count()),
        },
    })
}

fn session() -> Vec<(&'static str, Value)> {
    vec![
        ("session_id", id()),
        ("status", json!({ "enum": ["active", "closed", "expired"] })),
        ("ended_reason", json!({ "enum": ["user", "policy", "expired", "restored", null] })),
        ("attached", json!({ "type": "boolean" })),
        ("transport", json!({ "enum": ["websocket", "mcp", "sse", "local", null] })),
        ("client", json!({ "type": "object" })),
        ("principal", text()),
        ("created_at", time()),
        ("last_activity", time()),
        ("generation", count()),
        ("reconnect_count", count()),
        ("last_seq", count()),
        ("last_acked_seq", count()),
        ("buffered", count()),
        ("expires_at", time()),
    ]
}

fn health() -> Vec<(&'static str, Value)> {
    vec![
        ("session_id", id()),
        ("buffer_size", count()),
        ("buffer_bytes", count()),
        ("buffer_usage_percent", json!({ "type": "number", "minimum": 0 })),
        ("oldest_event_seq", or_null(count())),
        ("newest_event_seq", or_null(count())),
        ("unacked_events", count()),
        ("session_age_seconds", json!({ "type": "number", "minimum": 0 })),
    ]
}

fn envelope() -> Vec<(&'static str, Value)> {
    vec![
        ("event", text()),
        ("session_id", id()),
        ("seq", count()),
        ("event_id", text()),
        ("timestamp", time()),
        ("metadata", json!({ "type": "object" })),
    ]
}

fn event_page() -> Vec<(&'static str, Value)> {
    vec![
        ("epoch", text()),
        ("events", list("Envelope")),
        ("last_seq", count()),
        ("gap", json!({ "oneOf": [{ "type": "null" }, named("Gap")] })),
    ]
}

fn gap() -> Value {
    let range = json!({
        "type": ["object", "null"],
        "required": ["from", "to"],
        "properties": { "from": count(), "to": count() },
    });
    object(&[
        ("from", or_null(count())),
        ("to", or_null(count())),
        ("reason", json!({ "enum": ["evicted", "position_unknown"] })),
        ("lost", range),
    ])
}

fn state() -> Vec<(&'static str, Value)> {
    vec![
        ("session_id", id()),
        ("signed_state", text()),
        ("state", json!({ "type": "object" })),
        ("state_size", count()),
        ("snapshot_time", time()),
        ("expire_after_hours", json!({ "type": "number", "minimum": 0 })),
        ("seq", count()),
    ]
}

fn audit_record() -> Vec<(&'static str, Value)> {
    let reasons: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    vec![
        ("at", time()),
        ("session_id", or_null(id())),
        ("principal", text()),
        ("address", or_null(text())),
        ("transport", text()),
        ("action", text()),
        ("success", json!({ "type": "boolean" })),
        ("reason", json!({ "enum": reasons })),
    ]
}

fn failure() -> Value {
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let reasons: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    json!({
        "type": "object",
        "required": ["detail"],
        "properties": {
            "detail": { "description": "A sentence to act on.", "type": "string" },
            "error_code": { "enum": codes },
            "reason": { "enum": reasons },
        },
    })
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

pub(super) fn or_null(schema: Value) -> Value {
    let mut schema = schema;
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

pub(super) fn list(of: &str) -> Value {
    json!({ "type": "array", "items": named(of) })
}

/// An object that has all of these members.
pub(super) fn object(members: &[(&'static str, Value)]) -> Value {
    let required: Vec<_> = members.iter().map(|(name, _)| *name).collect();
    let properties: Map<_, _> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}
