//! Sessions as records: making one, looking at one, ending one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use rejoin_core::Timestamp;
use rejoin_core::record::{Ending, Kind, Record};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::request::{Named, Text, invalid};
use super::tokens::minutes;
use crate::service::{Denial, Visitor, ending, transport_word};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::OverHttp;

/// A session as HTTP shows it.
#[derive(Debug, Serialize)]
pub(super) struct RecordView {
    session_id: Box<str>,
    status: StatusWord,
    /// Why it goes on no longer.
    ended_reason: Option<&'static str>,
    attached: bool,
    transport: Option<&'static str>,
    client: Box<RawValue>,
    principal: Box<str>,
    created_at: String,
    last_activity: String,
    generation: u64,
    reconnect_count: u64,
    last_seq: u64,
    last_acked_seq: u64,
    buffered: u64,
    /// Counts only while no client is attached. Of a session that has ended it is not later than that.
    expires_at: String,
}

/// Whether a session goes on, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StatusWord {
    /// Attached or parked.
    Active,
    /// It was ended, or another goes on in its place.
    Closed,
    /// Its time ran out, whether anybody has noticed yet or not.
    Expired,
}

impl StatusWord {
    pub(super) fn of(record: &Record, now: Timestamp) -> Self {
        match ending(record, now) {
            None => Self::Active,
            Some(Ending::Expired) => Self::Expired,
            Some(Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp) => Self::Closed,
        }
    }
}

impl RecordView {
    /// As it is shown to a caller.
    pub(super) fn of(visitor: &Visitor, record: &Record, now: Timestamp) -> Self {
        Self::called(visitor.shown(&record.about), record, now)
    }

    /// Under this id or name.
    pub(super) fn called(session_id: &str, record: &Record, now: Timestamp) -> Self {
        let about = &record.about;
        Self {
            session_id: session_id.into(),
            status: StatusWord::of(record, now),
            ended_reason: ending(record, now).as_ref().map(ended_reason),
            attached: record.attached.is_some(),
            transport: record.attached.map(transport_word),
            client: client_of(&about.client),
            principal: about.principal.as_str().into(),
            created_at: about.created_at.to_string(),
            last_activity: record.last_activity.to_string(),
            generation: record.generation.get(),
            reconnect_count: record.reconnect_count,
            last_seq: record.head.get(),
            last_acked_seq: record.acked.get(),
            buffered: record.held(),
            expires_at: record.expires_at.to_string(),
        }
    }
}

/// What a record counts in a page of a list: at least what it takes as JSON, but for characters that are
/// escaped.
pub(super) fn shown_bytes(record: &Record) -> usize {
    let about = &record.about;
    512 + about.id.as_str().len() + about.principal.as_str().len() + about.client.len()
}

/// How a session ended, in a word.
fn ended_reason(ending: &Ending) -> &'static str {
    match ending {
        Ending::Closed => "user",
        Ending::CleanedUp => "policy",
        Ending::Expired => "expired",
        Ending::Restored { .. } => "restored",
    }
}

/// What the client said of itself; an empty object if nothing.
fn client_of(stored: &str) -> Box<RawValue> {
    let stored = if stored.is_empty() { "{}" } else { stored };
    RawValue::from_string(stored.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// `POST /sessions`: makes a session before its client connects.
pub(super) async fn create(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    body: Text,
) -> Result<Response, Failure> {
    let client = client_in(body.object_if_any()?)?;
    let service = &front.service;
    let (record, issued) = service.create_with_token(&visitor, Kind::Agent, &client).await?;
    #[derive(Serialize)]
    struct Made<'a> {
        #[serde(flatten)]
        record: RecordView,
        reconnect_token: &'a str,
        expires_in_minutes: Value,
    }
    let made = Made {
        record: RecordView::of(&visitor, &record, service.now()),
        reconnect_token: issued.token.as_str(),
        expires_in_minutes: minutes(&front),
    };
    let location = format!("/api/sessions/{}", record.id());
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(made)).into_response())
}

/// What a body says of the client: its `client`, or if it has none all of it.
fn client_in(mut body: Map<String, Value>) -> Result<String, Denial> {
    match body.remove("client") {
        None => Ok(Value::Object(body).to_string()),
        Some(Value::Null) => Ok("{}".to_owned()),
        Some(client @ Value::Object(_)) => Ok(client.to_string()),
        Some(_) => Err(invalid("`client` must be an object")),
    }
}

/// `GET /sessions/{id}`: one record, also of a session that has ended.
pub(super) async fn one(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<RecordView>, Failure> {
    let record = front.service.session(&visitor, &id).await?;
    Ok(Json(RecordView::of(&visitor, &record, front.service.now())))
}

/// `DELETE /sessions/{id}`: ends it, and shows how it was left. The second time it is gone.
pub(super) async fn end(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<RecordView>, Failure> {
    let record = front.service.end(&visitor, &id).await?;
    Ok(Json(RecordView::of(&visitor, &record, front.service.now())))
}

/// `GET /sessions/{id}/health`: how full its buffer is.
pub(super) async fn health(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<Value>, Failure> {
    let (health, record) = front.service.health(&visitor, &id).await?;
    let age = front.service.now().since(record.about.created_at);
    Ok(Json(json!({
        "session_id": id.as_str(),
        "buffer_size": health.events,
        "buffer_bytes": health.bytes,
        "buffer_usage_percent": health.usage_percent,
        "oldest_event_seq": health.oldest.map(|seq| seq.get()),
        "newest_event_seq": health.newest.map(|seq| seq.get()),
        "unacked_events": health.unacked,
        "session_age_seconds": age.as_secs_f64(),
    })))
}

/// `POST /sessions/{id}/disconnect`: cuts its connection as a network might, and keeps the session.
pub(super) async fn disconnect(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<Value>, Failure> {
    let disconnected = front.service.cut(&visitor, &id).await?;
    Ok(Json(json!({ "session_id": id.as_str(), "disconnected": disconnected })))
}

/// `POST /sessions/{id}/restart`: ends its agent as a crash might, for another one to go on.
pub(super) async fn restart(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<Value>, Failure> {
    let restarted = front.service.restart_agent(&visitor, &id).await?;
    Ok(Json(json!({ "session_id": id.as_str(), "restarted": restarted })))
}
