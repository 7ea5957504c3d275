//! An agent behind a URL: each entry is POSTed to it, and it answers in the response or publishes by HTTP.
//!
//! The body is `{session_id, event, message_id, in_seq, content, state}`, `event` being `user.message`
//! or `user.cancel` and `state` the session's as it is then; it is signed if there is a secret. A response
//! of 2xx may bring events, as NDJSON or as server-sent events, for as long as it likes. The entry is covered
//! by an `in_seq` in one of them, or by the complete end of the response. Anything else, or a response that
//! breaks or brings no byte for the idle timeout, and the entry is delivered again, for as long as the session
//! lives; what has come is kept.
//!
//! Entries come in order and one at a time: there is never a second request while a response is open. A
//! cancel that comes while events are being sent ends that response: its entry counts as dealt with, and the
//! cancel is delivered next, before messages that were sent earlier and wait.

mod response;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Response};
use rejoin_core::MessageId;
use rejoin_core::log::EntryKind;
use rejoin_core::page::StoredEntry;
use rejoin_core::worker::Publication;
use rejoin_store::Unavailable;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use self::response::{Events, Failed, ResponseKind, ResponseReader};
use crate::agent::{Agent, Seat};
use crate::entry::{EntryBody, event_name};
use crate::outward::{BadUrl, Server};
use crate::signing::{SIGNATURE, signature};

/// The wait after the first attempt that failed; it doubles with each …
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// … up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long a response may bring no byte, unless somebody says otherwise.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Hands the entries of every session to one backend.
#[derive(Debug)]
pub struct Http {
    server: Server,
    secret: Option<Secret>,
    idle_timeout: Duration,
}

/// What signs requests. It is shown nowhere.
struct Secret(Arc<[u8]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Http {
    /// The backend at this URL, with scheme `http` or `https`.
    pub fn new(url: &str) -> Result<Self, BadUrl> {
        Ok(Self { server: Server::new(url)?, secret: None, idle_timeout: IDLE_TIMEOUT })
    }

    /// Ends a response that brings no byte for so long, in place of a minute.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Signs each request with this, as hooks are signed.
    #[must_use]
    pub fn secret(mut self, secret: &[u8]) -> Self {
        self.secret = Some(Secret(secret.into()));
        self
    }
}

/// What is POSTed.
#[derive(Serialize)]
struct Delivery<'a> {
    session_id: &'a str,
    event: &'static str,
    message_id: Option<&'a str>,
    in_seq: u64,
    content: Option<&'a RawValue>,
    state: Option<&'a RawValue>,
}

#[async_trait]
impl Agent for Http {
    async fn run(&self, seat: Seat) {
        let mut run = BackendRun { http: self, seat, waiting: VecDeque::new() };
        if let Err(Stopped::Failed(unavailable)) = run.work().await {
            tracing::warn!(session = %run.seat.session(), %unavailable, "an agent stops");
        }
    }

    /// The backend outlives this process, and knows entries by their numbers.
    fn begins_early(&self) -> bool {
        false
    }
}

/// The work of one session.
struct BackendRun<'a> {
    http: &'a Http,
    seat: Seat,
    /// Entries that came while a response was open.
    waiting: VecDeque<StoredEntry>,
}

/// Why there is nothing more to do.
enum Stopped {
    /// The session is over, another process runs it, or there is nothing to do.
    Told,
    Failed(Unavailable),
}

/// What became of one request.
enum RequestOutcome {
    /// The response came to its end.
    Complete,
    /// A cancel ended it.
    Cancelled,
    /// It was not taken, or the response broke.
    Again,
}

impl BackendRun<'_> {
    async fn work(&mut self) -> Result<(), Stopped> {
        loop {
            let entry = match self.waiting.pop_front() {
                Some(entry) => entry,
                None => self.seat.next().await.ok_or(Stopped::Told)?,
            };
            self.deliver(&entry).await?;
        }
    }

    /// Delivers an entry until it is covered.
    async fn deliver(&mut self, entry: &StoredEntry) -> Result<(), Stopped> {
        let mut wait = FIRST_WAIT;
        while !self.is_covered(entry).await? {
            self.seat.busy.store(true, Ordering::Release);
            let outcome = self.attempt(entry).await;
            self.seat.busy.store(false, Ordering::Release);
            match outcome? {
                RequestOutcome::Complete | RequestOutcome::Cancelled => {
                    return self.cover(entry).await;
                }
                RequestOutcome::Again => {}
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                () = self.seat.stopped() => return Err(Stopped::Told),
            }
        }
        Ok(())
    }

    /// One request, and all that its response brings.
    async fn attempt(&mut self, entry: &StoredEntry) -> Result<RequestOutcome, Stopped> {
        let response = tokio::select! {
            response = self.request(entry) => response?,
            () = self.seat.stopped() => return Err(Stopped::Told),
        };
        let response = match response {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => {
                let why = format!("it answered {}", response.status().as_u16());
                return Ok(self.not_taken(entry, &why));
            }
            Err(why) => return Ok(self.not_taken(entry, &why)),
        };
        match ResponseKind::of(&response) {
            ResponseKind::Events(events) => self.hear(entry, response, events).await,
            ResponseKind::Other => self.drain(entry, response).await,
        }
    }

    /// Sends it, and returns when the response begins; or says why none does.
    async fn request(
        &self,
        entry: &StoredEntry,
    ) -> Result<Result<Response<Incoming>, String>, Stopped> {
        let state = self.seat.state().await?;
        let body = delivery(&self.seat, entry, state.as_ref().map(|state| &*state.body));
        let mut request = self
            .http
            .server
            .request(Method::POST)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/x-ndjson, text/event-stream, */*;q=0.1");
        if let Some(Secret(secret)) = &self.http.secret {
            request = request.header(SIGNATURE, signature(secret, &body, self.seat.now()));
        }
        let sending = timeout(self.http.idle_timeout, self.http.server.send(request, body));
        Ok(match sending.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err(format!("it did not answer within {:?}", self.http.idle_timeout)),
        })
    }

    /// Publishes the events of a response as they come, until it ends or a cancel comes.
    async fn hear(
        &mut self,
        entry: &StoredEntry,
        response: Response<Incoming>,
        events: Events,
    ) -> Result<RequestOutcome, Stopped> {
        let counts = Arc::clone(&self.seat.shared.agent_counts);
        let mut heard = ResponseReader::new(response, events, &self.seat, self.http.idle_timeout);
        let outcome = loop {
            tokio::select! {
                biased; // a cancel is of use only before the end
                next = self.seat.next() => match next {
                    Some(cancel) if cancel.kind == EntryKind::Cancel => {
                        self.waiting.push_front(cancel);
                        break RequestOutcome::Cancelled;
                    }
                    Some(message) => self.waiting.push_back(message),
                    None => return Err(Stopped::Told),
                },
                end = heard.until_end(&counts) => match end {
                    Ok(()) => break RequestOutcome::Complete,
                    Err(Failed::Publish) => return Err(Stopped::Told),
                    Err(Failed::Response(why)) => break self.not_taken(entry, why),
                },
            }
        };
        match heard.settle().await {
            Ok(()) => Ok(outcome),
            Err(_) => Err(Stopped::Told), // the session is over, or another process runs it
        }
    }

    /// Reads a response that brings no events: it should bring nothing.
    async fn drain(
        &self,
        entry: &StoredEntry,
        response: Response<Incoming>,
    ) -> Result<RequestOutcome, Stopped> {
        let reading = response::is_empty(response, self.http.idle_timeout);
        let empty = tokio::select! {
            empty = reading => empty,
            () = self.seat.stopped() => return Err(Stopped::Told),
        };
        match empty {
            Ok(true) => Ok(RequestOutcome::Complete),
            Ok(false) => {
                let counts = &self.seat.shared.agent_counts;
                counts.bad_responses.fetch_add(1, Ordering::Relaxed);
                let (session, in_seq) = (self.seat.session(), entry.in_seq);
                tracing::error!(
                    %session, %in_seq,
                    "agent response body ignored: neither application/x-ndjson nor text/event-stream"
                );
                Ok(RequestOutcome::Complete)
            }
            Err(why) => Ok(self.not_taken(entry, why)),
        }
    }

    fn not_taken(&self, entry: &StoredEntry, why: &str) -> RequestOutcome {
        let (session, in_seq) = (self.seat.session(), entry.in_seq);
        tracing::warn!(%session, %in_seq, why, "a backend has not taken an entry");
        RequestOutcome::Again
    }

    /// The backend may cover an entry itself when it publishes.
    async fn is_covered(&self, entry: &StoredEntry) -> Result<bool, Stopped> {
        let waiting =
            self.seat.shared.store.entries(self.seat.session(), entry.in_seq.previous(), 1);
        let next = waiting.await?.into_iter().next();
        Ok(next.is_none_or(|next| next.in_seq != entry.in_seq))
    }

    /// Covers an entry: with all before it, or alone if some of those wait.
    async fn cover(&self, entry: &StoredEntry) -> Result<(), Stopped> {
        if self.is_covered(entry).await? {
            return Ok(());
        }
        let overtook = self.waiting.iter().any(|waits| waits.in_seq < entry.in_seq);
        let covers = match overtook {
            true => Publication { answered: vec![entry.in_seq], ..Publication::default() },
            false => Publication { in_seq: Some(entry.in_seq), ..Publication::default() },
        };
        let covered = self.seat.publish(covers).await;
        covered.map(drop).map_err(|_| Stopped::Told) // the session is over, or another process runs it
    }
}

impl From<Unavailable> for Stopped {
    fn from(unavailable: Unavailable) -> Self {
        Self::Failed(unavailable)
    }
}

fn delivery(seat: &Seat, entry: &StoredEntry, state: Option<&[u8]>) -> Vec<u8> {
    let body = EntryBody::for_agent(&entry.body);
    let delivery = Delivery {
        session_id: seat.session().as_str(),
        event: event_name(entry.kind),
        message_id: body.message_id.as_ref().map(MessageId::as_str),
        in_seq: entry.in_seq.get(),
        content: body.content.as_deref(),
        state: state.and_then(|state| serde_json::from_slice(state).ok()),
    };
    let text = serde_json::to_vec(&delivery);
    debug_assert!(text.is_ok(), "strings, numbers and checked JSON can always be written");
    text.unwrap_or_default()
}
