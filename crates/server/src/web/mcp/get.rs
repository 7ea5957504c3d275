//! A GET: the session's general stream, or one that broke.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use rejoin_core::record::Record;
use rejoin_core::{Seq, SessionId};

use super::event_id::{EventId, Owed, SessionTag};
use super::feed::{Beginning, Feed, Next};
use super::request::{Accepts, Client, named_session, not_acceptable, revision};
use super::{McpFailure, OVER, modern, sse};
use crate::mcp::is_primed;
use crate::mcp::logged::StreamName;
use crate::service::{Denial, Visitor};
use crate::web::Front;

/// The header that says where a broken stream stood.
pub(super) const LAST_EVENT_ID: &str = "last-event-id";

pub(super) async fn get(
    client: Client,
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
) -> Result<Response, McpFailure> {
    modern::check_has_sessions(&headers)?;
    if !Accepts::of(&headers).events {
        return Err(not_acceptable("Accept must name text/event-stream"));
    }
    match headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) {
        None => open(&client, &front, &headers).await,
        Some(given) => {
            let (id, given, visitor) = (named_session(&headers)?, given.clone(), &client.visitor);
            let (named, by, before) = (id.clone(), visitor.clone(), Arc::clone(&front));
            let resuming = async move { resume(&by, &before, &headers, &named, &given).await };
            Ok(front.service.come_back(visitor, &id, resuming).await?)
        }
    }
}

/// Opens the general stream.
async fn open(
    client: &Client,
    front: &Arc<Front>,
    headers: &HeaderMap,
) -> Result<Response, McpFailure> {
    let record = client.session(front, headers).await?;
    let sessions = front.service.sessions();
    let hub = sessions.hubs().of(record.id());
    let stream = StreamName::general();
    let changes = sessions.store().changes(record.id());
    let present = hub.enter(sessions, &record, OVER, hub.is_read(&stream)).await;
    let cursor = hub.general().unwrap_or(record.oldest.previous());
    let (owed, suspects_loss, ends) = (Owed::new(), false, false);
    let beginning = Beginning { stream, cursor, owed, ends, suspects_loss, present, changes };
    let feed = Feed::begin(front, &record, beginning).read_by(front, &client.visitor.caller);
    let priming = priming(front, headers, &named_session(headers)?, &record, &feed).await?;
    Ok(sse::respond(feed, priming, None))
}

/// Goes on with a stream that broke.
async fn resume(
    visitor: &Visitor,
    front: &Arc<Front>,
    headers: &HeaderMap,
    id: &SessionId,
    given: &HeaderValue,
) -> Result<Response, Denial> {
    let (record, left) = front.service.mcp_session_and_left(visitor, id).await?;
    let EventId { session, stream, seq, owed, .. } = last_place(&record, &left, given)?;
    let moved = session != SessionTag::of(record.id());
    let ends = stream != StreamName::general();
    if ends && owed.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // What it is named by may be another name of a session that its client went over to.
    let (sessions, id) = (front.service.sessions(), record.id());
    let changes = sessions.store().changes(id);
    let hub = sessions.hubs().of(id);
    let anew = hub.is_read(&stream) || !hub.has_readers();
    let present = front.service.be_there_again(&record, OVER, anew).await?;
    let cursor = seq.min(record.head);
    let beginning = Beginning { stream, cursor, owed, ends, suspects_loss: true, present, changes };
    let feed = Feed::begin(front, &record, beginning).read_by(front, &visitor.caller);
    let mut feed = if moved { feed.moved_from(session) } else { feed };
    let priming = priming(front, headers, id, &record, &feed).await?;
    let first = feed.look().await;
    front.service.count_stream_return(&record, replayed(first.as_ref()), 0);
    // A stream that ends without a word would make its client ask again and again.
    if matches!(first, Some(Next::End)) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse::respond(feed, priming, first))
}

/// The event with which a stream begins, where the revision has that.
async fn priming(
    front: &Front,
    headers: &HeaderMap,
    named: &SessionId,
    record: &Record,
    feed: &Feed,
) -> Result<Option<String>, Denial> {
    let revision = revision(front, headers, named, record).await?;
    let retry = front.settings.mcp.retry;
    Ok(revision.as_deref().is_some_and(is_primed).then(|| sse::priming(&feed.place(), retry)))
}

/// How many messages a stream goes on with.
fn replayed(first: Option<&Next>) -> u64 {
    match first {
        Some(Next::Messages(messages)) => messages.len() as u64,
        Some(Next::Quiet | Next::Replaced | Next::End) | None => 0,
    }
}

/// Where a broken stream stood: in the session, or in one that its client has `left` for it.
fn last_place(record: &Record, left: &[SessionId], given: &HeaderValue) -> Result<EventId, Denial> {
    let place = given.to_str().ok().and_then(EventId::parse);
    let is_of = |id: &SessionId, place: &EventId| place.session == SessionTag::of(id);
    let known = |place: &EventId| {
        is_of(record.id(), place) || left.iter().any(|id| is_of(id, place)) // whose last answer is here
    };
    let wrong = "Last-Event-ID is not the id of an event of this session";
    let mut ours = place.filter(known).ok_or_else(|| Denial::Invalid(wrong.into()))?;
    if ours.log != record.log || !is_of(record.id(), &ours) {
        // The log it stood in is gone. What is owed and was answered there is said to be gone too.
        ours.seq = Seq::ZERO;
    }
    Ok(ours)
}
