//! A GET: the session's general stream, or one that broke.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use rejoin_core::record::Record;

use super::event_id::{EventId, Owed, SessionTag};
use super::feed::{Beginning, Feed, Next};
use super::request::{Accepts, Client, not_acceptable};
use super::{McpFailure, OVER, sse};
use crate::mcp::is_primed;
use crate::mcp::logged::StreamName;
use crate::service::Denial;
use crate::web::Front;

/// The header that says where a broken stream stood.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) async fn get(
    client: Client,
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
) -> Result<Response, McpFailure> {
    if !Accepts::of(&headers).events {
        return Err(not_acceptable("Accept must name text/event-stream"));
    }
    let record = client.session(&front, &headers).await?;
    let place = last_place(&record, &headers)?;
    if place.as_ref().is_some_and(is_finished) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let sessions = front.service.sessions();
    let hub = sessions.hubs().of(record.id());
    let revision = hub.revision(&**sessions.store()).await.map_err(Denial::from)?;
    let primed = revision.is_some_and(is_primed).then_some(front.settings.mcp.retry);
    let watch = sessions.watch(record.id());
    let general = StreamName::general();
    let stream = place.as_ref().map_or_else(|| general.clone(), |place| place.stream.clone());
    let replaces = place.is_some() || hub.is_read(&stream);
    let present = hub.enter(sessions, &record, OVER, replaces).await;
    let resumed = place.is_some();
    let (cursor, owed) = match place {
        Some(place) => (place.seq.min(record.head), place.owed),
        None => (hub.general().unwrap_or(record.oldest.previous()), Owed::new()),
    };
    let ends = stream != general;
    let beginning = Beginning { stream, cursor, owed, ends, resumed, present, watch };
    let mut feed = Feed::begin(&front, &record, beginning).until(client.visitor.caller.until);
    let priming = primed.map(|retry| sse::priming(&feed, retry));
    // A stream that ends without a word would make its client ask again and again.
    let first = if resumed { feed.look().await } else { None };
    if matches!(first, Some(Next::End)) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse::respond(feed, priming, first))
}

/// Where a broken stream stood, if the request says so.
fn last_place(record: &Record, headers: &HeaderMap) -> Result<Option<EventId>, McpFailure> {
    let given = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
    let Some(given) = given else { return Ok(None) };
    let place = given.to_str().ok().and_then(EventId::parse);
    let ours = place.filter(|place| place.session == SessionTag::of(record.id()));
    let mut ours = ours.ok_or_else(|| {
        McpFailure::bad("Last-Event-ID is not the id of an event of this session")
    })?;
    if ours.log != record.log {
        // The log it stood in is lost. What is owed and was answered there is said to be gone.
        ours.seq = rejoin_core::Seq::ZERO;
    }
    Ok(Some(ours))
}

/// A stream of requests that owes no answer is over.
fn is_finished(place: &EventId) -> bool {
    place.owed.is_empty() && place.stream != StreamName::general()
}
