//! The schemas of what people look at: searches, timelines, the overview.

use serde_json::{Value, json};

use super::schemas::{count, id, list, named, object, or_null, text, time};

/// What is answered.
pub(super) fn answers() -> Vec<(&'static str, Value)> {
    vec![
        ("SearchPage", object(&search_page())),
        ("Moment", moment()),
        ("Timeline", object(&timeline())),
        ("Sample", object(&sample())),
        ("Overview", object(&overview())),
    ]
}

fn search_page() -> Vec<(&'static str, Value)> {
    let counts = ["attached", "parked", "closed", "expired"].map(|state| (state, count()));
    vec![("sessions", list("Session")), ("found", count()), ("counts", object(&counts))]
}

fn moment() -> Value {
    let words = [
        "created",
        "attached",
        "resumed",
        "parked",
        "parked_by_restart",
        "agent_died",
        "restored",
        "closed",
        "expired",
    ];
    let mut moment =
        object(&[("at", time()), ("what", json!({ "enum": words })), ("generation", count())]);
    let properties = &mut moment["properties"];
    properties["transport"] = json!({ "enum": ["websocket", "mcp", "sse", "local", null] });
    properties["away_seconds"] = json!({ "type": ["number", "null"], "minimum": 0 });
    properties["replayed"] = count();
    properties["lost"] = count();
    properties["gap"] = json!({ "oneOf": [{ "type": "null" }, named("Gap")] });
    properties["status"] = text();
    properties["stderr"] = json!({ "type": ["array", "null"], "items": text() });
    moment
}

fn timeline() -> Vec<(&'static str, Value)> {
    let token = object(&[
        ("state", json!({ "enum": ["live", "used", "expired"] })),
        ("expires_at", time()),
        ("used_at", or_null(time())),
    ]);
    vec![
        ("session_id", id()),
        ("since", time()),
        ("moments", list("Moment")),
        ("tokens", json!({ "type": "array", "items": token })),
    ]
}

fn counts() -> Value {
    json!({ "type": "array", "items": count() })
}

fn sample() -> Vec<(&'static str, Value)> {
    vec![
        ("at_ms", count()),
        ("attached", count()),
        ("parked", count()),
        ("reconnects", json!({ "type": "object", "additionalProperties": count() })),
        ("away", counts()),
        ("replayed", count()),
        ("lost", count()),
        ("commits", json!({ "oneOf": [{ "type": "null" }, counts()] })),
        ("buffered_bytes", count()),
    ]
}

fn overview() -> Vec<(&'static str, Value)> {
    let bounds = json!({ "type": "array", "items": { "type": "number" } });
    let whole = object(&[
        ("interval_seconds", count()),
        ("away_bounds", bounds.clone()),
        ("commit_bounds", json!({ "oneOf": [{ "type": "null" }, bounds] })),
        ("samples", list("Sample")),
        ("present", named("Sample")),
    ]);
    let boolean = || json!({ "type": "boolean" });
    let caller = object(&[("principal", text()), ("admin", boolean())]);
    vec![
        ("server_version", or_null(text())),
        ("started_at", or_null(time())),
        ("now", or_null(time())),
        ("authentication", boolean()),
        ("caller", json!({ "oneOf": [{ "type": "null" }, caller] })),
        ("whole_server", json!({ "oneOf": [{ "type": "null" }, whole] })),
    ]
}
