//! Reading a stream of a server, and where it stood when it broke.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};

use super::talk::Talk;
use crate::mcp::upstream::WAITS;
use crate::sse_parser::{Parser, SseEvent};

/// The longest that a server may have us wait before we come back for a stream.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Where a stream stood when it broke.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The last id that the server gave.
    pub(super) last: Option<String>,
    /// When it wants us to come back.
    retry: Duration,
    /// Attempts to go on that brought nothing.
    pub(super) failures: usize,
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) struct Stream {
    body: Incoming,
    parser: Parser,
    /// Events that have come and were not taken, the last first.
    waiting: Vec<SseEvent>,
}

/// What comes of a stream.
#[derive(Debug)]
pub(super) enum Next {
    /// A message.
    Message(String),
    /// Nothing more: it ended or broke.
    End,
    /// A message over the limit.
    TooLong,
}

/// Whether a server has begun a stream.
pub(super) fn is_stream(answer: &Response<Incoming>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    answer.status() == StatusCode::OK && kind.starts_with("text/event-stream")
}

impl Stream {
    pub(super) fn of(talk: &Talk, answer: Response<Incoming>) -> Self {
        let parser = Parser::new(talk.max_bytes);
        Self { body: answer.into_body(), parser, waiting: Vec::new() }
    }

    /// The next message. What it says of its place is noted.
    pub(super) async fn next(&mut self, place: &mut Place) -> Next {
        loop {
            while let Some(event) = self.waiting.pop() {
                place.note(&event);
                if let Some(message) = event.message() {
                    return Next::Message(message.to_owned());
                }
            }
            let Some(Ok(frame)) = self.body.frame().await else { return Next::End };
            let Some(bytes) = frame.data_ref() else { continue };
            match self.parser.push(bytes) {
                Ok(events) => self.waiting.extend(events.into_iter().rev()),
                Err(_) => return Next::TooLong,
            }
        }
    }
}

impl Place {
    fn note(&mut self, event: &SseEvent) {
        self.failures = 0;
        self.retry = event.retry.unwrap_or(self.retry);
        match event.id.as_deref() {
            Some("") => self.last = None, // so a server takes its ids back
            Some(id) => self.last = Some(id.to_owned()),
            None => {}
        }
    }

    /// Waits until it is time to come back.
    pub(super) async fn pause(&mut self) {
        let ours = WAITS[self.failures.min(WAITS.len() - 1)];
        self.failures += 1;
        tokio::time::sleep(self.retry.min(LONGEST_RETRY).max(ours)).await;
    }
}
