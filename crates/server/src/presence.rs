//! That a client is attached to a session: how it comes to be, and what follows when it is over. Both are done to their
//! end in tasks of the server, whatever becomes of whoever asked.

use std::sync::Arc;

use rejoin_core::lifetime::{Lifetime, Verdict};
use rejoin_core::record::{About, Ending};
use rejoin_core::state::{Ack, Attach, Attached, Detach, End};
use rejoin_core::{Generation, Seq, limits};
use rejoin_store::{Failure, Unavailable};

use crate::asking;
use crate::error::AttachError;
use crate::hook::Lifecycle;
use crate::metrics::Counted;
use crate::shared::Shared;
use crate::tasks::{Begun, Owned};
use crate::timeline::Happening;

/// A client is attached under a generation. Dropping it parks the session, if no other client is attached by then.
pub(crate) struct Presence {
    shared: Arc<Shared>,
    about: Arc<About>,
    generation: Generation,
    /// Whether the session knows already that it is over.
    is_over: bool,
    _counted: Counted,
}

impl Presence {
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Nothing is left to be said: the session is parked, has ended, or has another client.
    pub(crate) fn is_over(&mut self) {
        self.is_over = true;
    }

    /// Notes in the store what the client has received. It may be lost in a crash.
    pub(crate) fn ack(&self, seq: Seq) -> Begun<()> {
        let (shared, about) = (Arc::clone(&self.shared), Arc::clone(&self.about));
        let ack = Ack { generation: self.generation, seq };
        self.shared.tasks.begin(|owned| async move {
            // If it is refused the client has been replaced, and is told so.
            let _ = shared.store.change(owned).ack(&about.id, ack).await;
        })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.park();
    }
}

impl Presence {
    /// The client has gone.
    pub(crate) fn park(&mut self) {
        // When the server is back it parks what was attached: no policy takes its stop for a disconnect.
        if std::mem::replace(&mut self.is_over, true) || self.shared.is_stopping() {
            return;
        }
        let (shared, about, generation) =
            (Arc::clone(&self.shared), Arc::clone(&self.about), self.generation);
        self.shared.tasks.spawn(|owned| async move {
            if let Err(error) = shared.detach(owned, &about, generation).await {
                tracing::error!(session = %about.id, %error, "session not parked");
            }
        });
    }
}

impl std::fmt::Debug for Presence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Presence").field(&self.about.id).field(&self.generation).finish()
    }
}

impl Shared {
    /// Attaches a client.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        owned: Owned,
        id: &rejoin_core::SessionId,
        attach: Attach,
    ) -> Result<(Attached, Presence), AttachError> {
        let attached = self.store.change(owned).attach(id, attach).await?;
        let record = &attached.record;
        self.happened(Lifecycle::Attached, record);
        let mut counted = Counted::by(&self.metrics.attached);
        counted.set(true);
        let presence = Presence {
            shared: Arc::clone(self),
            about: Arc::clone(&record.about),
            generation: record.generation,
            is_over: false,
            _counted: counted,
        };
        self.agent_looks(&record.about);
        Ok((attached, presence))
    }

    /// Parks a session whose client of this generation has gone; says whether one was attached. The policy has its say,
    /// or the hook instead, if there is one: until it decides, the session has its longest ttl, so that a hook that never
    /// does leaks nothing.
    pub(crate) async fn detach(
        self: &Arc<Self>,
        owned: Owned,
        about: &About,
        generation: Generation,
    ) -> Result<bool, Unavailable> {
        let (id, now) = (&about.id, self.clock.now());
        let lifetime = match self.hook {
            Some(_) => Lifetime::keeping(self.settings.session.lifetime.session_ttl),
            None => self.settings.session.lifetime,
        };
        let detach = Detach { generation, lifetime, now };
        let verdict = match self.store.change(owned).detach(id, detach).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) | Err(Failure::Refused(_) | Failure::NotFound) => return Ok(false),
            Err(Failure::Unavailable(unavailable)) => return Err(unavailable),
        };
        self.metrics.parked();
        self.noted(id, generation, Happening::Parked);
        self.deadline_set(match verdict {
            Verdict::KeepUntil(until) => until,
            Verdict::End => now + limits::END_FOLLOWS,
        });
        self.agent_looks(about);
        match verdict {
            _ if self.hook.is_some() => drop(asking::ask(self, id, generation, now).await?),
            Verdict::KeepUntil(_) => {}
            Verdict::End => self.clean_up(owned, id, generation).await?,
        }
        Ok(true)
    }

    /// Ends a session that is parked under this generation, because the policy wants it.
    pub(crate) async fn clean_up(
        self: &Arc<Self>,
        owned: Owned,
        id: &rejoin_core::SessionId,
        generation: Generation,
    ) -> Result<(), Unavailable> {
        let end = End {
            ending: Ending::CleanedUp,
            only_parked: Some(generation),
            only_by: None,
            only_due: false,
            remember_for: self.settings.remember_for(),
            now: self.clock.now(),
        };
        match self.end(owned, id, end).await {
            Ok(_) | Err(Failure::Refused(_) | Failure::NotFound) => Ok(()),
            Err(Failure::Unavailable(unavailable)) => Err(unavailable),
        }
    }
}
