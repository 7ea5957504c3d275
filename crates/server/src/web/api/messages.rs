//! The in log and the agent's state over HTTP.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::{MessageId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::request::{Named, Text};
use crate::entry::EntryBody;
use crate::random;
use crate::service::{Denial, Include};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::OverHttp;

#[derive(Deserialize)]
struct Message {
    content: Box<RawValue>,
    message_id: Option<String>,
}

/// `POST /sessions/{id}/messages`: enters a message for the agent, once.
pub(super) async fn send(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    body: Text,
) -> Result<Json<Value>, Failure> {
    let Message { content, message_id } = body.object()?;
    if content.get() == "null" {
        return Err(Denial::Invalid("`content` is missing".into()).into());
    }
    let message_id = match message_id {
        Some(given) => MessageId::parse(&given)
            .map_err(|error| Denial::Invalid(format!("`message_id`: {error}").into()))?,
        None => made_id()?,
    };
    let entry = EntryBody { content: Some(content), message_id: Some(message_id.clone()) };
    let entered = front.service.send(&visitor, &id, entry).await?;
    Ok(Json(json!({
        "message_id": message_id.as_str(),
        "in_seq": entered.in_seq.get(),
        "duplicate": entered.duplicate,
    })))
}

/// An id for a message whose sender gave it none.
fn made_id() -> Result<MessageId, Denial> {
    let random = SessionId::from_random(random::bytes()?);
    let text = random.as_str().replacen("sess_", "msg_", 1);
    MessageId::parse(&text).map_err(|_| Denial::Unavailable)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wanted {
    include_memory: Option<bool>,
    include_plan: Option<bool>,
    include_work: Option<bool>,
}

/// `POST /sessions/{id}/state`: the agent's state, sealed for the client to keep.
pub(super) async fn export(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    body: Text,
) -> Result<Json<Value>, Failure> {
    let wanted: Wanted = body.object_if_any()?;
    let include = Include {
        memory: wanted.include_memory.unwrap_or(true),
        plan: wanted.include_plan.unwrap_or(true),
        work: wanted.include_work.unwrap_or(true),
    };
    let exported = front.service.export(&visitor, &id, include).await?;
    Ok(Json(json!({
        "session_id": id.as_str(),
        "state_size": exported.signed_state.len(),
        "signed_state": exported.signed_state,
        "snapshot_time": exported.taken_at.to_string(),
        "expire_after_hours": exported.expire_after_hours(),
        "seq": exported.seq.get(),
    })))
}
