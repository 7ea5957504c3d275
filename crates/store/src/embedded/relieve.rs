//! Keeps what all out logs hold together within its bound, and lets go of what has outlived its
//! retention in sessions that nothing happens to.
//!
//! Both change a session without a commit: trims may be lost in a crash, which only offers again what
//! the client has. A session that was changed since its last commit is left alone until that is done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rejoin_core::log::Trimmed;
use rejoin_core::state::Shed;
use rejoin_core::{SessionId, Timestamp};

use super::apply::Tables;
use super::shared::Shared;
use super::slot::{Session, Slot};
use crate::relief;

impl Shared {
    /// Counts a session with what it holds now.
    pub(super) fn count_held(&self, session: &mut Session) {
        let held = session.held_bytes();
        self.measurements.holds(session.buffered, held);
        session.buffered = held;
    }

    /// Lets go of what the out log of a session has too much of.
    pub(super) fn trim(&self, session: &mut Session, now: Timestamp) {
        let trimmed = session.state.settle(&self.bounds, now);
        session.unsaved |= trimmed != Trimmed::default();
        self.measurements.overflowed(trimmed.unacked);
    }

    /// Whether all sessions together hold too much.
    pub(super) fn holds_too_much(&self) -> bool {
        self.excess() > 0
    }

    fn excess(&self) -> usize {
        let buffered = self.measurements.buffered_bytes.load(Ordering::Relaxed);
        relief::excess(buffered, self.max_buffered_bytes)
    }

    /// Has sessions give way until they do no longer. To be called by the writer.
    pub(super) fn keep_to_bound(&self, tables: &Tables) {
        let excess = self.excess();
        let ranked = tables.by_id.values().filter_map(|slot| {
            let session = slot.lock_packed();
            let may_give = session.buffered > 0 && !session.plan.changed;
            may_give.then(|| (relief::rank(&session.state), Arc::clone(slot)))
        });
        relief::relieve(&mut ranked.collect::<Vec<_>>(), excess, |slot, what, bytes| {
            self.shed(slot, what, bytes)
        });
    }

    fn shed(&self, slot: &Slot, what: Shed, bytes: usize) -> usize {
        let session = &mut *slot.lock();
        let had = session.state.out.bytes();
        self.measurements.shed(session.state.shed(what, bytes));
        session.unsaved = true;
        self.count_held(session);
        had - session.state.out.bytes()
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
        let outlived = !session.plan.changed && session.has_outlived(&self.bounds, now);
        if outlived {
            session.unpack();
            session.state.settle(&self.bounds, now);
            session.unsaved = true;
            self.count_held(session);
        }
        outlived
    }
}
