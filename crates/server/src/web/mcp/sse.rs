//! A feed as server-sent events.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;

use super::feed::{Feed, Next};

/// Says nothing, so that whatever stands between does not take the stream for dead.
pub(super) const KEEP_ALIVE: &str = ": nothing new\n\n";

/// What the head of every stream says.
pub(super) const STREAM_HEAD: [(HeaderName, &str); 3] = [
    (CONTENT_TYPE, "text/event-stream"),
    (CACHE_CONTROL, "no-cache, no-transform"),
    (HeaderName::from_static("x-accel-buffering"), "no"),
];

/// Whoever's stream was taken over should not come back for it: the two would fight.
const STAY_AWAY: Duration = Duration::from_secs(60 * 60);

/// The empty event with which a stream begins where the revision has that: from then on the client knows
/// where it stands. Its place is to be asked for before anything is taken from the feed.
pub(super) fn priming(place: &str, retry: Duration) -> String {
    format!("id: {place}\nretry: {}\ndata: \n\n", retry.as_millis())
}

/// A stream that begins with `opening` and `first`.
pub(super) fn respond(feed: Feed, opening: Option<String>, first: Option<Next>) -> Response {
    let mut text = opening.unwrap_or_default();
    let more = first.is_none_or(|next| write(&mut text, next));
    let begun = Some(text).filter(|text| !text.is_empty());
    let writing = SseWriting { feed, begun, more };
    (STREAM_HEAD, Body::from_stream(unfold(writing, SseWriting::next))).into_response()
}

struct SseWriting {
    feed: Feed,
    /// What was written before anybody took it.
    begun: Option<String>,
    more: bool,
}

impl SseWriting {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(begun) = self.begun.take() {
            return Some((Ok(begun.into()), self));
        }
        if !self.more {
            return None;
        }
        let mut text = String::new();
        self.more = write(&mut text, self.feed.next().await);
        if text.is_empty() { None } else { Some((Ok(text.into()), self)) }
    }
}

/// Writes what comes next; says whether anything may follow.
fn write(text: &mut String, next: Next) -> bool {
    match next {
        Next::Messages(messages) => {
            for (id, message) in messages {
                put(text, format_args!("event: message\nid: {id}\ndata: {message}\n\n"));
            }
            true
        }
        Next::Quiet => {
            text.push_str(KEEP_ALIVE);
            true
        }
        Next::Replaced => {
            put(text, format_args!("retry: {}\n\n", STAY_AWAY.as_millis()));
            false
        }
        Next::End => false,
    }
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let written = text.write_fmt(line);
    debug_assert!(written.is_ok(), "a string takes everything");
}
