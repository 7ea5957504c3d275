//! The lease: the right to run a session's agent and to append to its out log.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Term;
use rejoin_core::record::Ending;
use rejoin_core::state::{AppendRefused, LeaseHeld, TakeLease};
use rejoin_core::worker::{PublishRefused, WorkerInput};
use rejoin_store::Failure;

use crate::driver::{Done, Driver};

/// How long the lease lasts where several processes share a store.
const LEASE: Duration = Duration::from_secs(60);

/// A lease that somebody else has is asked for again after this long.
const BEFORE_ASKING_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lease {
    None,
    Asked,
    Held(Term),
}

/// What the store answers to who wants the lease.
pub(in crate::driver) enum Leased {
    /// This process has it, under this term.
    Here(Term),
    /// Another process has it.
    Elsewhere,
    /// There is nothing to run any more.
    Over(Ending),
}

impl Driver {
    /// Gives the lease back, so that another process need not wait for it to run out; says whether
    /// there was one.
    pub(in crate::driver) fn give_up_lease(&mut self) -> bool {
        let Lease::Held(term) = self.seat.lease else { return false };
        if self.worker.awaits_store() {
            return false;
        }
        self.seat.lease = Lease::None;
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        self.agent_lane.push(async move {
            match shared.store.change(owned).give_up_lease(&id, term).await {
                Ok(()) => Done::Nothing,
                Err(unavailable) => Done::Failed(unavailable),
            }
        });
        true
    }

    pub(super) fn take_lease(&mut self) {
        self.seat.lease = Lease::Asked;
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        self.agent_lane.push(async move {
            let holder = shared.process.clone();
            let take = TakeLease { holder, lasts: LEASE, now: shared.clock.now() };
            match shared.store.change(owned).take_lease(&id, take).await {
                Ok(term) => Done::Leased(Leased::Here(term)),
                Err(Failure::Refused(LeaseHeld::ByOther(_))) => Done::Leased(Leased::Elsewhere),
                Err(Failure::Refused(LeaseHeld::Ended(how))) => Done::Leased(Leased::Over(how)),
                Err(Failure::NotFound) => Done::Leased(Leased::Over(Ending::Closed)),
                Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable),
            }
        });
    }

    /// The store has answered who has the lease.
    pub(in crate::driver) fn leased(&mut self, leased: Leased) {
        let early = std::mem::take(&mut self.seat.early);
        let refused = match leased {
            Leased::Here(term) => {
                self.seat.lease = Lease::Held(term);
                self.handle(WorkerInput::Leased { term });
                for (ticket, publication) in early {
                    self.handle(WorkerInput::Publish { ticket, publication });
                }
                return;
            }
            Leased::Elsewhere => {
                self.seat.not_before = Some(self.shared.clock.now() + BEFORE_ASKING_AGAIN);
                PublishRefused::NoLease
            }
            Leased::Over(how) => {
                self.handle(WorkerInput::Looked(None));
                PublishRefused::Refused(AppendRefused::Ended(how))
            }
        };
        self.seat.lease = Lease::None;
        for (ticket, _) in early {
            self.published(ticket, Err(refused.clone()));
        }
    }
}
