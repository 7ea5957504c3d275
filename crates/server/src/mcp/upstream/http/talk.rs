//! What is said to a server, in which words.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Builder;
use hyper::{Method, Response, StatusCode};
use rejoin_core::SessionId;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::refusal::{self, Knowledge, Refusal};
use crate::mcp::message::{Kind, Message, RequestId, read};
use crate::mcp::own_words::request;
use crate::mcp::upstream::{Heard, Theirs, WAITS};
use crate::outward::{NoAnswer, Server};

const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const LAST_EVENT_ID: &str = "last-event-id";

/// How long a server may take to say that it has got what needs no answer.
const TAKING: Duration = Duration::from_secs(30);

/// How long it may take to be told that a session is over.
const LEAVING: Duration = Duration::from_secs(2);

/// One conversation with a server: one session of it.
#[derive(Debug)]
pub(super) struct Talk {
    server: Arc<Server>,
    incoming: mpsc::Sender<Heard>,
    /// Our own session, for the log.
    pub(super) session: SessionId,
    pub(super) max_bytes: usize,
    /// What the server calls the session, if it does.
    pub(super) theirs: Theirs,
    /// The revision that was agreed upon.
    revision: OnceLock<HeaderValue>,
    /// Whether the session is from before, and the server has not shown yet that it still knows it.
    unconfirmed: AtomicBool,
}

/// How a part of a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// The server has forgotten the session.
    Forgotten,
}

/// Why a message has no answer.
#[derive(Debug)]
pub(super) enum Undelivered {
    /// It certainly was not taken, though that was tried for a while.
    NotTaken(Box<str>),
    /// It may have been.
    Broken,
}

impl Talk {
    pub(super) fn new(
        server: Arc<Server>,
        incoming: mpsc::Sender<Heard>,
        session: SessionId,
        max_bytes: usize,
    ) -> Self {
        let (theirs, revision) = (Theirs::default(), OnceLock::new());
        let unconfirmed = AtomicBool::new(false);
        Self { server, incoming, session, max_bytes, theirs, revision, unconfirmed }
    }

    /// Waits until nobody listens any more.
    pub(super) async fn closed(&self) {
        self.incoming.closed().await;
    }

    /// Passes on what was heard.
    pub(super) async fn pass_on(&self, heard: Heard) {
        let _ = self.incoming.send(heard).await; // the link may have been closed
    }

    /// Whether the server has a session to forget.
    pub(super) fn has_session(&self) -> bool {
        self.theirs.get().is_some()
    }

    /// Notes what the answer to `initialize` says before anything else is sent.
    pub(super) fn note_session(&self, answer: &Response<Incoming>) {
        let theirs = answer.headers().get(SESSION_ID).and_then(|theirs| theirs.to_str().ok());
        if let Some(theirs) = theirs {
            let _ = self.theirs.set(theirs.into()); // it is asked once
        }
    }

    /// Goes on with a session that the server may have from before.
    pub(super) fn go_on(&self, theirs: Box<str>, revision: &str) {
        let _ = self.theirs.set(theirs); // nothing was asked yet
        if let Ok(revision) = HeaderValue::from_str(revision) {
            let _ = self.revision.set(revision);
        }
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the server has a session to forget, as far as it has shown.
    pub(super) fn knowledge(&self) -> Knowledge {
        match (self.has_session(), self.unconfirmed.load(Ordering::Relaxed)) {
            (false, _) => Knowledge::None,
            (true, true) => Knowledge::Unconfirmed,
            (true, false) => Knowledge::Confirmed,
        }
    }

    /// Asks the server for something that does nothing, to see whether it still has a session. Nothing if it answers;
    /// else the id of that request, and what it was refused with.
    pub(super) async fn ping_refused(&self) -> Option<(RequestId, StatusCode, Option<String>)> {
        let id = RequestId::text("rejoin-ping");
        let ping = Message::parse(&request(&id, "ping", None)).ok()?;
        let answer = timeout(TAKING, self.post(&ping)).await.ok()?.ok()?;
        let status = answer.status();
        if !status.is_client_error() {
            return None;
        }
        let body = timeout(TAKING, refusal::body_of(answer, self.max_bytes)).await.ok()?;
        Some((id, status, body))
    }

    /// Notes the revision that the answer to `initialize` names.
    pub(super) fn note_revision(&self, answer: &Message) {
        #[derive(Default, Deserialize)]
        struct Agreed {
            #[serde(rename = "protocolVersion")]
            revision: String,
        }
        let agreed: Agreed = read(answer.result());
        if let Ok(revision) = HeaderValue::from_str(&agreed.revision) {
            let _ = self.revision.set(revision); // it is asked once
        }
    }

    /// Posts a message, again and again for a while if the server can't take it.
    pub(super) async fn post(&self, message: &Message) -> Result<Response<Incoming>, Undelivered> {
        let mut waits = WAITS.iter();
        loop {
            let request = self.request(Method::POST, "application/json, text/event-stream");
            let request = request.header(CONTENT_TYPE, "application/json");
            let why = match self.server.send(request, message.text().to_owned()).await {
                Ok(answer)
                    if has_no_room(&answer) || (is_away(&answer) && may_be_said_twice(message)) =>
                {
                    format!("it answered {}", answer.status().as_u16())
                }
                Ok(answer) => {
                    if answer.status().is_success() {
                        self.unconfirmed.store(false, Ordering::Relaxed);
                    }
                    return Ok(answer);
                }
                Err(NoAnswer::Broken) => return Err(Undelivered::Broken),
                Err(why @ NoAnswer::NoConnection) => why.to_string(),
            };
            tracing::warn!(session = %self.session, why, "an MCP server can't be reached");
            let Some(wait) = waits.next() else { return Err(Undelivered::NotTaken(why.into())) };
            sleep(*wait).await;
        }
    }

    /// Posts what needs no answer.
    pub(super) async fn tell(&self, message: &Message) -> Ended {
        let told = tokio::select! {
            told = timeout(TAKING, self.post(message)) => told,
            () = self.closed() => return Ended::Well,
        };
        let session = &self.session;
        match told {
            Ok(Ok(answer)) if answer.status().is_success() => return Ended::Well,
            Ok(Ok(answer)) => {
                let status = answer.status().as_u16();
                match refusal::of(self, answer, None).await {
                    Refusal::Forgotten | Refusal::ForgottenMeanwhile => return Ended::Forgotten,
                    Refusal::Said(_) | Refusal::Refused(_) | Refusal::Failed => {}
                }
                tracing::warn!(%session, status, "an MCP server refused a message");
            }
            Ok(Err(_)) | Err(_) => tracing::warn!(%session, "an MCP server took no message"),
        }
        Ended::Well
    }

    /// Opens a stream: the general one, or one that goes on after an event.
    pub(super) async fn get(&self, after: Option<&str>) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = self.request(Method::GET, "text/event-stream");
        if let Some(Ok(after)) = after.map(HeaderValue::from_str) {
            request = request.header(LAST_EVENT_ID, after);
        }
        self.server.send(request, Vec::new()).await
    }

    /// Tells the server that the session is over.
    pub(super) async fn take_leave(&self) {
        if self.has_session() {
            let request = self.request(Method::DELETE, "application/json");
            let _ = timeout(LEAVING, self.server.send(request, Vec::new())).await; // out of courtesy
        }
    }

    fn request(&self, method: Method, accept: &'static str) -> Builder {
        let mut request = self.server.request(method).header(ACCEPT, accept);
        if let Some(Ok(mut theirs)) = self.theirs.get().map(|name| HeaderValue::from_str(name)) {
            theirs.set_sensitive(true);
            request = request.header(SESSION_ID, theirs);
        }
        if let Some(revision) = self.revision.get() {
            request = request.header(PROTOCOL_VERSION, revision);
        }
        request
    }
}

/// Answers of a server, or of what stands before it, that has not looked at the request.
fn has_no_room(answer: &Response<Incoming>) -> bool {
    let says_when = || answer.headers().contains_key(RETRY_AFTER);
    answer.status() == StatusCode::TOO_MANY_REQUESTS || (is_away(answer) && says_when())
}

/// A proxy says so of a server that it can't reach, but some also of one that died over the request.
fn is_away(answer: &Response<Incoming>) -> bool {
    answer.status() == StatusCode::SERVICE_UNAVAILABLE
}

/// Whatever is no request of the client, whose ids are numbers here, and what begins a session.
fn may_be_said_twice(message: &Message) -> bool {
    match message.kind() {
        Kind::Request { id, method } => id.as_number().is_none() || &**method == "initialize",
        Kind::Notification { .. } | Kind::Response { .. } => true,
    }
}
