//! Bounds the memory that bodies take. Over the bound, the bodies of sessions that nothing happened
//! to for the longest time leave memory, of parked ones first: they are in the journal anyway.

use std::collections::VecDeque;
use std::sync::Arc;

use super::piece::Ledger;
use super::slot::{Session, Slot};

/// The sessions that may have bodies in memory.
#[derive(Debug)]
pub(super) struct Spill {
    bound: u64,
    ledger: Arc<Ledger>,
    /// Each with the commit that had last changed it when it came into line.
    line: VecDeque<(Arc<Slot>, u64)>,
}

impl Spill {
    /// Keeps bodies in memory up to `bound` bytes.
    pub(super) fn new(bound: u64, ledger: &Arc<Ledger>) -> Self {
        Self { bound, ledger: Arc::clone(ledger), line: VecDeque::new() }
    }

    /// A session was changed: it may have bodies in memory.
    pub(super) fn note(&mut self, slot: &Arc<Slot>, session: &mut Session) {
        if !session.in_line {
            session.in_line = true;
            self.line.push_back((Arc::clone(slot), session.touched));
        }
    }

    /// Lets bodies leave until there is some room again.
    pub(super) fn keep_to_bound(&mut self) {
        if self.ledger.hot_bytes() <= self.bound {
            return;
        }
        let enough = self.bound - self.bound / 8;
        for gently in [true, false] {
            for _ in 0..self.line.len() {
                if self.ledger.hot_bytes() <= enough {
                    return;
                }
                self.look_at_first(gently);
            }
        }
    }

    /// Sessions that are attached, or were changed since they came into line, get a second chance.
    fn look_at_first(&mut self, gently: bool) {
        let Some((slot, since)) = self.line.pop_front() else { return };
        let mut session = slot.lock();
        let in_use = session.touched > since || session.state.vitals.attached.is_some();
        // What is not committed yet is nowhere else.
        if session.plan.is_changed() || (gently && in_use) {
            let touched = session.touched;
            drop(session);
            self.line.push_back((slot, touched));
            return;
        }
        session.in_line = false;
        session.cool();
    }
}
