//! The in log and the agent's state over HTTP.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, ORIGIN, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use rejoin_core::{InSeq, MessageId, SessionId};
use rejoin_store::{MessagePage, StoredMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::request::{Named, Params, Text, patience};
use crate::access::{CredentialFault, Unauthorized};
use crate::entry::{EntryBody, event_name};
use crate::random;
use crate::service::{Denial, Include};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::OverHttp;

#[derive(Deserialize)]
struct MessageBody {
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
    let MessageBody { content, message_id } = body.object()?;
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

/// Where a reader stands, and how long it waits.
#[derive(Debug, Deserialize)]
pub(super) struct MessagesParams {
    after: Option<u64>,
    wait: Option<String>,
}

/// `GET /sessions/{id}/messages`: a page of what was sent to the agent after a place, as far as it is held.
pub(super) async fn read(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    Params(params): Params<MessagesParams>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (service, wait) = (&front.service, patience(params.wait.as_deref())?);
    let expired = || Unauthorized::from(CredentialFault::Expired);
    let wait = front.patience(&visitor.caller, wait).ok_or_else(expired)?;
    let after = InSeq::new(params.after.unwrap_or_default());
    let page = service.await_messages(&visitor, &id, after, wait).await?;
    // It may have waited for as long as its credential was good.
    front.patience(&visitor.caller, wait).ok_or_else(expired)?;
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((kind, readable_by(&headers), view(&page)).into_response())
}

/// A page of another origin that may open a WebSocket here may read the conversation too, for it knows the
/// session's id. Origins that are not allowed do not come this far.
fn readable_by(request: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = request.get(ORIGIN) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    headers
}

/// A page as JSON. What clients sent is JSON already, and is not read again. `last_in_seq` is where to go on:
/// the last message of the page, or if it is empty the last that there is.
fn view(page: &MessagePage) -> String {
    let mut text = String::from(r#"{"messages":["#);
    for (index, message) in page.messages.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        push(&mut text, message);
    }
    let last = page.messages.last().map(|message| message.entry.in_seq);
    let last = last.unwrap_or(page.record.in_head);
    let written = write!(text, r#"],"last_in_seq":{last}}}"#);
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

fn push(text: &mut String, StoredMessage { entry, covered }: &StoredMessage) {
    let body = EntryBody::for_agent(&entry.body);
    let id = body.message_id.as_ref().map(MessageId::as_str);
    let (event, content) = (event_name(entry.kind), body.content_json());
    let written = write!(
        text,
        r#"{{"in_seq":{},"message_id":{},"event":"{event}","content":{content},"timestamp":"{}","covered":{covered}}}"#,
        entry.in_seq,
        Value::from(id),
        entry.at,
    );
    debug_assert!(written.is_ok(), "a string takes everything");
}

/// An id for a message whose sender gave it none.
fn made_id() -> Result<MessageId, Denial> {
    let random = SessionId::from_random(random::bytes()?);
    let text = random.as_str().replacen("sess_", "msg_", 1);
    MessageId::parse(&text).map_err(|_| Denial::Unavailable)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WantedPage {
    include_memory: Option<bool>,
    include_plan: Option<bool>,
    include_work: Option<bool>,
}

/// `POST /sessions/{id}/state`: the agent's state, sealed for the client to keep and in clear to read.
pub(super) async fn export(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    body: Text,
) -> Result<Json<Value>, Failure> {
    let wanted: WantedPage = body.object_if_any()?;
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
        "state": exported.state,
        "snapshot_time": exported.taken_at.to_string(),
        "expire_after_hours": exported.expire_after_hours(),
        "seq": exported.seq.get(),
    })))
}
