//! What everything in a server has in common: the store, the settings, and who drives which session.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rejoin_core::page::{Body, StoredEntry};
use rejoin_core::record::{About, Kind, Record};
use rejoin_core::settings::Settings;
use rejoin_core::state::{End, EndRefused, Enter, EnterRefused, Entered};
use rejoin_core::{InSeq, ProcessId, SessionId, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::agent::Agent;
use crate::agents::AgentCounts;
use crate::clock::Clock;
use crate::driver::{Command, WAITING_COMMANDS, drive};
use crate::entry::NewEntry;
use crate::hook::{Claims, Lifecycle, SessionHook};
use crate::mcp::Hubs;
use crate::metrics::Metrics;
use crate::reaper;
use crate::series::Series;
use crate::service::WeakService;
use crate::sessions::ServerSettings;
use crate::store_view::StoreView;
use crate::tasks::{Begun, Owned, Tasks};
use crate::timeline::Timeline;

pub(crate) struct Shared {
    pub(crate) store: StoreView,
    pub(crate) settings: ServerSettings,
    /// What live sessions run under, as the settings say: one for all of them.
    pub(crate) session_settings: Arc<Settings>,
    pub(crate) clock: Clock,
    /// When the server was started.
    pub(crate) started: Timestamp,
    pub(crate) process: ProcessId,
    pub(crate) hook: Option<Arc<dyn SessionHook>>,
    pub(crate) agents: Agents,
    pub(crate) agent_counts: Arc<AgentCounts>,
    /// Disconnects that the hook has not decided about yet.
    pub(crate) claims: Claims,
    /// Woken when a deadline in the store may have come nearer.
    pub(crate) deadlines: Notify,
    pub(crate) tasks: Tasks,
    /// Whether clients are told that the server is going down.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) drivers: Drivers,
    pub(crate) metrics: Metrics,
    pub(crate) series: Series,
    pub(crate) timeline: Timeline,
    pub(crate) hubs: Hubs,
    /// Who serves these sessions, once somebody does.
    pub(crate) service: OnceLock<WeakService>,
}

/// Whoever does the work, by the kind of session.
#[derive(Clone, Default)]
pub(crate) struct Agents {
    pub(crate) agent: Option<Arc<dyn Agent>>,
    pub(crate) mcp: Option<Arc<dyn Agent>>,
}

impl Agents {
    pub(crate) fn of(&self, kind: Kind) -> Option<&Arc<dyn Agent>> {
        match kind {
            Kind::Agent => self.agent.as_ref(),
            Kind::Mcp => self.mcp.as_ref(),
        }
    }
}

/// The driver of each live session.
#[derive(Default)]
pub(crate) struct Drivers(Mutex<HashMap<SessionId, mpsc::Sender<Command>>>);

impl Shared {
    /// Gives a session's driver something to do; one is started if it has none. Returns the way to
    /// that driver.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        id: &SessionId,
        mut command: Command,
    ) -> Result<mpsc::Sender<Command>, Unavailable> {
        loop {
            if self.is_stopping() {
                return Err(crate::error::gone());
            }
            let (driver, refused) = self.offer(id, command);
            let Some(refused) = refused else { return Ok(driver) };
            match driver.send(refused).await {
                Ok(()) => return Ok(driver),
                // It ended while we waited for room in its queue: the next one will do it.
                Err(mpsc::error::SendError(refused)) => command = refused,
            }
        }
    }

    /// Starts a session's driver if it has none, to look whether there is something to do.
    pub(crate) fn wake(self: &Arc<Self>, id: &SessionId) {
        self.hand_on(id, Command::Look);
    }

    /// A client has come or gone: an agent of this process wants to know.
    pub(crate) fn agent_looks(self: &Arc<Self>, about: &About) {
        if self.agents.of(about.kind).is_some() {
            self.wake(&about.id);
        }
    }

    /// Something happened to a session: if it has a driver, that looks.
    pub(crate) fn driver_looks(self: &Arc<Self>, id: &SessionId) {
        if self.drivers.get(id).is_some() {
            self.wake(id);
        }
    }

    /// Gives a session's driver something to do, sooner or later; one is started if it has none.
    fn hand_on(self: &Arc<Self>, id: &SessionId, command: Command) {
        if self.is_stopping() {
            return;
        }
        if let (_, Some(refused)) = self.offer(id, command) {
            let (shared, id) = (Arc::clone(self), id.clone());
            self.tasks.spawn(|_| async move {
                let _ = shared.ask(&id, refused).await; // the server stops
            });
        }
    }

    /// Enters a message in a session's in log. The agent may begin with it as soon as its place in the log is settled;
    /// whoever sent it learns of it when it is durable. Messages that one caller enters keep their order.
    pub(crate) fn enter(
        self: &Arc<Self>,
        about: &Arc<About>,
        new: NewEntry,
    ) -> Begun<Result<Entered, Failure<EnterRefused>>> {
        let (shared, about) = (Arc::clone(self), Arc::clone(about));
        self.tasks.begin(|owned| async move { shared.enter_in(owned, &about, new).await })
    }

    async fn enter_in(
        self: &Arc<Self>,
        owned: Owned,
        about: &About,
        new: NewEntry,
    ) -> Result<Entered, Failure<EnterRefused>> {
        let NewEntry { generation, kind, digest, body } = new;
        let (id, now, session) = (&about.id, self.clock.now(), &self.settings.session);
        let enter = Enter {
            generation,
            kind,
            digest,
            size: u32::try_from(body.len()).unwrap_or(u32::MAX),
            body: Body::clone(&body),
            max_waiting_bytes: session.max_waiting_bytes,
            keep_for: session.lifetime.session_ttl,
            now,
        };
        let agent = self.agents.of(about.kind);
        let entered = match agent.is_some_and(|agent| agent.begins_early()) {
            true => {
                let (told, number) = oneshot::channel();
                let entry = StoredEntry { in_seq: InSeq::ZERO, kind, at: now, body };
                if !self.is_stopping() {
                    // If there is no room in its queue the driver learns of it below.
                    self.offer(id, Command::Entering(Box::new((number, entry))));
                }
                self.store.change(owned).enter_early(id, enter, told).await
            }
            false => self.store.change(owned).enter(id, enter).await,
        };
        if let Ok(Entered { in_seq, duplicate }) = entered {
            if duplicate {
                self.metrics.duplicates.inc();
            }
            if agent.is_some() {
                self.hand_on(id, Command::Entered(in_seq));
            }
        }
        entered
    }

    /// Puts a command in the queue of a session's driver, under the lock that a driver needs to
    /// retire: so none retires with a command in its queue. Gives it back if there is no room.
    fn offer(
        self: &Arc<Self>,
        id: &SessionId,
        command: Command,
    ) -> (mpsc::Sender<Command>, Option<Command>) {
        let mut drivers = self.drivers.lock();
        let known = drivers.get(id).filter(|driver| !driver.is_closed()).cloned();
        let (driver, commands) = match known {
            Some(driver) => (driver, None),
            None => {
                let (driver, commands) = mpsc::channel(WAITING_COMMANDS);
                drivers.insert(id.clone(), driver.clone());
                (driver, Some(commands))
            }
        };
        let refused = match driver.try_send(command) {
            Ok(()) => None,
            Err(TrySendError::Full(command) | TrySendError::Closed(command)) => Some(command),
        };
        drop(drivers);
        if let Some(commands) = commands {
            let (shared, id, handle) = (Arc::clone(self), id.clone(), driver.clone());
            self.tasks.spawn(|owned| drive(owned, shared, id, commands, handle));
        }
        (driver, refused)
    }

    /// Ends a session, and has its driver look if it has one.
    pub(crate) async fn end(
        self: &Arc<Self>,
        owned: Owned,
        id: &SessionId,
        end: End,
    ) -> Result<Record, Failure<EndRefused>> {
        let (forget_at, what) = (end.now + end.remember_for, Lifecycle::of(&end.ending));
        let record = self.store.change(owned).end(id, end).await?;
        self.happened(what, &record);
        self.deadline_set(forget_at);
        self.driver_looks(id);
        Ok(record)
    }

    /// A session's time comes at `at`. The reaper is woken only if it would sleep past that: a storm
    /// of disconnects does not wake it for deadlines that are hours away.
    pub(crate) fn deadline_set(&self, at: Timestamp) {
        if at < self.clock.now() + reaper::LONGEST_SLEEP {
            self.deadlines.notify_one();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server stops.
    pub(crate) async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as we do, so this can't fail before it is true.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

impl Drivers {
    /// Lets a driver end if its queue is empty and nobody is about to put something in. From then
    /// on its queue is closed, and the next who asks for the session gets another driver.
    pub(crate) fn retire(&self, id: &SessionId, commands: &mut mpsc::Receiver<Command>) -> bool {
        let mut drivers = self.lock();
        let unused = commands.capacity() == commands.max_capacity();
        if unused {
            drivers.remove(id);
            commands.close();
        }
        unused
    }

    /// Forgets a driver that has ended otherwise, unless another one has taken its place.
    pub(crate) fn forget(&self, id: &SessionId) {
        let mut drivers = self.lock();
        if drivers.get(id).is_some_and(mpsc::Sender::is_closed) {
            drivers.remove(id);
        }
    }

    pub(crate) fn get(&self, id: &SessionId) -> Option<mpsc::Sender<Command>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, mpsc::Sender<Command>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("process", &self.process).finish_non_exhaustive()
    }
}
