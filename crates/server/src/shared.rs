//! What everything in a server has in common: the store, the settings, and who drives which session.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rejoin_core::record::{Kind, Record};
use rejoin_core::session::{Input, Settings};
use rejoin_core::state::{End, EndRefused};
use rejoin_core::{AttachmentId, ProcessId, SessionId, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};

use crate::agent::Agent;
use crate::agents::AgentCounts;
use crate::clock::Clock;
use crate::driver::{Command, WAITING_COMMANDS, drive};
use crate::hook::{Claims, Lifecycle, SessionHook};
use crate::mcp::Hubs;
use crate::metrics::Metrics;
use crate::reaper;
use crate::series::Series;
use crate::service::WeakService;
use crate::sessions::ServerSettings;
use crate::store_view::StoreView;
use crate::tasks::{Owned, Tasks};
use crate::timeline::Timeline;
use crate::watch::Watches;

pub(crate) struct Shared {
    pub(crate) store: StoreView,
    pub(crate) settings: ServerSettings,
    /// What live sessions run under, as the settings say: one for all of them.
    pub(crate) session_settings: Arc<Settings>,
    pub(crate) clock: Clock,
    pub(crate) process: ProcessId,
    pub(crate) hook: Option<Arc<dyn SessionHook>>,
    pub(crate) agents: Agents,
    pub(crate) agent_counts: Arc<AgentCounts>,
    /// Disconnects that the hook has not decided about yet.
    pub(crate) claims: Claims,
    /// Woken when a deadline in the store may have come nearer.
    pub(crate) deadlines: Notify,
    pub(crate) tasks: Tasks,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) drivers: Drivers,
    pub(crate) last_attachment: AtomicU64,
    /// Who waits for new events without being attached.
    pub(crate) watches: Watches,
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
        if !self.is_stopping() {
            self.offer(id, Command::Input(Box::new(Input::Tick)));
        }
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

    /// Ends a session, and tells its driver if it has one.
    pub(crate) async fn end(
        &self,
        owned: Owned,
        id: &SessionId,
        end: End,
    ) -> Result<Record, Failure<EndRefused>> {
        let (forget_at, what) = (end.now + end.remember_for, Lifecycle::of(&end.ending));
        let record = self.store.change(owned).end(id, end).await?;
        self.happened(what, &record);
        self.deadline_set(forget_at);
        self.tell_driver(id, Input::Ended { by: None }).await;
        Ok(record)
    }

    /// Tells a session's driver, if it has one, how the session has ended; wakes whoever watches it.
    pub(crate) async fn tell_driver(&self, id: &SessionId, end: Input) {
        if let Some(driver) = self.drivers.get(id) {
            let _ = driver.send(Command::Input(Box::new(end))).await;
        }
        self.watches.stir(id);
    }

    /// A session's time comes at `at`. The reaper is woken only if it would sleep past that: a storm
    /// of disconnects does not wake it for deadlines that are hours away.
    pub(crate) fn deadline_set(&self, at: Timestamp) {
        if at < self.clock.now() + reaper::LONGEST_SLEEP {
            self.deadlines.notify_one();
        }
    }

    pub(crate) fn next_attachment(&self) -> AttachmentId {
        AttachmentId(self.last_attachment.fetch_add(1, Ordering::Relaxed) + 1)
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

    pub(crate) fn all(&self) -> Vec<mpsc::Sender<Command>> {
        self.lock().values().cloned().collect()
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
