//! The table of calls that the document describes.

use serde_json::{Value, json};

use super::schemas;
use crate::web::api::request::{DEFAULT_PAGE, MAX_PAGE};
use crate::web::api::search::MAX_TEXT_CHARS;

/// One call: a method on a path.
pub(super) struct ApiCall {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Body,
    /// The status when it is done, and the schema of what is answered then.
    pub(super) answer: (u16, &'static str),
    /// Whether it can be answered with a stream of events too.
    pub(super) streams: bool,
    /// Statuses when it is not, besides those that any call may have.
    pub(super) failures: &'static [u16],
}

/// What a call takes, by the name of its schema.
pub(super) enum Body {
    None,
    Optional(&'static str),
    Required(&'static str),
}

/// A parameter of a call.
pub(super) struct Parameter {
    name: &'static str,
    place: &'static str,
    description: &'static str,
    schema: Value,
}

impl Parameter {
    /// The session that a path names.
    pub(super) fn session() -> Self {
        Self { place: "path", ..Self::query("id", "The session's id.", schemas::id()) }
    }

    fn query(name: &'static str, description: &'static str, schema: Value) -> Self {
        Self { name, place: "query", description, schema }
    }

    fn header(name: &'static str, description: &'static str, schema: Value) -> Self {
        Self { name, place: "header", description, schema }
    }

    /// As the document shows it.
    pub(super) fn view(&self) -> Value {
        json!({
            "name": self.name,
            "in": self.place,
            "description": self.description,
            "required": self.place == "path",
            "schema": self.schema,
        })
    }
}

/// The calls at each place of the session resources.
pub(super) fn of_sessions() -> Vec<ApiCall> {
    let status = json!({ "type": "string", "enum": ["active", "closed", "expired"] });
    let status =
        Parameter::query("status", "Only these; all that are remembered if absent.", status);
    let listing = call("get", "", "List sessions", (200, "SessionPage"), &[]);
    let active =
        call("get", "/active", "List attached and parked sessions", (200, "SessionPage"), &[]);
    let search = "Look for sessions by a text and a state, the latest first";
    let search = call("get", "/search", search, (200, "SearchPage"), &[]);
    let timeline = "What happened to it lately, and its tokens";
    let create = call("post", "", "Make a session", (201, "NewSession"), &[413]);
    let reconnect = "Renew a session by its token, without attaching";
    let reconnect = call("post", "/{id}/reconnect", reconnect, (200, "Renewal"), &[404, 413, 429]);
    let token = "Get a reconnect token";
    let publish = call("post", "/{id}/events", "Publish events", (200, "Published"), CHANGE);
    let send =
        call("post", "/{id}/messages", "Send a message to the agent", (200, "Entered"), CHANGE);
    let messages = call(
        "get",
        "/{id}/messages",
        "Read what was sent to the agent",
        (200, "MessagePage"),
        LOOK,
    );
    let export =
        call("post", "/{id}/state", "Export the agent's state, sealed", (200, "State"), CHANGE);
    let read = call("get", "/{id}/events", "Read events, or follow them", (200, "EventPage"), LOOK);
    let disconnect = "Cut the connection, keep the session";
    let restart = "End the agent as a crash would, for another to go on";
    vec![
        ApiCall { parameters: vec![status, limit(), after_session()], ..listing },
        ApiCall { parameters: vec![limit(), after_session()], ..active },
        ApiCall { parameters: searching(), ..search },
        ApiCall { body: Body::Optional("ClientInfo"), ..create },
        call("get", "/{id}", "Look at a session, also an ended one", (200, "Session"), &[404]),
        call("delete", "/{id}", "End a session", (200, "Session"), LOOK),
        call("get", "/{id}/health", "How full its buffer is", (200, "Health"), LOOK),
        call("get", "/{id}/timeline", timeline, (200, "Timeline"), &[404]),
        call("post", "/{id}/disconnect", disconnect, (200, "Disconnected"), LOOK),
        call("post", "/{id}/restart", restart, (200, "Restarted"), LOOK),
        call("get", "/{id}/token", token, (200, "Token"), &[404]),
        call("post", "/{id}/token", token, (200, "Token"), &[404]),
        ApiCall { body: Body::Required("Presented"), ..reconnect },
        ApiCall { parameters: reading(), streams: true, ..read },
        ApiCall { body: Body::Required("Events"), parameters: vec![idempotency_key()], ..publish },
        ApiCall { parameters: reading_messages(), ..messages },
        ApiCall { body: Body::Required("Message"), ..send },
        ApiCall { body: Body::Optional("Wanted"), ..export },
    ]
}

/// The calls that are not about one place.
pub(super) fn others() -> Vec<ApiCall> {
    let number = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
    let overview = "Who the caller is and, for an administrator, how the server has been doing";
    let overview = call("get", "/api/overview", overview, (200, "Overview"), &[]);
    let after = Parameter::query("after_ms", "Only samples after this one.", number.clone());
    let audit =
        call("get", "/api/audit", "Read the audit trail, newest first", (200, "AuditPage"), &[]);
    vec![
        ApiCall {
            parameters: vec![
                Parameter::query("session_id", "Only of this session.", schemas::id()),
                limit(),
                Parameter::query("before", "`next` of the page before.", number),
            ],
            ..audit
        },
        ApiCall { parameters: vec![after], ..overview },
        call("get", "/api/openapi.json", "This document", (200, "Document"), &[]),
    ]
}

/// A call on a session that must go on may find it unknown or ended.
const LOOK: &[u16] = &[404, 410];

/// One that brings something may bring too much.
const CHANGE: &[u16] = &[404, 410, 413];

fn call(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    answer: (u16, &'static str),
    failures: &'static [u16],
) -> ApiCall {
    let (parameters, body) = (Vec::new(), Body::None);
    ApiCall { method, path, summary, parameters, body, answer, streams: false, failures }
}

fn limit() -> Parameter {
    let schema = json!({
        "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE,
    });
    Parameter::query("limit", "How many at most.", schema)
}

fn after_session() -> Parameter {
    Parameter::query("after", "`next` of the page before.", schemas::id())
}

fn idempotency_key() -> Parameter {
    let description = "The same key with the same body publishes once.";
    let schema = json!({ "type": "string", "pattern": r"^[!-~]{1,255}$" });
    Parameter::header("Idempotency-Key", description, schema)
}

/// What to look for, and which part of what is found.
fn searching() -> Vec<Parameter> {
    let text = json!({ "type": "string", "maxLength": MAX_TEXT_CHARS });
    let state = json!({ "type": "string", "enum": ["attached", "parked", "closed", "expired"] });
    let offset = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 0 });
    let found_in = "A part of the id, the principal or what the client says of itself.";
    vec![
        Parameter::query("q", found_in, text),
        Parameter::query("state", "Only these; all that are remembered if absent.", state),
        Parameter::query("offset", "How many to pass over.", offset),
        limit(),
    ]
}

/// Where a reader of messages stands, and how long it waits.
fn reading_messages() -> Vec<Parameter> {
    vec![
        Parameter::query("after", "The last in_seq that the reader has.", position()),
        Parameter::query("wait", "How long to wait if there is nothing.", wait()),
    ]
}

fn position() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX, "default": 0 })
}

fn wait() -> Value {
    json!({
        "type": "string",
        "pattern": r"^(0|[0-9]{1,4}ms|[1-5]?[0-9]s|60s|[01]m)$",
        "default": "0s",
    })
}

/// Where a reader stands, and how long it waits.
fn reading() -> Vec<Parameter> {
    let event_id = json!({ "type": "string", "pattern": r"^([A-Za-z0-9_-]{1,32}:[0-9]{1,18})?$" });
    vec![
        Parameter::query("after", "The last seq that the reader has.", position()),
        Parameter::query("epoch", "The epoch that it counts in.", json!({ "type": "string" })),
        Parameter::query("wait", "How long to wait if there is nothing.", wait()),
        Parameter::header("Last-Event-ID", "The id of the last event of a stream.", event_id),
    ]
}
