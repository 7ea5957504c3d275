//! What a backend says in its response: events, one a line or one a server-sent event.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use rejoin_core::SessionId;
use tokio::time::timeout;

use crate::agent::{Saying, Seat, Voice};
use crate::agents::{AgentCounts, Ignored, LONGEST_EVENT, publication_of};
use crate::child::stray::StrayLog;
use crate::error::PublishError;
use crate::limits::SAYINGS_ON_THEIR_WAY;
use crate::sse_parser::Parser;

/// What a response without events may bring before it is read no further.
const ANSWER_BYTES: usize = 64 * 1024;

/// How a response brings its events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Events {
    /// One a line.
    Lines,
    /// One a server-sent event.
    Sse,
}

/// What a response is.
pub(super) enum ResponseKind {
    Events(Events),
    /// Something else, or nothing.
    Other,
}

impl ResponseKind {
    pub(super) fn of(response: &Response<Incoming>) -> Self {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match kind.to_ascii_lowercase().as_str() {
            "application/x-ndjson" => Self::Events(Events::Lines),
            "text/event-stream" => Self::Events(Events::Sse),
            _ => Self::Other,
        }
    }
}

/// Why the rest of a response is not heard.
#[derive(Debug)]
pub(super) enum Failed {
    /// It broke, or brought nothing for too long.
    Response(&'static str),
    /// The session takes nothing more.
    Publish,
}

/// Reads a response, and publishes what it says.
pub(super) struct ResponseReader {
    body: Incoming,
    parts: TextCutter,
    voice: Voice,
    idle_timeout: Duration,
    /// Texts that came and were not published yet.
    texts: VecDeque<Vec<u8>>,
    /// What is on its way to the store.
    sayings: VecDeque<Saying>,
    ended: bool,
    session: SessionId,
    stray: StrayLog,
}

impl ResponseReader {
    pub(super) fn new(
        response: Response<Incoming>,
        events: Events,
        seat: &Seat,
        idle_timeout: Duration,
    ) -> Self {
        let parts = match events {
            Events::Lines => TextCutter::Lines(LineCutter::default()),
            Events::Sse => TextCutter::Sse(Parser::new(LONGEST_EVENT)),
        };
        let (texts, sayings) = (VecDeque::new(), VecDeque::new());
        Self {
            body: response.into_body(),
            parts,
            voice: seat.voice(),
            idle_timeout,
            texts,
            sayings,
            ended: false,
            session: seat.session().clone(),
            stray: StrayLog::default(),
        }
    }

    /// Publishes all that comes until the response is complete. Nothing is lost or said twice if it is
    /// dropped and called again.
    pub(super) async fn until_end(&mut self, counts: &AgentCounts) -> Result<(), Failed> {
        loop {
            self.publish_texts(counts).await.map_err(|_| Failed::Publish)?;
            if self.ended {
                return Ok(());
            }
            match self.next_bytes().await? {
                Some(bytes) => self.texts.extend(self.parts.push(&bytes)?),
                None => {
                    self.ended = true;
                    self.texts.extend(self.parts.rest());
                }
            }
        }
    }

    /// Waits until all that was said is stored.
    pub(super) async fn settle(mut self) -> Result<(), PublishError> {
        while let Some(saying) = self.sayings.front_mut() {
            saying.published().await?;
            self.sayings.pop_front();
        }
        Ok(())
    }

    async fn next_bytes(&mut self) -> Result<Option<Bytes>, Failed> {
        loop {
            let frame = timeout(self.idle_timeout, self.body.frame()).await;
            let silent = Failed::Response("its response brought no byte for too long");
            match frame.map_err(|_| silent)? {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(_)) => return Err(Failed::Response("its response broke")),
                None => return Ok(None),
            }
        }
    }

    /// While too much is on its way nothing more is read, so that a backend that talks faster than the store
    /// takes is slowed down.
    async fn publish_texts(&mut self, counts: &AgentCounts) -> Result<(), PublishError> {
        while let Some(text) = self.texts.front() {
            while self.sayings.len() >= SAYINGS_ON_THEIR_WAY
                && let Some(oldest) = self.sayings.front_mut()
            {
                oldest.published().await?;
                self.sayings.pop_front();
            }
            match publication_of(text) {
                Ok(None) => {}
                Ok(Some(publication)) => {
                    // Taken out before it is said: it is in the driver's queue once this returns, and not
                    // there if this is dropped.
                    let permit = self.voice.reserve().await?;
                    self.sayings.push_back(permit.say(publication));
                }
                Err(Ignored { why, shown }) => {
                    counts.ignored_lines.fetch_add(1, Ordering::Relaxed);
                    if let Some(left_out) = self.stray.admit(Instant::now()) {
                        let (session, text) = (&self.session, shown.as_deref());
                        tracing::warn!(target: "rejoin::agent", %session, why, text, left_out, "ignored an event of a response");
                    }
                }
            }
            self.texts.pop_front();
        }
        Ok(())
    }
}

/// Whether a response brings nothing but white space. It is read to its end for the sake of its connection,
/// if that is not far.
pub(super) async fn is_empty(
    response: Response<Incoming>,
    idle_timeout: Duration,
) -> Result<bool, &'static str> {
    let (mut body, mut read, mut empty) = (response.into_body(), 0, true);
    while read < ANSWER_BYTES {
        let frame = timeout(idle_timeout, body.frame()).await;
        match frame.map_err(|_| "its response brought no byte for too long")? {
            Some(Ok(frame)) => {
                let bytes = frame.into_data().unwrap_or_default();
                read += bytes.len();
                empty &= bytes.trim_ascii().is_empty();
            }
            Some(Err(_)) => return Err("its response broke"),
            None => break,
        }
    }
    Ok(empty)
}

/// Cuts bytes into texts.
enum TextCutter {
    Lines(LineCutter),
    Sse(Parser),
}

impl TextCutter {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failed> {
        match self {
            Self::Lines(lines) => Ok(lines.push(bytes)),
            Self::Sse(parser) => {
                let events = parser.push(bytes);
                let events = events.map_err(|_| Failed::Response("an event of it is too long"))?;
                let data = events.iter().filter_map(|event| event.data());
                Ok(data.map(|data| data.as_bytes().to_vec()).collect())
            }
        }
    }

    /// What follows the last line break of a complete response is a line too.
    fn rest(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Lines(lines) => Some(std::mem::take(&mut lines.line)),
            Self::Sse(_) => None,
        }
    }
}

/// Lines, out of whatever pieces the network makes of them. One that is too long is cut off, and so no JSON.
#[derive(Debug, Default)]
struct LineCutter {
    /// What came of the line that has no end yet.
    line: Vec<u8>,
}

impl LineCutter {
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (LONGEST_EVENT + 1).saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            if part.ends_with(b"\n") {
                whole.push(std::mem::take(&mut self.line));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_are_cut() {
        let mut parts = TextCutter::Lines(LineCutter::default());
        let mut texts = Vec::new();
        for piece in ["{\"a\"", ":1}\n{}\r\n\n", "last"] {
            texts.extend(parts.push(piece.as_bytes()).unwrap());
        }
        texts.extend(parts.rest());
        let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
        assert_eq!(texts, ["{\"a\":1}\n", "{}\r\n", "\n", "last"]);
    }

    #[test]
    fn a_line_that_never_ends_takes_no_more_than_the_longest_event() {
        let mut lines = LineCutter::default();
        for _ in 0..10 {
            assert!(lines.push(&vec![b'x'; 1 << 20]).is_empty());
        }
        assert!(lines.line.len() <= LONGEST_EVENT + 1);
        let whole = lines.push(b"\n{}\n");
        assert!(publication_of(&whole[0]).is_err());
        assert!(publication_of(&whole[1]).is_err(), "it has no name");
    }
}
