//! What transports ask for on behalf of a caller. Whoever comes in over WebSocket, HTTP or MCP comes
//! through here, so every check of who may do what is made here, on every operation, and no transport
//! can forget one.
//!
//! | file | concern |
//! |---|---|
//! | `reconnect.rs` | coming back: tokens, attaching |
//! | `attempts.rs` | attempts: their budgets and the audit trail |
//! | `export.rs` | giving a client the agent's state, sealed |
//! | `restore.rs` | going on from a sealed state |
//! | `state.rs` | the shape of a state, for clients and for agents |
//! | `speak.rs` | messages, events, observers |
//! | `mcp_tokens.rs` | tokens in the results and calls of MCP clients |
//! | `named.rs` | sessions under names that their clients have chosen |
//! | `streams.rs` | MCP clients, whose sessions are attached by their streams |
//! | `denial.rs` | why not, and what the caller is told |
//! | `rate.rs` | how often |

mod attempts;
mod denial;
mod export;
mod mcp_tokens;
mod named;
mod rate;
mod reconnect;
mod restore;
mod sealed;
mod speak;
mod state;
mod streams;

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rejoin_core::keys::KeyRing;
use rejoin_core::limits::LogBounds;
use rejoin_core::record::{About, Ending, Kind, Record, Status, Transport};
use rejoin_core::state::Room;
use rejoin_core::{SessionId, Timestamp};
use rejoin_store::{Query, Unavailable};
use tokio::sync::watch;
use tokio::time::timeout;

pub use denial::{Denial, StateProblem, TokenProblem};
pub use export::Exported;
pub(crate) use reconnect::id_or_impossible;
pub use reconnect::{Admission, Issued, Joined, Renewal};
pub use restore::{RestoreRequest, Restored};
pub use speak::{Health, Observed, Place};
pub use state::Include;
pub(crate) use streams::{MOST_NAMES, after};

use self::attempts::Budgets;
use crate::access::Caller;
use crate::limits;
use crate::random;
use crate::sessions::Sessions;
use crate::tasks::Owned;

/// How the service treats its callers.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The largest sealed state.
    pub max_state_bytes: usize,
    /// Sessions of the whole server.
    pub max_sessions: usize,
    /// Sessions of one principal.
    pub max_sessions_per_principal: usize,
    /// Whether clients may choose the ids of their sessions.
    pub client_session_ids: bool,
    /// The bounds that the store keeps each out log within, to say how full one is.
    pub bounds: LogBounds,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            max_state_bytes: 512 * 1024,
            max_sessions: 100_000,
            max_sessions_per_principal: 10_000,
            client_session_ids: false,
            bounds: LogBounds::default(),
        }
    }
}

/// How far a server is on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes whatever comes.
    Open,
    /// It finishes what is under way.
    Draining,
    /// Connections are closed.
    Closing,
}

/// How often it is looked whether everything has finished.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long connections may take to be closed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Gives the keys that are in force at the moment.
pub type Keys = Arc<dyn Fn() -> Arc<KeyRing> + Send + Sync>;

/// A caller, and how it came.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Who it is.
    pub caller: Caller,
    /// From where.
    pub address: Option<IpAddr>,
    /// Over what, as the audit trail spells it: `websocket`, `http`, …
    pub over: &'static str,
}

/// What transports ask for. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<ServiceParts>,
}

/// The service, for those whom it outlives.
#[derive(Clone)]
pub(crate) struct WeakService(Weak<ServiceParts>);

impl WeakService {
    /// The service, unless the server is gone.
    pub(crate) fn upgrade(&self) -> Option<Service> {
        self.0.upgrade().map(|inner| Service { inner })
    }
}

struct ServiceParts {
    sessions: Sessions,
    keys: Keys,
    settings: ServiceSettings,
    budgets: Budgets,
    phase: watch::Sender<Phase>,
    started: Timestamp,
}

impl Service {
    /// A service for these sessions. Must be made inside the runtime that serves them.
    pub fn new(sessions: Sessions, keys: Keys, settings: ServiceSettings) -> Self {
        let started = sessions.clock().now();
        let (budgets, phase) = (Budgets::default(), watch::Sender::new(Phase::Open));
        let inner = Arc::new(ServiceParts { sessions, keys, settings, budgets, phase, started });
        inner.sessions.served_by(WeakService(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// The sessions behind it.
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// How it treats its callers.
    pub fn settings(&self) -> &ServiceSettings {
        &self.inner.settings
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.inner.sessions.clock().now()
    }

    /// Since when it has been running.
    pub fn started(&self) -> Timestamp {
        self.inner.started
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        self.now().since(self.inner.started)
    }

    /// From now on nothing new is begun, and clients are told that the server is going down. Returns
    /// when what is under way has finished, or when it has taken too long; says whether it finished.
    pub async fn drain(&self, within: Duration) -> bool {
        self.inner.phase.send_replace(Phase::Draining);
        self.sessions().drain();
        let finished = async {
            while self.sessions().working() > 0 {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        timeout(within, finished).await.is_ok()
    }

    /// Ends everything: clients are told to come back, sessions stay as they are.
    pub async fn close(&self) -> Result<(), Unavailable> {
        self.inner.phase.send_replace(Phase::Closing);
        let closed = self.sessions().close().await;
        let connections = &self.sessions().counted().connections;
        let gone = async {
            while connections.get() > 0 {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let _ = timeout(LAST_WORDS, gone).await;
        closed
    }

    /// Whether the server is going down.
    pub fn is_draining(&self) -> bool {
        *self.inner.phase.borrow() != Phase::Open
    }

    /// Whether connections are being closed.
    pub(crate) fn is_closing(&self) -> bool {
        *self.inner.phase.borrow() == Phase::Closing
    }

    /// How far the server is, now and later.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.inner.phase.subscribe()
    }

    /// Makes a session for the caller.
    pub async fn create(
        &self,
        visitor: &Visitor,
        kind: Kind,
        client: &str,
        name: Option<&str>,
    ) -> Result<Record, Denial> {
        let (service, about) = (self.clone(), self.about(visitor, kind, client, name).await?);
        self.finish(|owned| async move { service.create_in(owned, about).await }).await
    }

    /// What never changes about a session that the caller makes, under a name that it may have chosen.
    pub(crate) async fn about(
        &self,
        visitor: &Visitor,
        kind: Kind,
        client: &str,
        name: Option<&str>,
    ) -> Result<About, Denial> {
        check_client(client)?;
        let id = match name.filter(|_| self.inner.settings.client_session_ids) {
            Some(name) => self.id_for_name(visitor, name).await?,
            None => SessionId::from_random(random::bytes()?),
        };
        Ok(self.sessions().about(id, &visitor.caller.principal, kind, client))
    }

    /// Makes a session, unless the server goes down or has no room for it.
    pub(crate) async fn create_in(&self, owned: Owned, about: About) -> Result<Record, Denial> {
        self.check_open()?;
        Ok(self.sessions().create_in(owned, about, self.room()).await?)
    }

    /// How many sessions there may be.
    fn room(&self) -> Room {
        let settings = &self.inner.settings;
        Room { all: settings.max_sessions, of_principal: settings.max_sessions_per_principal }
    }

    /// Does what a caller asks for to its end, whether or not it waits: a client that hangs up must not leave a change
    /// without what follows from it.
    pub(crate) async fn finish<T, F>(&self, work: impl FnOnce(Owned) -> F) -> Result<T, Denial>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Denial>> + Send + 'static,
    {
        self.sessions().finish(work).await?
    }

    /// A session that the caller may use: its own, or any for an administrator. Also an ended one that
    /// is remembered.
    pub async fn session(&self, visitor: &Visitor, id: &SessionId) -> Result<Record, Denial> {
        self.session_for(visitor, id, "read").await
    }

    /// The same for something that is done with it: what an administrator does with the sessions of others is in the audit
    /// trail.
    async fn session_for(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        action: &'static str,
    ) -> Result<Record, Denial> {
        let id = self.meant(visitor, id).await?;
        let record = self.sessions().noticed(&id).await?.ok_or(Denial::NotFound)?;
        let caller = &visitor.caller;
        if record.about.principal != caller.principal {
            if !caller.admin {
                return Err(Denial::NotFound);
            }
            self.note_admin(visitor, Some(&id), action).await;
        }
        Ok(record)
    }

    /// The same, if it is attached or parked.
    pub async fn active(&self, visitor: &Visitor, id: &SessionId) -> Result<Record, Denial> {
        self.active_for(visitor, id, "read").await
    }

    pub(crate) async fn active_for(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        action: &'static str,
    ) -> Result<Record, Denial> {
        let record = self.session_for(visitor, id, action).await?;
        match ending(&record, self.now()) {
            Some(ending) => Err(Denial::Ended(ending)),
            None => Ok(record),
        }
    }

    /// Sessions that the caller may see, in the order of their ids.
    pub async fn list(&self, visitor: &Visitor, mut query: Query) -> Result<Vec<Record>, Denial> {
        if !visitor.caller.admin {
            query.principal = Some(visitor.caller.principal.clone());
        }
        let records = self.sessions().list(&query).await?;
        if records.iter().any(|record| record.about.principal != visitor.caller.principal) {
            self.note_admin(visitor, None, "list").await;
        }
        Ok(records)
    }

    /// Ends a session.
    pub async fn end(&self, visitor: &Visitor, id: &SessionId) -> Result<Record, Denial> {
        let (service, visitor, id) = (self.clone(), visitor.clone(), id.clone());
        let ended = self.finish(|owned| async move {
            let record = service.active_for(&visitor, &id, "end").await?;
            Ok(service.sessions().end_in(owned, record.id()).await?)
        });
        ended.await
    }

    /// Cuts a session's connection and keeps the session; says whether there was one.
    pub async fn cut(&self, visitor: &Visitor, id: &SessionId) -> Result<bool, Denial> {
        let record = self.active_for(visitor, id, "disconnect").await?;
        Ok(self.sessions().cut(record.id()).await?)
    }

    fn keys(&self) -> Arc<KeyRing> {
        (self.inner.keys)()
    }

    /// Refuses what would begin something while the server goes down.
    pub(crate) fn check_open(&self) -> Result<(), Denial> {
        match self.is_draining() {
            true => Err(busy("The server is going down and will be back")),
            false => Ok(()),
        }
    }
}

/// Refuses a client that says too much of itself, over whatever transport.
fn check_client(client: &str) -> Result<(), Denial> {
    if client.len() > limits::CLIENT_BYTES {
        let bytes = limits::CLIENT_BYTES;
        let why = format!("What a client says of itself may have {bytes} bytes at most");
        return Err(Denial::TooLarge(why.into()));
    }
    Ok(())
}

/// How long a client waits that found the server full or going down. It adds jitter of its own.
const RETRY_BUSY: Duration = Duration::from_secs(2);

fn busy(why: &str) -> Denial {
    Denial::Busy { why: why.into(), retry_after: RETRY_BUSY }
}

/// How a session ended, also if its time has run out and nobody has noticed yet.
pub fn ending(record: &Record, now: Timestamp) -> Option<Ending> {
    match &record.status {
        Status::Ended { ending, .. } => Some(ending.clone()),
        Status::Active => {
            let due = record.attached.is_none() && record.expires_at <= now;
            due.then_some(Ending::Expired)
        }
    }
}

/// How the audit trail spells a transport.
pub(crate) fn transport_word(transport: Transport) -> &'static str {
    match transport {
        Transport::WebSocket => "websocket",
        Transport::StreamableHttp => "mcp",
        Transport::Sse => "sse",
        Transport::Local => "local",
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
