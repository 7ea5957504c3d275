//! Keeps what all out logs hold together within its bound, and lets go of what has outlived its
//! retention in sessions that nothing happens to.
//!
//! Both change a session without a commit: trims may be lost in a crash, which only offers again what
//! the client has. A session that was changed since its last commit is left alone until that is done.

use std::sync::Arc;

use rejoin_core::log::Trimmed;
use rejoin_core::state::Shed;
use rejoin_core::{Principal, SessionId, Timestamp};

use super::apply::Tables;
use super::shared::Shared;
use super::slot::{Session, Slot};
use crate::account::Counted;
use crate::relief;

impl Shared {
    /// Counts a session with what it holds now.
    pub(super) fn count_held(&self, session: &mut Session) {
        let (was, now) = (session.in_account, session.counts());
        if was != now && !session.forgotten {
            let about = &session.state.about;
            self.accounts.count(&about.principal, &about.id, was, now);
            self.measurements.holds(was.held_bytes(), now.held_bytes());
            session.in_account = now;
        }
    }

    /// A session is forgotten: it counts no more.
    pub(super) fn uncount(&self, session: &mut Session) {
        session.forgotten = true;
        let about = &session.state.about;
        let was = std::mem::take(&mut session.in_account);
        self.accounts.count(&about.principal, &about.id, was, Counted::default());
        self.measurements.holds(was.held_bytes(), 0);
    }

    /// Lets go of what the out log of a session has too much of.
    pub(super) fn trim(&self, session: &mut Session, now: Timestamp) {
        let trimmed = session.state.settle(&self.bounds, now);
        session.unsaved |= trimmed != Trimmed::default();
        self.measurements.overflowed(trimmed.unacked);
    }

    /// Has sessions of principals that hold too much give way, and all sessions if they do together. To be
    /// called by the writer.
    pub(super) fn keep_to_bound(&self, tables: &Tables) {
        for (principal, excess) in self.accounts.excesses() {
            self.relieve(tables, Some(&principal), excess);
        }
        self.relieve(tables, None, self.accounts.excess());
    }

    fn relieve(&self, tables: &Tables, whose: Option<&Principal>, excess: usize) {
        if excess == 0 {
            return;
        }
        let ranked = tables.by_id.values().filter_map(|slot| {
            let session = slot.lock_packed();
            let holds = session.in_account.holding().events > 0;
            let concerned = whose.is_none_or(|whose| *whose == session.state.about.principal);
            let may_give = holds && concerned && !session.plan.is_changed();
            may_give.then(|| (relief::rank(&session.state), Arc::clone(slot)))
        });
        relief::relieve(&mut ranked.collect::<Vec<_>>(), excess, |slot, what, bytes| {
            self.shed(slot, what, bytes)
        });
    }

    fn shed(&self, slot: &Slot, what: Shed, bytes: usize) -> usize {
        let session = &mut *slot.lock();
        let (trimmed, freed) = relief::shed(&mut session.state, what, bytes);
        self.measurements.shed(trimmed);
        session.unsaved = true;
        self.count_held(session);
        freed
    }

    /// Looks through some sessions, from after `after`, for events that have outlived their retention.
    /// Says which one was the last, and whether anything has gone.
    pub(super) fn settle_some(
        &self,
        after: Option<&SessionId>,
        now: Timestamp,
    ) -> Option<(SessionId, bool)> {
        let some = self.index.step(after);
        let last = some.last()?.0.clone();
        let gone = some.iter().filter(|(_, slot)| self.settle(slot, now)).count();
        Some((last, gone > 0))
    }

    fn settle(&self, slot: &Slot, now: Timestamp) -> bool {
        let session = &mut *slot.lock_packed();
        let outlived = !session.plan.is_changed() && session.has_outlived(&self.bounds, now);
        if outlived {
            session.unpack();
            session.state.settle(&self.bounds, now);
            session.unsaved = true;
            self.count_held(session);
        }
        outlived
    }
}
