//! All sessions of a server: where they are made, attached to, spoken to and ended. A session that
//! is live has a driver; every other one is a row in the store.

mod builder;
mod due;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::attempt::Attempt;
use rejoin_core::log::EntryKind;
use rejoin_core::page::Body;
use rejoin_core::record::{About, Ending, Kind, Record, Status, Transport};
use rejoin_core::resume::Asked;
use rejoin_core::state::{
    Attach, Create, End, EnterRefused, Entered, Keep, Restore, RestoreRefused, Room, Stale,
    Takeover, TokenUse,
};
use rejoin_core::worker::{Publication, Published};
use rejoin_core::{Epoch, LogId, Principal, ProcessId, SessionId, Timestamp};
use rejoin_store::{Failure, Query, Restoration, Store, Unavailable};
use tokio::sync::oneshot;

use crate::agents::AgentCounts;
use crate::attachment::Attachment;
use crate::clock::Clock;
use crate::driver::{Command, Utterance};
use crate::entry::NewEntry;
use crate::error::{AttachError, CreateError, EndError, PublishError};
use crate::hook::Lifecycle;
use crate::mcp::Hubs;
use crate::metrics::Metrics;
use crate::presence::Presence;
use crate::series::Sample;
use crate::service::{Service, WeakService};
use crate::shared::Shared;
use crate::store_view::StoreView;
use crate::tasks::Owned;
use crate::timeline::{Happening, Moment, Return};
use crate::{entry, random, series};

pub use self::builder::{Builder, ServerSettings};

/// How long drivers, agents and hooks have to end when the server is closed.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// How long the agent of a session that has ended may take to end, before the session is forgotten.
pub(crate) const LAST_RITES: Duration = Duration::from_secs(15);

/// A client that wants to be attached. Who it is has been established.
#[derive(Clone, Debug)]
pub struct Client {
    /// Who it is.
    pub principal: Principal,
    /// How it is connected.
    pub transport: Transport,
    /// Where it wants to go on; nothing for a session that was made for it just now.
    pub asked: Option<Asked>,
    /// The reconnect token it brought, verified.
    pub token: Option<TokenUse>,
}

/// All sessions of a server. Cheap to clone.
///
/// Everything that runs for it ends with [`Sessions::close`], which waits for that; if the last clone
/// is dropped instead it ends too, but nobody waits and the store stays open.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
    _last: Arc<StopWhenDropped>,
}

struct StopWhenDropped(Arc<Shared>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop.send_replace(true);
    }
}

impl Sessions {
    /// Sessions that are kept in `store`.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// Makes a session for a principal. `client` is what its client says of itself, as JSON.
    pub async fn create(
        &self,
        principal: &Principal,
        kind: Kind,
        client: &str,
    ) -> Result<Record, CreateError> {
        self.create_named(SessionId::from_random(random::bytes()?), principal, kind, client).await
    }

    /// Makes a session under an id that its client has chosen.
    pub async fn create_named(
        &self,
        id: SessionId,
        principal: &Principal,
        kind: Kind,
        client: &str,
    ) -> Result<Record, CreateError> {
        let (sessions, about) = (self.clone(), self.about(id, principal, kind, client));
        let made = self
            .finish(|owned| async move { sessions.create_in(owned, about, Room::UNLIMITED).await });
        made.await?
    }

    /// What never changes about a session that is made now.
    pub(crate) fn about(
        &self,
        id: SessionId,
        principal: &Principal,
        kind: Kind,
        client: &str,
    ) -> About {
        let created_at = self.shared.clock.now();
        About { id, principal: principal.clone(), kind, client: client.into(), created_at }
    }

    /// Makes a session, if there is room for it.
    pub(crate) async fn create_in(
        &self,
        owned: Owned,
        about: About,
        room: Room,
    ) -> Result<Record, CreateError> {
        let log = LogId::from_random(random::bytes()?);
        let epoch = Epoch::from_random(random::bytes()?);
        let keep_for = self.shared.settings.session.lifetime.session_ttl;
        let create = Create { about, log, epoch, keep_for, room };
        let record = self.shared.store.change(owned).create(create).await?;
        self.shared.deadline_set(record.expires_at);
        self.shared.happened(Lifecycle::Created, &record);
        Ok(record)
    }

    /// Does some work that nobody waits for.
    pub(crate) fn spawn<F>(&self, work: impl FnOnce(Owned) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shared.tasks.spawn(work);
    }

    /// Waits until the server stops, or all its sessions are dropped; it keeps none of them alive.
    pub(crate) fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.shared.stop.subscribe();
        async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Does some work to its end, whether or not the caller waits for it. The caller waits no longer once the store can't
    /// make commits; work that would begin then is not begun.
    pub(crate) async fn finish<T, F>(&self, work: impl FnOnce(Owned) -> F) -> Result<T, Unavailable>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Shared { store, tasks, .. } = &*self.shared;
        store.check_commits()?;
        store.unless_stalled(tasks.finish(work)).await
    }

    /// A session of this principal; nothing if there is none, or it is somebody else's.
    pub async fn session(
        &self,
        principal: &Principal,
        id: &SessionId,
    ) -> Result<Option<Record>, Unavailable> {
        let record = self.shared.store.session(id).await?;
        Ok(record.filter(|record| record.about.principal == *principal))
    }

    /// Sessions, in the order of their ids.
    pub async fn list(&self, query: &Query) -> Result<Vec<Record>, Unavailable> {
        self.shared.store.sessions(query).await
    }

    /// Attaches a client. What it is told first is where it goes on.
    pub async fn attach(&self, id: &SessionId, client: Client) -> Result<Attachment, AttachError> {
        let (sessions, id) = (self.clone(), id.clone());
        self.finish(|owned| async move { sessions.attach_in(owned, &id, client, None).await })
            .await?
    }

    /// Attaches a client; the attempt is in the audit trail if that changes the session.
    pub(crate) async fn attach_in(
        &self,
        owned: Owned,
        id: &SessionId,
        client: Client,
        attempt: Option<Attempt>,
    ) -> Result<Attachment, AttachError> {
        let shared = &self.shared;
        if shared.is_stopping() {
            return Err(crate::error::gone().into());
        }
        let Client { principal, transport, asked, token } = client;
        let attach = Attach {
            principal,
            transport,
            takeover: shared.settings.takeover,
            token,
            attempt: attempt.map(Box::new),
            now: shared.clock.now(),
        };
        let changes = shared.store.changes(id);
        let (mut attached, presence) = shared.attach(owned, id, attach).await?;
        // What its client was sent by a process before this one is not known: it is not sent again unasked.
        attached.was_seen = attached.was_seen.max(shared.started);
        Ok(Attachment::new(shared, changes, attached, presence, asked))
    }

    /// The same for somebody whose streams read the log themselves.
    pub(crate) async fn be_present(
        &self,
        owned: Owned,
        record: &Record,
        transport: Transport,
    ) -> Result<Presence, AttachError> {
        let attach = Attach {
            principal: record.about.principal.clone(),
            transport,
            takeover: Takeover::Replace, // it replaces itself
            token: None,
            attempt: None,
            now: self.shared.clock.now(),
        };
        Ok(self.shared.attach(owned, record.id(), attach).await?.1)
    }

    /// Publishes into a session's out log, on behalf of its agent; returns once it is durable.
    pub async fn publish(
        &self,
        id: &SessionId,
        publication: Publication,
    ) -> Result<Published, PublishError> {
        self.shared.store.session(id).await?.ok_or(Failure::NotFound)?;
        let (reply, answer) = oneshot::channel();
        let publication = Box::new(publication);
        let utterance = Utterance { publication, sitting: None, reply };
        self.shared.ask(id, Command::Publish(utterance)).await?;
        answer.await.map_err(|_| crate::error::gone())?
    }

    /// Enters a message in a session's in log; returns once it is durable. With a `message_id` that
    /// was seen before it is not entered again.
    pub async fn send(
        &self,
        id: &SessionId,
        kind: EntryKind,
        message_id: Option<&str>,
        body: Body,
    ) -> Result<Entered, Failure<EnterRefused>> {
        let record = self.shared.store.session(id).await?.ok_or(Failure::NotFound)?;
        let digest = message_id.map(|id| entry::digest(id, &body));
        let new = NewEntry { generation: None, kind, digest, body };
        self.shared.enter(&record.about, new).outcome().await?
    }

    /// Ends a session.
    pub async fn end(&self, id: &SessionId) -> Result<Record, EndError> {
        let (sessions, id) = (self.clone(), id.clone());
        self.finish(|owned| async move { sessions.end_in(owned, &id).await }).await?
    }

    pub(crate) async fn end_in(&self, owned: Owned, id: &SessionId) -> Result<Record, EndError> {
        let end = End {
            ending: Ending::Closed,
            only_parked: None,
            only_by: None,
            only_due: false,
            remember_for: self.shared.settings.remember_for(),
            now: self.shared.clock.now(),
        };
        self.shared.end(owned, id, end).await
    }

    /// Ends a session of which nothing was given out by which anybody could come back to it, and forgets it
    /// as soon as its agent has ended. Returns at once.
    pub(crate) fn end_and_forget(&self, id: &SessionId) {
        let (sessions, id) = (self.clone(), id.clone());
        self.shared.tasks.spawn(|owned| async move {
            if let Ok(Record { status: Status::Ended { forget_at, .. }, .. }) =
                sessions.end_in(owned, &id).await
                && sessions.comes_to_rest(&id, LAST_RITES).await
            {
                sessions.hubs().forget(&id);
                // If the store does not work it is forgotten when its time has come.
                let _ = sessions.shared.store.change(owned).forget(&id, forget_at).await;
                sessions.shared.timeline.forget(&id);
            }
        });
    }

    /// Goes on from a snapshot. The session that it was taken of ends where it still lived: whoever is
    /// attached there is superseded, its agent stops.
    pub async fn restore(&self, restore: Restore<Body>) -> Result<Record, Failure<RestoreRefused>> {
        let sessions = self.clone();
        self.finish(|owned| async move { sessions.restore_in(owned, restore).await }).await?
    }

    pub(crate) async fn restore_in(
        &self,
        owned: Owned,
        restore: Restore<Body>,
    ) -> Result<Record, Failure<RestoreRefused>> {
        let forget_at = restore.now + restore.remember_for;
        let (record, replaced) = match self.shared.store.change(owned).restore(restore).await? {
            Restoration::Joined(record) => return Ok(*record),
            Restoration::Made { record, replaced } => (record, replaced),
        };
        self.shared.deadline_set(record.expires_at.min(forget_at));
        if let Some(replaced) = &replaced {
            self.shared.happened(Lifecycle::Closed, replaced);
        }
        self.shared.happened(Lifecycle::Restored, &record);
        if let Some(replaced) = &replaced {
            self.shared.driver_looks(replaced.id());
        }
        Ok(*record)
    }

    /// The session in which one that has ended goes on: of the same principal and kind, or none.
    pub(crate) async fn session_after(&self, left: &Record) -> Result<Option<Record>, Unavailable> {
        let Status::Ended { ending: Ending::Restored { to }, .. } = &left.status else {
            return Ok(None);
        };
        let next = self.shared.store.session(to).await?;
        let owner = |record: &Record| (record.about.principal.clone(), record.about.kind);
        Ok(next.filter(|next| owner(next) == owner(left)))
    }

    /// Cuts the connection of a session's client, as a network might, and keeps the session. Says
    /// whether there was one.
    pub async fn cut(&self, id: &SessionId) -> Result<bool, Unavailable> {
        let (shared, id) = (Arc::clone(&self.shared), id.clone());
        let cut = self.finish(|owned| async move {
            match shared.store.session(&id).await? {
                // Its reader sees that it is attached no longer.
                Some(record) => shared.detach(owned, &record.about, record.generation).await,
                None => Ok(false),
            }
        });
        cut.await?
    }

    /// Ends a session's agent as a crash would, wherever it is; another one goes on from the state that is
    /// stored, with the messages that it does not cover. Says whether there was one in this process.
    pub async fn restart_agent(&self, id: &SessionId) -> bool {
        let Some(driver) = self.shared.drivers.get(id) else { return false };
        let (reply, answer) = oneshot::channel();
        let asked = driver.send(Command::Restart { reply }).await;
        asked.is_ok() && answer.await.unwrap_or(false)
    }

    /// Sets the deadline of a session that nobody is attached to, if its generation is still this one.
    pub async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>> {
        let (sessions, id) = (self.clone(), id.clone());
        let kept = self.finish(|owned| async move {
            let kept = sessions.shared.store.change(owned).keep(&id, keep).await;
            sessions.shared.deadline_set(keep.until);
            kept
        });
        kept.await?
    }

    /// What can be read of the store behind them.
    pub fn store(&self) -> &StoreView {
        &self.shared.store
    }

    /// Notes who serves them: whoever works for a session may need what only that can do. The first
    /// one counts. From now on there is somebody who may want to know how the server has been doing.
    pub(crate) fn served_by(&self, service: WeakService) {
        if self.shared.service.set(service).is_ok() {
            let shared = Arc::clone(&self.shared);
            self.shared.tasks.spawn(|_| series::run(shared));
        }
    }

    /// Who serves them, if somebody does.
    pub(crate) fn service(&self) -> Option<Service> {
        self.shared.service.get().and_then(WeakService::upgrade)
    }

    /// What is known in this process of MCP sessions.
    pub(crate) fn hubs(&self) -> &Hubs {
        &self.shared.hubs
    }

    /// The name of this process among those that may run its sessions.
    pub fn process(&self) -> &ProcessId {
        &self.shared.process
    }

    /// The time line they live on.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// How they are treated.
    pub fn settings(&self) -> &ServerSettings {
        &self.shared.settings
    }

    /// What happened to agents so far.
    pub fn agent_counts(&self) -> &AgentCounts {
        &self.shared.agent_counts
    }

    /// Whether a session is live in this process.
    pub(crate) fn is_live(&self, id: &SessionId) -> bool {
        self.shared.drivers.get(id).is_some()
    }

    /// Waits until a session is not live in this process, but not for ever; says whether it is not.
    pub(crate) async fn comes_to_rest(&self, id: &SessionId, patience: Duration) -> bool {
        let Some(driver) = self.shared.drivers.get(id) else { return true };
        tokio::time::timeout(patience, driver.closed()).await.is_ok() && !self.is_live(id)
    }

    /// How many sessions are live in this process.
    pub fn live(&self) -> usize {
        self.shared.drivers.len()
    }

    /// How many of them have an agent at work, or something on its way to the store.
    pub fn working(&self) -> usize {
        usize::try_from(self.shared.metrics.working.get()).unwrap_or(0)
    }

    /// What was counted and measured so far, in the format of Prometheus.
    pub async fn metrics(&self) -> Result<String, Unavailable> {
        let active = self.shared.store.count(None).await?;
        let Shared { agent_counts, store, metrics, .. } = &*self.shared;
        Ok(metrics.encode(active, agent_counts, store.measurements(), store.bytes()))
    }

    /// How the server is doing at this moment.
    pub async fn sample(&self) -> Result<Sample, Unavailable> {
        series::look(&self.shared).await
    }

    /// How it has been doing since then, for up to an hour: a sample every five seconds, oldest first.
    /// They are taken once a [`Service`](crate::service::Service) serves these sessions.
    pub fn samples(&self, after: Option<Timestamp>) -> Vec<Sample> {
        self.shared.series.after(after)
    }

    /// What happened to a session lately, oldest first, as far as it is remembered.
    pub fn timeline(&self, id: &SessionId) -> Vec<Moment> {
        self.shared.timeline.of(id)
    }

    /// When timelines begin that were handed on by processes before this one.
    pub(crate) fn timeline_since(&self) -> Option<Timestamp> {
        self.shared.timeline.since()
    }

    /// Notes that a client came back to a session.
    pub(crate) fn came_back(&self, record: &Record, back: Return) {
        self.shared.noted(record.id(), record.generation, Happening::Resumed(Box::new(back)));
    }

    pub(crate) fn counted(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Looks after agents of sessions that had work under way when the server stopped, until all of
    /// them have been started; says how many. Where a [`Service`] serves them it is made before: a call that runs again
    /// may need it.
    pub async fn resume_work(&self) -> Result<usize, Unavailable> {
        let mut query = Query { active_only: true, limit: 256, ..Query::default() };
        let mut started = 0;
        loop {
            let page = self.shared.store.sessions(&query).await?;
            let here = |record: &Record| self.shared.agents.of(record.about.kind).is_some();
            for record in page.iter().filter(|record| record.has_work() && here(record)) {
                self.shared.wake(record.id());
                started += 1;
            }
            match page.last() {
                Some(last) => query.after = Some(last.id().clone()),
                None => return Ok(started),
            }
        }
    }

    /// Tells every client that the server is going down and will be back.
    pub fn drain(&self) {
        self.shared.draining.send_replace(true);
    }

    /// Ends everything that runs and closes the store. What is on its way to the store gets there
    /// first, agents are stopped, clients are told to come back. Sessions stay as they are: no policy
    /// takes this for a disconnect.
    pub async fn close(&self) -> Result<(), Unavailable> {
        self.shared.stop.send_replace(true);
        self.shared.tasks.end(LAST_CALLS).await;
        self.shared.store.close().await
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}
