//! The upstream session of a stateless client: found by who the client is, made when it is first needed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::SessionId;
use rejoin_core::record::{Kind, Record};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::ModernUpstream;
use super::asked::StatelessRequest;
use super::broken::Broken;
use super::execution::{Execution, Hears, tell};
use super::failure::denied;
use super::reader::{ReaderHeard, UpstreamReader};
use super::server::ServerDescription;
use crate::mcp::message::Message;
use crate::mcp::own_words::{RpcError, code, notification, request};
use crate::mcp::{Book, NEWEST_REVISION};
use crate::service::{Denial, Visitor};
use crate::web::Front;
use crate::web::identity::KnownCaller;
use crate::web::mcp::McpFailure;
use crate::web::mcp::post::about;
use crate::web::mcp::request::Client;

/// What this process remembers of stateless clients. All of it can be lost.
#[derive(Default)]
pub(crate) struct Modern {
    begun: Mutex<HashMap<SessionId, Arc<KnownUpstream>>>,
    pub(super) broken: Broken,
}

/// What is known of an upstream session that was used in this process.
#[derive(Default)]
pub(super) struct KnownUpstream {
    /// What its server says of itself. Held while that is found out, so that it is asked once.
    server: tokio::sync::Mutex<Option<(Record, Arc<ServerDescription>)>>,
    /// Questions that were answered here, the latest last.
    answered: Mutex<VecDeque<String>>,
    /// How many listen to each resource.
    pub(super) listened: tokio::sync::Mutex<HashMap<String, usize>>,
    /// Whether calls were looked for that broke when the process before this one ended.
    pub(super) adopted: tokio::sync::OnceCell<()>,
    /// Whether the server was told to log everything.
    pub(super) logs: tokio::sync::OnceCell<()>,
}

/// The upstream session of a request.
#[derive(Clone)]
pub(super) struct UpstreamSession {
    pub(super) record: Record,
    pub(super) server: Arc<ServerDescription>,
    pub(super) begun: Arc<KnownUpstream>,
    /// Whether it ends with the request.
    pub(super) alone: bool,
}

/// How many answered questions of a session are remembered.
const MOST_ANSWERED: usize = 256;

/// How many sessions are remembered before those that nobody uses are forgotten.
const REMEMBERED: usize = 1024;

impl Modern {
    /// What is known of a session.
    pub(super) fn begun(&self, id: &SessionId) -> Arc<KnownUpstream> {
        let mut begun = lock(&self.begun);
        if begun.len() >= REMEMBERED {
            begun.retain(|_, known| Arc::strong_count(known) > 1);
        }
        Arc::clone(begun.entry(id.clone()).or_default())
    }
}

impl KnownUpstream {
    /// Notes that a question was answered; says whether that is new.
    pub(super) fn note_answered(&self, question: &str) -> bool {
        let mut answered = lock(&self.answered);
        let new = !answered.iter().any(|known| known == question);
        if new {
            answered.push_back(question.to_owned());
        }
        if answered.len() > MOST_ANSWERED {
            answered.pop_front();
        }
        new
    }

    /// Whether a question was answered in this process.
    pub(super) fn was_answered(&self, question: &str) -> bool {
        lock(&self.answered).iter().any(|known| known == question)
    }
}

impl UpstreamSession {
    /// The upstream session for a request, whose server has been introduced to the client.
    pub(super) async fn of(
        client: &Client,
        front: &Arc<Front>,
        asked: &StatelessRequest,
    ) -> Result<Self, McpFailure> {
        front.service.check_open().map_err(denied)?;
        let about = &about(asked.client.as_deref());
        let (shared, visitor) = (shared_by(client, front), &client.visitor);
        let (alone, record) = match shared {
            None => (true, front.service.create(visitor, Kind::Mcp, about, None).await),
            Some(caller) => (false, own(visitor, front, id_for(caller, front, asked), about).await),
        };
        let record = record.map_err(denied)?;
        let begun = front.modern.begun(record.id());
        let server = introduced(front, &record, &begun, asked).await;
        match server {
            Ok(server) => Ok(Self { record, server, begun, alone }),
            Err(failure) => {
                if alone {
                    front.service.sessions().end_and_forget(record.id());
                }
                Err(failure)
            }
        }
    }
}

impl UpstreamSession {
    /// One that was used before; nothing if its server was never introduced.
    pub(super) async fn again(
        client: &Client,
        front: &Arc<Front>,
        record: Record,
    ) -> Result<Option<Self>, Denial> {
        let begun = front.modern.begun(record.id());
        let alone = shared_by(client, front).is_none();
        let server = said_before(front, &record).await?;
        Ok(server.map(|server| Self { record, server: Arc::new(server), begun, alone }))
    }
}

/// The caller whose requests share an upstream session; nothing if each has its own, which ends with it.
fn shared_by<'a>(client: &'a Client, front: &Front) -> Option<KnownCaller<'a>> {
    match front.settings.mcp.modern.upstream {
        ModernUpstream::PerPrincipal => client.identity.known(),
        ModernUpstream::PerRequest => None,
    }
}

/// The id of the upstream session of a client. It can't be computed outside of this server.
fn id_for(caller: KnownCaller<'_>, front: &Front, asked: &StatelessRequest) -> SessionId {
    let identity = front.service.sessions().store().identity();
    identity.stateless_session(caller.name(), &asked.client_name())
}

/// Whether the upstream session that a client's requests share has just ended, so that the next one may be made.
pub(super) async fn has_ended(client: &Client, front: &Front, asked: &StatelessRequest) -> bool {
    let Some(caller) = shared_by(client, front) else { return false };
    let id = id_for(caller, front, asked);
    let session = front.service.sessions().store().session(&id).await;
    session.is_ok_and(|known| known.is_none_or(|record| !record.is_active()))
}

async fn own(
    visitor: &Visitor,
    front: &Front,
    id: SessionId,
    about: &str,
) -> Result<Record, Denial> {
    match front.service.mcp_session(visitor, &id).await {
        Err(Denial::NotFound | Denial::Ended(_)) => {
            front.service.mcp_session_at(visitor, id, about).await
        }
        known => known,
    }
}

/// What the server behind says of itself. If it has never been asked it is.
async fn introduced(
    front: &Arc<Front>,
    record: &Record,
    begun: &KnownUpstream,
    asked: &StatelessRequest,
) -> Result<Arc<ServerDescription>, McpFailure> {
    let mut known = begun.server.lock().await;
    let same = |of: &Record| of.about.created_at == record.about.created_at;
    if let Some((_, server)) = known.as_ref().filter(|(of, _)| same(of)) {
        return Ok(Arc::clone(server));
    }
    let server = match said_before(front, record).await.map_err(denied)? {
        Some(server) => server,
        None => {
            introduce(front, record, asked).await?;
            let said = said_before(front, record).await.map_err(denied)?;
            said.ok_or_else(|| denied(Denial::Unavailable))?
        }
    };
    let server = Arc::new(server);
    *known = Some((record.clone(), Arc::clone(&server)));
    Ok(server)
}

async fn said_before(front: &Front, record: &Record) -> Result<Option<ServerDescription>, Denial> {
    let store = front.service.sessions().store();
    let snapshot = store.snapshot(record.id()).await?;
    let book = Book::from_body(snapshot.as_ref().map(|snapshot| &snapshot.body));
    Ok(book
        .handshake
        .as_ref()
        .map(|handshake| ServerDescription::from_handshake(&handshake.result)))
}

/// Makes the client known to the server.
async fn introduce(
    front: &Arc<Front>,
    record: &Record,
    asked: &StatelessRequest,
) -> Result<(), McpFailure> {
    let sessions = front.service.sessions();
    let words = to_raw_value(&introduction(asked)).unwrap_or_default();
    let hello = |id: &_| request(id, "initialize", Some(&words));
    let mut reader = UpstreamReader::attached(front, record, record.head).await;
    let execution = Execution::begin(sessions, record, Hears::Nothing, None, hello).await?;
    let answer = loop {
        match reader.next().await {
            ReaderHeard::Said(said) if said.ends(&execution) => break said.message,
            ReaderHeard::Said(_) => {}
            ReaderHeard::Over | ReaderHeard::Interrupted => {
                return Err(denied(Denial::Unavailable));
            }
        }
    };
    if let Some(error) = answer.as_ref().and_then(Message::error) {
        return Err(McpFailure::new(axum::http::StatusCode::OK, said_error(error)));
    }
    let ready = notification("notifications/initialized", &json!({}));
    tell(sessions, record.id(), &ready).await.map_err(denied)
}

fn introduction(asked: &StatelessRequest) -> serde_json::Value {
    let nobody = json!({ "name": "rejoin", "version": env!("CARGO_PKG_VERSION") });
    let client = asked.client.as_deref().map(|raw| about(Some(raw)));
    let client = client.and_then(|client| serde_json::from_str(&client).ok());
    json!({
        "protocolVersion": NEWEST_REVISION,
        "capabilities": {
            "elicitation": { "form": {}, "url": {} },
            "sampling": { "tools": {}, "context": {} },
            "roots": {},
        },
        "clientInfo": client.unwrap_or(nobody),
    })
}

/// An error of the server behind, or of the gateway.
fn said_error(raw: &RawValue) -> RpcError {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Error {
        code: i32,
        message: String,
        data: Option<serde_json::Value>,
    }
    let Error { code, message, data } = serde_json::from_str(raw.get()).unwrap_or_default();
    let code = if code == 0 { code::UPSTREAM_UNAVAILABLE } else { code };
    RpcError { data, ..RpcError::new(code, message) }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
