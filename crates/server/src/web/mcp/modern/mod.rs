//! MCP revision 2026-07-28 on `/mcp`: requests that stand alone, before a server that keeps sessions.
//!
//! A request finds the upstream session of whoever sends it, an MCP session like any other, and is an entry
//! of its in log; what answers it is read from its out log. Why it is done so: decision 0020.
//!
//! | file | concern |
//! |---|---|
//! | `wire.rs` | names and codes of the revision |
//! | `asked.rs`, `headers.rs` | a request, and whether its headers agree with it |
//! | `upstream.rs`, `server.rs` | the upstream session of a client, and what its server says of itself |
//! | `execution.rs`, `reader.rs` | a call in the logs, and what is said of it there |
//! | `run.rs` | a call under way: what its client is to be told next |
//! | `respond.rs` | that as an HTTP answer |
//! | `broken.rs`, `kept.rs`, `adopted.rs` | calls whose stream broke, until they are re-issued or cancelled; how many; those that broke with the process before |
//! | `questions.rs`, `state.rs` | what the server asks meanwhile (MRTR), and the seal over where a call stood |
//! | `tasks.rs` | calls that became tasks |
//! | `listen.rs` | subscriptions |
//! | `shape.rs` | what the revision demands of an older server's results |

mod adopted;
mod asked;
mod beginning;
mod broken;
mod execution;
mod failure;
mod headers;
mod kept;
mod listen;
mod questions;
mod reader;
mod respond;
mod run;
mod server;
mod shape;
mod state;
mod tasks;
mod upstream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use self::asked::StatelessRequest;
use self::failure::refuse;
use self::run::Run;
use super::PROTOCOL_VERSION;
use super::early::{self, Early};
use super::request::{Accepts, Client};
use crate::mcp::REVISIONS;
use crate::mcp::message::{Kind, Message};
use crate::mcp::own_words::{RpcError, code};
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::receiving::RequestPlace;

pub(crate) use self::upstream::Modern;

/// How clients of revision 2026-07-28 are treated.
#[derive(Clone, Debug)]
pub struct ModernSettings {
    /// Which upstream session their requests use.
    pub upstream: ModernUpstream,
    /// How long a call whose stream broke waits for the same call to come again.
    pub reissue_window: Duration,
    /// A call that is not answered within this time becomes a task, for clients that understand tasks.
    pub task_after: Duration,
    /// How long the result of a task is kept, as told to clients.
    pub result_retention: Duration,
}

/// Which upstream session a stateless request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModernUpstream {
    /// One for each principal and client name.
    PerPrincipal,
    /// One of its own, which ends with the answer.
    PerRequest,
}

impl Default for ModernSettings {
    fn default() -> Self {
        Self {
            upstream: ModernUpstream::PerPrincipal,
            reissue_window: Duration::from_secs(15),
            task_after: Duration::from_secs(5),
            result_retention: Duration::from_secs(60 * 60),
        }
    }
}

/// The request whose answer is a stream.
const LISTEN: &str = "subscriptions/listen";

/// Whether a POST is of this revision: it names it, in its header or in its `_meta`.
pub(super) fn is_modern(headers: &HeaderMap, body: &[u8]) -> bool {
    let named = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    match named {
        Some(wire::REVISION) => true,
        Some(older) if REVISIONS.contains(&older) && headers.contains_key(super::SESSION_ID) => {
            false
        }
        Some(_) | None => asked::names_a_revision(body),
    }
}

/// A GET or DELETE of this revision, which has neither.
pub(super) fn check_has_sessions(headers: &HeaderMap) -> Result<(), McpFailure> {
    let named = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    if named != Some(wire::REVISION) {
        return Ok(());
    }
    let error =
        RpcError::new(code::METHOD_NOT_FOUND, "this revision has no streams and no sessions");
    Err(McpFailure::new(StatusCode::METHOD_NOT_ALLOWED, error))
}

/// A POST of this revision.
pub(super) async fn post(
    client: Client,
    front: &Arc<Front>,
    headers: &HeaderMap,
    accepts: Accepts,
    (mut messages, batch): (Vec<Message>, bool),
    place: RequestPlace,
) -> Result<Response, McpFailure> {
    let message = match messages.pop() {
        Some(message) if !batch => message,
        Some(_) | None => return Err(McpFailure::bad("a body is one message in this revision")),
    };
    match message.kind() {
        Kind::Request { .. } => {}
        // The only one that there is says what a closed stream says here.
        Kind::Notification { .. } => return Ok(StatusCode::ACCEPTED.into_response()),
        Kind::Response { .. } => {
            return Err(McpFailure::bad("a client sends no responses in this revision"));
        }
    }
    let asked = StatelessRequest::read(&message, headers, &front.settings.mcp.revisions)?;
    let early = match &*asked.method {
        LISTEN => accepts.events.then_some(Early::Events), // it is answered with nothing else
        _ => accepts.early(),
    };
    let front_too = Arc::clone(front);
    let answering = async move {
        let _place = place; // what was asked is kept until it is answered
        answer_or_failure(client, front_too, accepts, asked).await
    };
    Ok(early::respond(early, answering, front.settings.sse_keep_alive).await)
}

/// The response to a request, also when it fails.
async fn answer_or_failure(
    client: Client,
    front: Arc<Front>,
    accepts: Accepts,
    asked: StatelessRequest,
) -> Response {
    let id = asked.id.clone();
    let answered = answer(client, &front, accepts, asked).await;
    answered.unwrap_or_else(|failure| failure.answering(Some(&id)).into_response())
}

async fn answer(
    client: Client,
    front: &Arc<Front>,
    accepts: Accepts,
    asked: StatelessRequest,
) -> Result<Response, McpFailure> {
    match &*asked.method {
        "server/discover" | LISTEN | "tasks/get" | "tasks/update" | "tasks/cancel" => {
            let own = Arc::clone(front);
            let work = async move { answer_at_once(&client, &own, accepts, asked).await };
            let sessions = front.service.sessions();
            sessions.finish(|_| work).await.map_err(|why| failure::denied(why.into()))?
        }
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe" => {
            let sentence = format!("there is no method {} in this revision", asked.method);
            Err(refuse(code::METHOD_NOT_FOUND, sentence))
        }
        _ => {
            let run = Run::start(&client, front, asked).await?;
            Ok(respond::respond(run, accepts).await)
        }
    }
}

/// Requests that are answered as soon as something is done: that is done to its end, though the client may go away.
async fn answer_at_once(
    client: &Client,
    front: &Arc<Front>,
    accepts: Accepts,
    asked: StatelessRequest,
) -> Result<Response, McpFailure> {
    match &*asked.method {
        "server/discover" => server::discover(client, front, &asked).await,
        LISTEN => listen::listen(client, front, accepts, asked).await,
        "tasks/get" => tasks::get(client, front, &asked).await,
        "tasks/update" => tasks::update(client, front, &asked).await,
        _ => tasks::cancel(client, front, &asked).await,
    }
}
