//! A call as an HTTP answer. Its status says what went wrong, so the head waits for the first thing to say:
//! an answer that comes first is JSON; anything else, or silence, begins a stream. How long the client
//! waits for the head is bounded in `early.rs`.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{once, unfold};

use super::failure::denied;
use super::run::{Answer, CallStep, Run};
use crate::mcp::message::RequestId;
use crate::service::Denial;
use crate::web::mcp::request::Accepts;
pub(super) use crate::web::mcp::sse::{KEEP_ALIVE, STREAM_HEAD};

/// An event of a stream. It has no id: a stream of this revision can't be gone on with.
pub(super) fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// A result that needs no waiting.
pub(super) fn json_answer(id: &RequestId, result: &str) -> Response {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Answers a call.
pub(super) async fn respond(mut run: Run, accepts: Accepts) -> Response {
    loop {
        match run.step().await {
            CallStep::Done(Answer { status, text }) if accepts.json => {
                return json(run, status, text);
            }
            CallStep::Done(Answer { text, .. }) => return stream(run, event(&text), false),
            CallStep::Tell(text) if accepts.streams() => return stream(run, event(&text), true),
            CallStep::Quiet if accepts.streams() => {
                return stream(run, KEEP_ALIVE.to_owned(), true);
            }
            CallStep::Tell(_) | CallStep::Quiet => {}
            CallStep::Broken => {
                return denied(Denial::Unavailable).answering(Some(run.id())).into_response();
            }
        }
    }
}

/// A call that is being written.
struct CallWriting {
    run: Run,
    /// What is written first.
    begun: Option<String>,
    /// Whether anything follows.
    more: bool,
}

/// JSON in one piece, whose length is known before. It counts as written when the connection takes it.
fn json(run: Run, status: StatusCode, text: String) -> Response {
    let length = text.len().to_string();
    let body = Body::from_stream(once(async move {
        let mut run = run;
        run.finish();
        Ok::<_, Infallible>(Bytes::from(text))
    }));
    let head = [(CONTENT_TYPE, "application/json"), (CONTENT_LENGTH, &length)];
    (status, head, body).into_response()
}

fn stream(run: Run, begun: String, more: bool) -> Response {
    let writing = CallWriting { run, begun: Some(begun), more };
    (STREAM_HEAD, Body::from_stream(unfold(writing, CallWriting::next))).into_response()
}

impl CallWriting {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(begun) = self.begun.take() {
            return Some((Ok(begun.into()), self));
        }
        if !self.more {
            self.run.finish(); // who asks for more has taken the answer
            return None;
        }
        let text = match self.run.step().await {
            CallStep::Tell(text) => event(&text),
            CallStep::Quiet => KEEP_ALIVE.to_owned(),
            CallStep::Done(Answer { text, .. }) => {
                self.more = false;
                event(&text)
            }
            CallStep::Broken => return None,
        };
        Some((Ok(text.into()), self))
    }
}
