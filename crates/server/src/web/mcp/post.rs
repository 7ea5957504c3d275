//! A POST: messages for the server behind, answered on a stream of their own.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rejoin_core::log::EntryKind;
use rejoin_core::record::{Kind as SessionKind, Record};
use rejoin_core::{InSeq, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::event_id::Owed;
use super::feed::{Beginning, Feed, Next};
use super::request::{Accepts, Client, messages, named_session, not_acceptable, receive, revision};
use super::{McpFailure, OVER, SESSION_ID, early, modern, sse};
use crate::limits;
use crate::mcp::logged::{Entry, StreamName};
use crate::mcp::message::{Kind, Message, RequestId, read};
use crate::mcp::own_words::{RpcError, code};
use crate::mcp::{WITH_BATCHES, handshake_too_large, is_primed, uses_token};
use crate::random;
use crate::service::{Denial, Service, Visitor};
use crate::sessions::Sessions;
use crate::web::Front;
use crate::web::receiving::{Received, RequestPlace};

/// Bytes of what a client says of itself that are kept in a session's record …
const MOST_ABOUT: usize = 4 * 1024;

/// … and if it says more, characters of its name and of its version.
const MOST_NAME: usize = 256;

/// The request with which a client begins.
const INITIALIZE: &str = "initialize";

pub(super) async fn post(
    client: Client,
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, McpFailure> {
    let accepts = Accepts::of(&headers);
    if !accepts.events && !accepts.json {
        return Err(not_acceptable("Accept must name application/json or text/event-stream"));
    }
    let Received { bytes: body, place } = receive(&front, request).await?;
    let (messages, batch) = messages(&headers, &body)?;
    if modern::is_modern(&headers, &body) {
        drop(body);
        return modern::post(client, &front, &headers, accepts, (messages, batch), place).await;
    }
    let messages = negotiated(&front, messages)?;
    let begins = messages.iter().any(|message| message.method() == Some(INITIALIZE));
    if begins && batch {
        return Err(McpFailure::bad("`initialize` comes alone"));
    }
    if begins {
        drop(body);
        return initialize(&client, &front, &headers, accepts, messages, place).await;
    }
    let record = client.session(&front, &headers).await?;
    let had = record.id().clone();
    let taken = match take(&client, &front, &headers, accepts, record, (messages, batch)).await {
        Err(failure) if failure.is_gone() => match client.session(&front, &headers).await {
            // Its client has just gone over to another one: the id names that now.
            Ok(record) if *record.id() != had => {
                let messages = self::messages(&headers, &body)?;
                take(&client, &front, &headers, accepts, record, messages).await
            }
            Ok(_) | Err(_) => Err(failure),
        },
        taken => taken,
    };
    drop((body, place)); // from here on it is the store that has it
    taken?.respond().await
}

/// Messages as the server behind gets them.
fn negotiated(front: &Front, messages: Vec<Message>) -> Result<Vec<Message>, McpFailure> {
    let revisions = &front.settings.mcp.revisions;
    messages.into_iter().map(|message| revisions.negotiated(message)).collect()
}

/// Takes messages, which may be a batch, for a session that goes on.
async fn take(
    client: &Client,
    front: &Arc<Front>,
    headers: &HeaderMap,
    accepts: Accepts,
    record: Record,
    (messages, batch): (Vec<Message>, bool),
) -> Result<PostTaken, McpFailure> {
    let revision = revision(front, headers, &named_session(headers)?, &record).await?;
    if batch && revision.as_deref() != Some(WITH_BATCHES) {
        return Err(McpFailure::bad("batches are of revision 2025-03-26 only"));
    }
    let primed = revision.as_deref().is_some_and(is_primed);
    let (front, visitor) = (Arc::clone(front), client.visitor.clone());
    let call = PostedCall { front: Arc::clone(&front), visitor, record, accepts, batch, primed };
    match messages.len() {
        0 | 1 => call.take(messages).await, // entered by the session's driver, or not at all
        _ => whole(&front, call.take(messages)).await,
    }
}

/// Does what a call begins with to its end: messages that came together are entered together.
async fn whole<T: Send + 'static>(
    front: &Front,
    work: impl Future<Output = Result<T, McpFailure>> + Send + 'static,
) -> Result<T, McpFailure> {
    front.service.sessions().finish(|_| work).await.map_err(Denial::from)?
}

/// A session begins: it is stored, and the server behind is asked.
async fn initialize(
    client: &Client,
    front: &Arc<Front>,
    headers: &HeaderMap,
    accepts: Accepts,
    messages: Vec<Message>,
    place: RequestPlace,
) -> Result<Response, McpFailure> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Hello<'a> {
        protocol_version: String,
        #[serde(borrow)]
        client_info: Option<&'a RawValue>,
    }
    if headers.contains_key(SESSION_ID) {
        return Err(McpFailure::bad(
            "a session that has begun can't begin again: leave Mcp-Session-Id out",
        ));
    }
    let Some(Kind::Request { id, .. }) = messages.first().map(Message::kind) else {
        return Err(McpFailure::bad("`initialize` is a request, so it has an id"));
    };
    let said = messages[0].params().map_or(0, |params| params.get().len());
    if said > limits::HANDSHAKE_BYTES {
        let denial = Denial::TooLarge(handshake_too_large().into());
        return Err(McpFailure::from(denial).answering(Some(id)));
    }
    let hello: Hello<'_> = messages[0].read_params();
    let about = about(hello.client_info);
    let primed = is_primed(&hello.protocol_version);
    let (front, visitor, id) = (Arc::clone(front), client.visitor.clone(), id.clone());
    let own = Arc::clone(&front);
    let begun = whole(&own, async move {
        let made = front.service.create(&visitor, SessionKind::Mcp, &about, None).await;
        let record = made.map_err(|denial| McpFailure::from(denial).answering(Some(&id)))?;
        let name = HeaderValue::from_str(record.id().as_str());
        let call = PostedCall { front, visitor, record, accepts, batch: false, primed };
        Ok((call.take(messages).await?, name))
    });
    let (begun, name) = begun.await?;
    drop(place);
    let mut response = begun.respond().await?;
    if let Ok(name) = name {
        response.headers_mut().insert(HeaderName::from_static(SESSION_ID), name);
    }
    Ok(response)
}

/// What a session is known by in lists, of what its client says of itself. All of that is stored with the
/// handshake; this is held in memory for every session.
pub(super) fn about(client: Option<&RawValue>) -> String {
    #[derive(Default, Deserialize, Serialize)]
    #[serde(default)]
    struct Short {
        name: String,
        version: String,
    }
    let Some(client) = client else { return "{}".to_owned() };
    if client.get().len() <= MOST_ABOUT {
        return client.get().to_owned();
    }
    let Short { name, version } = read(Some(client));
    let cut = |text: String| text.chars().take(MOST_NAME).collect();
    serde_json::to_string(&Short { name: cut(name), version: cut(version) }).unwrap_or_default()
}

/// Messages that came together.
struct PostedCall {
    front: Arc<Front>,
    visitor: Visitor,
    record: Record,
    accepts: Accepts,
    batch: bool,
    primed: bool,
}

/// Messages that were taken, and the stream of what answers them.
enum PostTaken {
    /// None of them is answered.
    Accepted,
    /// What was not entered is refused.
    Answered { call: Box<PostedCall>, feed: Box<Feed>, refused: Vec<String> },
}

impl PostTaken {
    async fn respond(self) -> Result<Response, McpFailure> {
        match self {
            Self::Accepted => Ok(StatusCode::ACCEPTED.into_response()),
            Self::Answered { call, feed, refused } => call.respond(*feed, refused).await,
        }
    }
}

impl PostedCall {
    async fn take(self, messages: Vec<Message>) -> Result<PostTaken, McpFailure> {
        let is_request = |message: &Message| matches!(message.kind(), Kind::Request { .. });
        let asks = messages.iter().any(is_request);
        let bytes = random::bytes().map_err(Denial::from)?;
        let stream = match self.accepts.streams() {
            true => StreamName::from_random(bytes),
            false => StreamName::answers_only(bytes),
        };
        if !asks {
            self.enter(messages, &stream).await?;
            return Ok(PostTaken::Accepted);
        }
        self.check_open(&messages)?;
        let sessions = self.front.service.sessions();
        let hub = sessions.hubs().of(self.record.id());
        let present = hub.enter(sessions, &self.record, OVER, false).await;
        let changes = sessions.store().changes(self.record.id());
        let Entered { owed, refused } = self.enter(messages, &stream).await?;
        let cursor = self.record.head; // whatever answers it comes after that
        let beginning =
            Beginning { stream, cursor, owed, ends: true, suspects_loss: false, present, changes };
        let feed = Feed::begin(&self.front, &self.record, beginning);
        let feed = Box::new(feed.read_by(&self.front, &self.visitor.caller));
        Ok(PostTaken::Answered { call: Box::new(self), feed, refused })
    }

    async fn respond(self, feed: Feed, refused: Vec<String>) -> Result<Response, McpFailure> {
        if self.accepts.streams() {
            let retry = self.front.settings.mcp.retry;
            let priming = self.primed.then(|| sse::priming(&feed.first_place(), retry));
            // In one event, for nobody remembers them: no connection can break between them.
            let first = (!refused.is_empty()).then(|| vec![(feed.place(), together(refused))]);
            let first = first.map(Next::Messages);
            return Ok(sse::respond(feed, priming, first));
        }
        let (keep_alive, batch) = (self.front.settings.sse_keep_alive, self.batch);
        if let Some(early) = self.accepts.early() {
            let answering = async move {
                let answered = answer_as_json(feed, refused, batch).await;
                answered.unwrap_or_else(IntoResponse::into_response)
            };
            return Ok(early::respond(Some(early), answering, keep_alive).await);
        }
        answer_as_json(feed, refused, batch).await
    }

    /// While the server goes down no new call begins.
    fn check_open(&self, messages: &[Message]) -> Result<(), McpFailure> {
        let service: &Service = &self.front.service;
        let id = messages.iter().find_map(|message| match message.kind() {
            Kind::Request { id, .. } => Some(id),
            Kind::Notification { .. } | Kind::Response { .. } => None,
        });
        let open = service.check_open();
        open.map_err(|denial| McpFailure::from(denial).answering(id))
    }

    /// Enters messages in the in log. What was entered of a batch runs, so if there is no room for the rest
    /// each request of that is refused by itself.
    async fn enter(
        &self,
        messages: Vec<Message>,
        stream: &StreamName,
    ) -> Result<Entered, McpFailure> {
        let sessions = self.front.service.sessions();
        let mut entered = Entered::default();
        let mut full: Option<Denial> = None;
        for (index, message) in messages.into_iter().enumerate() {
            let id = request_id(&message);
            let entering = Entering { stream, from: self.visitor.address };
            let outcome = match full.clone() {
                Some(denial) => Err(denial),
                None => enter(sessions, self.record.id(), message, entering).await,
            };
            match (outcome, id) {
                (Ok(in_seq), id) => entered.owed.extend(id.map(|id| (in_seq, id))),
                (Err(denial), id) if index == 0 => {
                    return Err(McpFailure::from(denial).answering(id.as_ref()));
                }
                (Err(denial), id) => {
                    let refusal = McpFailure::from(denial.clone()).answering(id.as_ref());
                    entered.refused.extend(id.map(|_| refusal.body()));
                    full = Some(denial);
                }
            }
        }
        Ok(entered)
    }
}

/// What became of messages that came together.
#[derive(Default)]
struct Entered {
    /// Those that are owed an answer.
    owed: Owed,
    /// Answers to those that were not entered.
    refused: Vec<String>,
}

/// How a message came, and where what answers it goes.
pub(super) struct Entering<'a> {
    pub(super) stream: &'a StreamName,
    pub(super) from: Option<IpAddr>,
}

/// Enters a message in the in log of a session.
pub(super) async fn enter(
    sessions: &Sessions,
    session: &SessionId,
    message: Message,
    Entering { stream, from }: Entering<'_>,
) -> Result<InSeq, Denial> {
    let (process, stream) = (sessions.process().clone(), stream.clone());
    let (from, message) = match (uses_token(&message), sessions.service()) {
        (true, Some(service)) => (from, service.conceal_arguments(session, &message)?),
        (_, _) => (None, message),
    };
    let body = Entry { process, stream, from, message }.to_body();
    let (hub, store) = (sessions.hubs().of(session), sessions.store());
    if store.is_paused() {
        return Err(Denial::paused());
    }
    let _open = hub.go_through().await;
    let sent = sessions.send(session, EntryKind::Message, None, body);
    Ok(store.unless_stalled(sent).await?.in_seq)
}

pub(super) fn request_id(message: &Message) -> Option<RequestId> {
    match message.kind() {
        Kind::Request { id, .. } => Some(id.clone()),
        Kind::Notification { .. } | Kind::Response { .. } => None,
    }
}

/// The server goes down, or somebody cut the connection, before there was an answer.
fn interrupted() -> McpFailure {
    let sentence = "the connection was ended before there was an answer";
    let error = RpcError::new(code::UNAVAILABLE, sentence).because("interrupted");
    McpFailure::new(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// Waits for all answers, for a client that accepts no stream; `answers` are there already.
async fn answer_as_json(
    mut feed: Feed,
    mut answers: Vec<String>,
    batch: bool,
) -> Result<Response, McpFailure> {
    while !feed.owes_nothing() {
        match feed.next().await {
            Next::Messages(messages) => answers.extend(messages.into_iter().map(|(_, text)| text)),
            Next::Quiet => {}
            Next::End if feed.owes_nothing() => {}
            Next::Replaced | Next::End => return Err(interrupted()),
        }
    }
    feed.note_taken().await; // as far as can be known of an answer in one piece
    let body = match (batch, answers.pop()) {
        (_, None) => return Ok(StatusCode::ACCEPTED.into_response()), // it was cancelled
        (false, Some(answer)) => answer,
        (true, Some(last)) => {
            answers.push(last);
            together(answers)
        }
    };
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Messages as a batch.
fn together(messages: Vec<String>) -> String {
    format!("[{}]", messages.join(","))
}
