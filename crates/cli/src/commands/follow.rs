//! A session's events as an observer sees them, over as many connections as it takes: it comes back
//! with the id of the last event, also to a server that was started again.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use rejoin_core::SessionId;
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use super::failure::Failure;
use super::line::Event;
use super::records::Record;
use super::sse::{Message, Parser};

/// A stream that brings nothing for so long, not even a sign of life, is taken for dead.
const SILENCE: Duration = Duration::from_secs(60);

/// The waits between attempts; the last one repeats.
const WAITS: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What a follower sees.
#[derive(Debug)]
pub(crate) enum Seen {
    /// An event, and the envelope that it came in.
    Event(Event, String),
    /// Events that were not seen are gone, as the server puts it.
    Gap(Value),
    /// The server is not there, and is being waited for.
    Lost(Failure),
    /// It is there again.
    Back,
}

/// Follows one session.
pub(crate) struct Follower<'a> {
    api: &'a Api,
    id: &'a SessionId,
    /// The id of the last event seen.
    place: String,
    stream: Option<EventConnection>,
    /// Attempts that came to nothing since the last stream.
    failures: usize,
    /// Whether anything was ever followed: what fails before that is told at once.
    begun: bool,
}

/// An open connection.
struct EventConnection {
    body: Incoming,
    parser: Parser,
    whole: VecDeque<Message>,
}

impl<'a> Follower<'a> {
    /// Follows from right after the event `after`; `None` stands for the newest there is.
    pub(crate) async fn after(
        api: &'a Api,
        id: &'a SessionId,
        after: Option<u64>,
    ) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Page {
            epoch: String,
        }
        let record: Record = api.ask(Method::GET, id, "").await?;
        // Only with its epoch is a number a place.
        let page: Page =
            api.ask(Method::GET, id, &format!("/events?after={}", record.last_seq)).await?;
        let place = format!("{}:{}", page.epoch, after.unwrap_or(record.last_seq));
        Ok(Self { api, id, place, stream: None, failures: 0, begun: false })
    }

    /// What comes next. That the session has ended is a failure like others that last.
    pub(crate) async fn next(&mut self) -> Result<Seen, Failure> {
        loop {
            let Some(stream) = &mut self.stream else {
                match self.open().await? {
                    Some(seen) => return Ok(seen),
                    None => continue,
                }
            };
            match stream.next().await {
                Some(message) => {
                    self.failures = 0;
                    return self.see(message);
                }
                None => self.stream = None,
            }
        }
    }

    /// Opens a stream, or says why there is none yet.
    async fn open(&mut self) -> Result<Option<Seen>, Failure> {
        if self.failures > 0 {
            tokio::time::sleep(WAITS[(self.failures - 1).min(WAITS.len() - 1)]).await;
        }
        // Counted until the stream brings something: one that ends at once is no way to come back.
        self.failures += 1;
        let was_lost = self.begun && self.failures > 1;
        match self.api.events(self.id, Some(&self.place)).await {
            Ok(body) => {
                self.stream = Some(EventConnection::of(body));
                self.begun = true;
                Ok(was_lost.then_some(Seen::Back))
            }
            Err(failure) if self.begun && failure.may_pass() => {
                Ok((!was_lost).then_some(Seen::Lost(failure)))
            }
            Err(failure) => Err(failure),
        }
    }

    fn see(&mut self, message: Message) -> Result<Seen, Failure> {
        let strange = |error: serde_json::Error| Failure::Strange {
            url: self.api.url().to_owned(),
            why: error.to_string(),
        };
        let seen = match message.event.as_str() {
            "gap" => Seen::Gap(serde_json::from_str(&message.data).map_err(strange)?),
            _ => Seen::Event(serde_json::from_str(&message.data).map_err(strange)?, message.data),
        };
        if let Some(id) = message.id {
            self.place = id;
        }
        Ok(seen)
    }
}

impl EventConnection {
    fn of(body: Incoming) -> Self {
        Self { body, parser: Parser::default(), whole: VecDeque::new() }
    }

    /// The next event; nothing when the stream is at its end, however it came to that.
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.whole.pop_front() {
                return Some(message);
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame()).await.ok()??.ok()?;
            if let Ok(data) = frame.into_data() {
                self.whole.extend(self.parser.push(&data).ok()?);
            }
        }
    }
}
