//! One commit in the making: what its requests did, and who waits to hear of it.

use std::sync::Arc;

use rejoin_core::{InSeq, Seq, Timestamp};

use super::index::IndexChange;
use super::journal::{Key, Records};
use super::limits;
use super::piece::{Ledger, Piece, Row};
use super::request::Answer;
use super::slot::{Session, Slot, Takes, Trace};
use crate::audit::AuditRecord;

/// What goes into the next commit.
#[derive(Debug)]
pub(super) struct Batch {
    /// The journal row that it becomes.
    pub(super) row: Arc<Row>,
    /// What is in that row.
    pub(super) records: Records,
    /// Sessions that were changed: their view is put aside until the commit has returned.
    pub(super) touched: Vec<Arc<Slot>>,
    /// Those of them that leave more than records of their logs.
    pub(super) traced: Vec<Arc<Slot>>,
    /// Rows of sessions that go.
    pub(super) deleted: Vec<Key>,
    /// What readers will see come and go.
    pub(super) index_changes: Vec<IndexChange>,
    /// For the audit trail.
    pub(super) audit: Vec<AuditRecord>,
    /// Bodies that are written again in this row.
    pub(super) moves: Vec<Move>,
    /// Sessions about which this row is the first to say something that no note says.
    pub(super) unnoted: Vec<Key>,
    /// Whether message ids are in the row.
    pub(super) has_ids: bool,
    /// Who waits.
    pub(super) answers: Vec<Answer>,
}

/// A body that was written again: from the commit on, it is to be found there.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) slot: Arc<Slot>,
    pub(super) what: Moved,
    /// The row it was in.
    pub(super) from: u64,
    pub(super) to: Piece,
}

/// Which body was written again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moved {
    Event(Seq),
    Entry(InSeq),
    Snapshot,
}

impl Batch {
    /// An empty commit, to become the row with this number.
    pub(super) fn new(number: u64, ledger: &Arc<Ledger>) -> Self {
        Self {
            row: Row::new(number, ledger),
            records: Records::default(),
            touched: Vec::new(),
            traced: Vec::new(),
            deleted: Vec::new(),
            index_changes: Vec::new(),
            audit: Vec::new(),
            moves: Vec::new(),
            unnoted: Vec::new(),
            has_ids: false,
            answers: Vec::new(),
        }
    }

    /// The running number that the commit will have.
    pub(super) fn number(&self) -> u64 {
        self.row.number()
    }

    /// Whether it takes no further request.
    pub(super) fn is_full(&self) -> bool {
        self.answers.len() >= limits::BATCH_REQUESTS || self.records.len() >= limits::BATCH_BYTES
    }

    /// Whether anything must be written. Acks, renewed leases and refusals alone need no commit.
    pub(super) fn must_commit(&self) -> bool {
        self.records.len() > 0
            || !self.traced.is_empty()
            || !self.deleted.is_empty()
            || !self.audit.is_empty()
    }

    /// To be called before a session is changed: puts aside what readers see until the commit.
    pub(super) fn touch(&mut self, slot: &Arc<Slot>, session: &mut Session, takes: Takes) {
        if session.put_aside(takes) {
            self.touched.push(Arc::clone(slot));
            session.touched = self.number();
        }
    }

    /// To be called after: what the commit must write besides the records of the logs.
    pub(super) fn leave(&mut self, slot: &Arc<Slot>, session: &mut Session, trace: Trace) {
        let Some(pending) = &mut session.pending else { return };
        if pending.trace == Trace::Nothing && trace > Trace::Nothing {
            self.traced.push(Arc::clone(slot));
        }
        pending.trace = pending.trace.max(trace);
    }

    /// To be called when the row says something about a session that its own row does not say.
    pub(super) fn says_something_of(&mut self, session: &mut Session) {
        if session.unnoted_from.is_none() {
            session.unnoted_from = Some(self.number());
            self.unnoted.push(session.key);
        }
    }

    /// When the out log is to be trimmed after the commit, and whether the deadline may have changed.
    pub(super) fn afterwards(
        session: &mut Session,
        settle_at: Option<Timestamp>,
        reschedule: bool,
    ) {
        if let Some(pending) = &mut session.pending {
            pending.settle_at = settle_at.or(pending.settle_at);
            pending.reschedule |= reschedule;
        }
    }

    /// Begins the next commit and gives its row's number; buffers are used again.
    pub(super) fn next(&mut self, number: u64, ledger: &Arc<Ledger>) {
        debug_assert!(self.touched.is_empty() && self.answers.is_empty(), "published before");
        self.row = Row::new(number, ledger);
        self.records.clear();
        self.traced.clear();
        self.deleted.clear();
        self.audit.clear();
        self.has_ids = false;
    }
}
