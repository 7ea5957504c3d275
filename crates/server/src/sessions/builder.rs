//! What is put together before a server begins: how it treats its sessions, and who does their work.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rejoin_core::ProcessId;
use rejoin_core::record::Kind;
use rejoin_core::settings::Settings;
use rejoin_core::state::Takeover;
use rejoin_store::{Parked, Store, Unavailable};
use tokio::sync::{Notify, watch};

use super::{Sessions, StopWhenDropped};
use crate::agent::Agent;
use crate::clock::Clock;
use crate::hook::{Claims, SessionHook};
use crate::mcp::Hubs;
use crate::metrics::Metrics;
use crate::series::Series;
use crate::shared::{Agents, Drivers, Shared};
use crate::store_view::StoreView;
use crate::tasks::Tasks;
use crate::timeline::{Happening, Timeline};
use crate::{asking, pulse, random, reaper};

/// How a server treats its sessions.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What each live session runs under.
    pub session: Settings,
    /// What becomes of a client that is attached when another one comes.
    pub takeover: Takeover,
    /// How long an exported state is good.
    pub state_ttl: Duration,
    /// How long an agent is kept that has nothing to do and no client; at once if it is zero, as it
    /// should be where starting one costs nothing.
    pub agent_idle_ttl: Duration,
    /// How long one is kept that has nothing to do while a client is attached; for as long as the
    /// client is, if nothing is set. One that was let go is started again for work, not for company.
    pub attended_idle_ttl: Option<Duration>,
    /// How long whoever does the work of MCP sessions is kept without work while a client is there.
    pub mcp_idle_ttl: Duration,
    /// The same without a client, from when the client left: of one that came for a single call little is worth keeping.
    pub mcp_detached_ttl: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            session: Settings::default(),
            takeover: Takeover::Replace,
            state_ttl: Duration::from_secs(24 * 60 * 60),
            agent_idle_ttl: Duration::ZERO,
            attended_idle_ttl: None,
            mcp_idle_ttl: Duration::from_secs(60 * 60),
            mcp_detached_ttl: Duration::from_secs(5 * 60),
        }
    }
}

impl ServerSettings {
    /// How long whoever does the work of such a session is kept without work.
    pub(crate) fn idle_ttl(&self, kind: Kind, company: bool) -> Option<Duration> {
        match kind {
            Kind::Agent if company => self.attended_idle_ttl,
            Kind::Agent => Some(self.agent_idle_ttl),
            Kind::Mcp if company => Some(self.mcp_idle_ttl),
            Kind::Mcp => Some(self.mcp_detached_ttl.min(self.mcp_idle_ttl)),
        }
    }

    /// How long an ended session is remembered: until no credential of its can live any more.
    pub fn remember_for(&self) -> Duration {
        self.state_ttl.max(self.session.token_ttl)
    }
}

/// What is put together before a server begins.
pub struct Builder {
    store: Arc<dyn Store>,
    settings: ServerSettings,
    clock: Clock,
    history: Option<PathBuf>,
    hook: Option<Arc<dyn SessionHook>>,
    agents: Agents,
}

impl Builder {
    /// For sessions that are kept in `store`.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let (settings, clock) = (ServerSettings::default(), Clock::start());
        Self { store, settings, clock, history: None, hook: None, agents: Agents::default() }
    }

    /// With these settings instead of the defaults.
    #[must_use]
    pub fn settings(mut self, settings: ServerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// With this time line, which the store was opened under.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// With files in this directory for what people look at, timelines and samples, so that they outlive the
    /// process.
    #[must_use]
    pub fn history(mut self, directory: impl Into<PathBuf>) -> Self {
        self.history = Some(directory.into());
        self
    }

    /// With a say in what becomes of sessions whose client has gone.
    #[must_use]
    pub fn hook(mut self, hook: impl SessionHook) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// With an agent that does the work.
    #[must_use]
    pub fn agent(mut self, agent: impl Agent) -> Self {
        self.agents.agent = Some(Arc::new(agent));
        self
    }

    /// With somebody who does the work of MCP sessions, such as a [`crate::mcp::Gateway`].
    #[must_use]
    pub fn mcp(mut self, agent: impl Agent) -> Self {
        self.agents.mcp = Some(Arc::new(agent));
        self
    }

    /// Begins: from now on deadlines are looked after. To be called inside a tokio runtime.
    pub fn start(self) -> Result<Sessions, Unavailable> {
        let now = self.clock.now();
        let (timeline, series) = match &self.history {
            Some(directory) => (Timeline::open(directory), Series::open(directory, now)),
            None => Default::default(),
        };
        let shared = Arc::new(Shared {
            store: StoreView::new(self.store),
            session_settings: Arc::new(self.settings.session.clone()),
            settings: self.settings,
            clock: self.clock,
            started: now,
            process: ProcessId::from_random(random::bytes()?),
            hook: self.hook,
            agents: self.agents,
            agent_counts: Arc::default(),
            claims: Claims::default(),
            deadlines: Notify::new(),
            tasks: Tasks::new(),
            stop: watch::Sender::new(false),
            drivers: Drivers::default(),
            draining: watch::Sender::new(false),
            metrics: Metrics::new(),
            series,
            timeline,
            hubs: Hubs::default(),
            service: OnceLock::new(),
        });
        let own = Arc::clone(&shared);
        shared.tasks.spawn(|owned| reaper::run(owned, own));
        let own = Arc::clone(&shared);
        shared.tasks.spawn(|_| pulse::run(own));
        let parked = shared.store.parked_at_start();
        for Parked { id, generation } in &parked {
            shared.noted(id, *generation, Happening::ParkedByRestart);
        }
        shared.hubs.note_left(parked.iter().map(|Parked { id, .. }| id.clone()).collect());
        if shared.hook.is_some() && !parked.is_empty() {
            let own = Arc::clone(&shared);
            shared.tasks.spawn(|owned| asking::ask_after_start(owned, own, parked));
        }
        let last = Arc::new(StopWhenDropped(Arc::clone(&shared)));
        Ok(Sessions { shared, _last: last })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
