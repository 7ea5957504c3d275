//! The say of whoever embeds Rejoin in what becomes of a session whose client has gone.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rejoin_core::limits::GRACE_AFTER_START;
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{End, EndRefused, Keep};
use rejoin_core::{Generation, SessionId, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::time::timeout;

use crate::shared::Shared;
use crate::tasks::Owned;
use crate::timeline::{Death, Happening, Moment};

/// How often whoever waits for a condition looks whether there is still something to wait for.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Is told when a client has gone.
#[async_trait]
pub trait SessionHook: Send + Sync + 'static {
    /// The last client of `session` has gone, or was attached when the server before this one ended.
    /// Whoever has `cleanup` decides when the session is cleaned up: [now](Cleanup::run),
    /// [later](Cleanup::after), or [after a condition](Cleanup::when). It may be kept as long as one
    /// likes, though never longer than `session_ttl`; dropped unused it falls back to the ttl of the
    /// settings. Once a client has come back it does nothing.
    async fn disconnected(&self, session: Record, cleanup: Cleanup);

    /// Something happened in a session's life, and nobody asks what to do about it. Must return at
    /// once: whoever has more to do does it elsewhere.
    fn happened(&self, what: Lifecycle, session: &Record) {
        let _ = (what, session);
    }
}

/// A step in a session's life. The sixth, that its client has gone, is
/// [asked about](SessionHook::disconnected).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// It was made.
    Created,
    /// A client is attached.
    Attached,
    /// It was made to go on from a snapshot.
    Restored,
    /// It was ended.
    Closed,
    /// Its time ran out.
    Expired,
}

impl Lifecycle {
    /// As it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Attached => "attached",
            Self::Restored => "restored",
            Self::Closed => "closed",
            Self::Expired => "expired",
        }
    }

    /// How the end of a session is called.
    pub(crate) fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Expired => Self::Expired,
            Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp => Self::Closed,
        }
    }
}

/// The right to clean a session up after one particular disconnect.
#[derive(Debug)]
pub struct Cleanup {
    /// Taken when it is used.
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    shared: Arc<Shared>,
    session: SessionId,
    /// What was parked. A client that came back has a newer one, and then this claim is void.
    generation: Generation,
    parked_at: Timestamp,
    /// Set for what was there before the server: the deadline that it has if nobody decides.
    otherwise: Option<Timestamp>,
}

/// What became of a clean-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanedUp {
    /// The session has ended.
    Ended,
    /// A client has come back since, or the session ended otherwise: nothing was done.
    Stale,
}

impl Cleanup {
    pub(crate) fn new(
        shared: Arc<Shared>,
        record: &Record,
        parked_at: Timestamp,
        otherwise: Option<Timestamp>,
    ) -> Self {
        let (session, generation) = (record.id().clone(), record.generation);
        shared.claims.lock().insert(session.clone(), generation);
        Self { claim: Some(Claim { shared, session, generation, parked_at, otherwise }) }
    }

    /// The session it is for.
    pub fn session(&self) -> Option<&SessionId> {
        self.claim.as_ref().map(|claim| &claim.session)
    }

    /// Cleans up now.
    pub async fn run(mut self) -> Result<CleanedUp, Unavailable> {
        let Some(claim) = self.claim.take() else { return Ok(CleanedUp::Stale) };
        let shared = Arc::clone(&claim.shared);
        shared.tasks.finish(|owned| async move { claim.end(owned).await }).await?
    }

    /// Cleans up when this much time has passed since the client went. The deadline is stored: it
    /// holds across a restart, and costs no task.
    pub async fn after(mut self, delay: Duration) -> Result<(), Unavailable> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let shared = Arc::clone(&claim.shared);
        shared.tasks.finish(|owned| async move { claim.keep_for(owned, delay).await }).await?
    }

    /// Cleans up once `condition` is fulfilled, unless a client comes back before that or the session
    /// ends; then it does not wait for the condition much longer.
    pub async fn when(self, condition: impl Future<Output = ()>) -> Result<CleanedUp, Unavailable> {
        let Some(claim) = &self.claim else { return Ok(CleanedUp::Stale) };
        let mut condition = pin!(condition);
        while timeout(LOOK_AGAIN, &mut condition).await.is_err() {
            if claim.record().await?.is_none() {
                return Ok(CleanedUp::Stale);
            }
        }
        self.run().await
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let shared = Arc::clone(&claim.shared);
        // If the server is gone, the deadline of `session_ttl`, stored when the client went, stands.
        shared.tasks.spawn(|owned| async move {
            if let Err(error) = claim.fall_back(owned).await {
                tracing::warn!(session = %claim.session, %error, "a session keeps its longest ttl");
            }
        });
    }
}

impl Claim {
    async fn end(&self, owned: Owned) -> Result<CleanedUp, Unavailable> {
        let end = End {
            ending: Ending::CleanedUp,
            only_parked: Some(self.generation),
            only_by: None,
            only_due: false,
            remember_for: self.shared.settings.remember_for(),
            now: self.shared.clock.now(),
        };
        match self.shared.end(owned, &self.session, end).await {
            Ok(_) => Ok(CleanedUp::Ended),
            Err(Failure::NotFound) => Ok(CleanedUp::Stale),
            Err(Failure::Refused(
                EndRefused::Stale(_)
                | EndRefused::Attached
                | EndRefused::NotDue(_)
                | EndRefused::Already,
            )) => Ok(CleanedUp::Stale),
            Err(Failure::Unavailable(unavailable)) => Err(unavailable),
        }
    }

    /// The session as it was parked; nothing if a client has come back since, or it has ended.
    async fn record(&self) -> Result<Option<Record>, Unavailable> {
        let record = self.shared.store.session(&self.session).await?;
        let valid = |record: &Record| record.is_active() && record.generation == self.generation;
        Ok(record.filter(valid))
    }

    /// What the settings want, counted from the last sign of life. Where work is under way the reaper
    /// will see to it that it is not cut short.
    async fn fall_back(&self, owned: Owned) -> Result<(), Unavailable> {
        let Some(record) = self.record().await? else { return Ok(()) };
        let ttl = self.shared.settings.session.lifetime.idle_ttl();
        self.keep_until(owned, self.otherwise.unwrap_or(record.last_activity + ttl)).await
    }

    async fn keep_for(&self, owned: Owned, delay: Duration) -> Result<(), Unavailable> {
        let longest = self.shared.settings.session.lifetime.session_ttl;
        let until = self.parked_at + delay.min(longest);
        // Of what was there before the server nothing expires in its first minute.
        let grace = self.otherwise.map(|_| self.parked_at + GRACE_AFTER_START);
        self.keep_until(owned, until.max(grace.unwrap_or_default())).await
    }

    async fn keep_until(&self, owned: Owned, until: Timestamp) -> Result<(), Unavailable> {
        let keep = Keep { generation: self.generation, until };
        match self.shared.store.change(owned).keep(&self.session, keep).await {
            Ok(()) | Err(Failure::NotFound | Failure::Refused(_)) => {
                self.shared.deadline_set(until);
                Ok(())
            }
            Err(Failure::Unavailable(unavailable)) => Err(unavailable),
        }
    }
}

/// A claim that was used, after what it did, does not keep others from deciding.
impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.shared.claims.lock();
        if claims.get(&self.session) == Some(&self.generation) {
            claims.remove(&self.session);
        }
    }
}

/// The newest disconnect of each session that the hook has not decided about yet.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<SessionId, Generation>>);

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Generation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Counts and notes what has happened and tells the hook, if there is one. Of a session that is over no
    /// client fetches anything any more.
    pub(crate) fn happened(&self, what: Lifecycle, session: &Record) {
        self.metrics.changed(what);
        self.noted(session.id(), session.generation, Happening::of(what, session));
        if !session.is_active() {
            self.hubs.forget_answers(session.id());
        }
        if let Some(hook) = &self.hook {
            hook.happened(what, session);
        }
    }

    /// Something happened to a session that nobody else need be told.
    pub(crate) fn noted(&self, id: &SessionId, generation: Generation, what: Happening) {
        self.timeline.note(id, Moment { at: self.clock.now(), generation, what });
    }

    /// The agent of a session died, or the MCP server behind it.
    pub(crate) fn agent_died(&self, id: &SessionId, generation: Generation, death: Death) {
        let stderr = death.stderr.join("\n");
        tracing::warn!(session = %id, status = &*death.status, stderr, "agent died");
        self.noted(id, generation, Happening::AgentDied(Box::new(death)));
    }

    /// Whether it is the hook that says how long a parked session is kept: it has not decided yet, or
    /// it has set a deadline nearer than the longest.
    pub(crate) async fn hook_decides(
        &self,
        id: &SessionId,
        generation: Generation,
    ) -> Result<bool, Unavailable> {
        if self.hook.is_none() {
            return Ok(false);
        }
        if self.claims.lock().get(id) == Some(&generation) {
            return Ok(true);
        }
        let longest = self.settings.session.lifetime.session_ttl;
        let record = self.store.session(id).await?;
        Ok(record.is_some_and(|record| record.expires_at < record.last_activity + longest))
    }
}
