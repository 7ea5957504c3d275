//! The out log as a stream of server-sent events. The reader observes: it attaches nothing and
//! supersedes nobody. One page is read when the socket has taken the one before, so a slow reader
//! costs a page of memory and holds nobody up.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use rejoin_core::SessionId;

use super::events::gap_view;
use crate::event::Envelopes;
use crate::service::{Observed, Place, Visitor};
use crate::web::Front;

/// Says nothing, so that whatever stands between does not take the stream for dead.
const KEEP_ALIVE: &str = ": nothing new\n\n";

/// The stream, beginning with what was observed first.
pub(super) fn respond(
    front: Arc<Front>,
    visitor: Visitor,
    id: SessionId,
    first: Observed,
) -> Response {
    let place = first.place();
    let reader = StreamReader { front, visitor, id, place, first: Some(first) };
    let headers = [(CONTENT_TYPE.as_str(), "text/event-stream"), ("x-accel-buffering", "no")];
    (headers, Body::from_stream(unfold(reader, StreamReader::next))).into_response()
}

struct StreamReader {
    front: Arc<Front>,
    visitor: Visitor,
    id: SessionId,
    place: Place,
    first: Option<Observed>,
}

impl StreamReader {
    /// The next piece of the stream; nothing once the session has ended, the caller may not look any
    /// more, the server closes, or the store does not work. A client that asks again is told which.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let observed = match self.first.take() {
            Some(first) => first,
            None => self.look_on().await?,
        };
        self.place = observed.place();
        Some((Ok(Bytes::from(page(&self.visitor, &observed))), self))
    }

    async fn look_on(&self) -> Option<Observed> {
        let service = &self.front.service;
        if service.is_closing() {
            return None;
        }
        let keep_alive = self.front.settings.sse_keep_alive;
        let patience = self.front.patience(&self.visitor.caller, keep_alive)?;
        service.await_events(&self.visitor, &self.id, &self.place, patience).await.ok()
    }
}

/// What was observed, as server-sent events: their ids are positions, their data envelopes.
fn page(visitor: &Visitor, observed: &Observed) -> String {
    let Observed { events, gap, record } = observed;
    if events.is_empty() && gap.is_none() {
        return KEEP_ALIVE.to_owned();
    }
    let (mut text, epoch) = (String::new(), &record.epoch);
    let mut put = |line: std::fmt::Arguments<'_>| {
        let written = text.write_fmt(line);
        debug_assert!(written.is_ok(), "a string takes everything");
    };
    if let Some(gap) = gap {
        // Who has this knows of the gap, and stands behind it.
        let behind = events.first().map_or(record.head, |event| event.seq.previous());
        put(format_args!("event: gap\nid: {epoch}:{behind}\ndata: {}\n\n", gap_view(gap)));
    }
    let mut envelopes = Envelopes::of(visitor.shown(&record.about), record.log);
    for event in events {
        let data = envelopes.envelope(event, false);
        put(format_args!("id: {epoch}:{}\ndata: {data}\n\n", event.seq));
    }
    text
}
