//! Takes sessions over from the process that left them behind.

use std::num::NonZeroU64;
use std::sync::Arc;

use rejoin_core::limits::LogBounds;
use rejoin_core::record::{About, Status};
use rejoin_core::state::Recovery;
use rejoin_core::{Generation, SessionId};

use super::index::Entry;
use super::journal::Key;
use super::runs::Runs;
use super::slot::{Session, Slot};
use crate::account::Counted;
use crate::contract::Parked;

/// What becomes of sessions that are taken over. Doing it twice is as doing it once.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeOver<'a> {
    pub(super) bounds: &'a LogBounds,
    pub(super) recovery: &'a Recovery,
    pub(super) runs: &'a Runs,
}

/// A session that was taken over, with what must be known of it to put it in its place: looking at
/// all of them again would take as long as reading them.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) key: Key,
    pub(super) id: SessionId,
    /// Twice: both tables of the writer get one, and who counts later must find it again in memory.
    pub(super) slots: [Arc<Slot>; 2],
    /// Whether it goes on.
    pub(super) is_active: bool,
    /// See [`Session::unnoted_from`].
    pub(super) unnoted_from: Option<NonZeroU64>,
    /// The generation whose client was attached, if one was.
    pub(super) was_attached: Option<Generation>,
    pub(super) events: usize,
    /// What it counts, and for whom.
    pub(super) counted: Counted,
    pub(super) about: Arc<About>,
    /// How many message ids it remembers.
    pub(super) ids: usize,
}

impl Taken {
    /// Itself, if a client was attached to it.
    pub(super) fn parked(&self) -> Option<Parked> {
        self.was_attached.map(|generation| Parked { id: self.id.clone(), generation })
    }
}

impl TakeOver<'_> {
    /// Takes one over whose row was written by commit `as_of`.
    pub(super) fn take(&self, key: Key, slot: Arc<Slot>, as_of: u64) -> (Taken, Entry) {
        let session = &mut *slot.lock_packed();
        let was_attached = self.park(session, as_of);
        session.counted = session.state.vitals.status == Status::Active;
        let counted = session.counts();
        session.in_account = counted;
        let state = &session.state;
        let id = state.about.id.clone();
        let entry = Entry::new(&id, &slot, session.due());
        let taken = Taken {
            key,
            id,
            slots: [Arc::clone(&slot), Arc::clone(&slot)],
            is_active: session.counted,
            unnoted_from: session.unnoted_from,
            was_attached,
            events: session.packed().map_or(state.out.len(), |packed| packed.len()),
            counted,
            about: Arc::clone(&state.about),
            ids: state.ids(),
        };
        (taken, entry)
    }

    /// Parks a session, if it goes on. Says whose client was attached to it.
    fn park(&self, session: &mut Session, as_of: u64) -> Option<Generation> {
        let Self { bounds, recovery, runs } = self;
        let state = &mut session.state;
        if state.vitals.status != Status::Active {
            return None;
        }
        let was_attached = state.vitals.attached.map(|_| state.vitals.generation);
        state.recover(recovery, runs.last_alive(as_of));
        state.inbox.trim(&state.bounds(bounds), recovery.now);
        // What was trimmed without a note is in the journal still.
        let (settled, own) = (state.grows_old(), state.bounds(bounds));
        if session.packed().is_some_and(|packed| packed.is_over(&own, settled, recovery.now)) {
            session.unpack();
            session.state.settle(bounds, recovery.now);
        }
        was_attached
    }
}
