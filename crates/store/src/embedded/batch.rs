//! One commit in the making: what its requests did, and who waits to hear of it.

use std::num::NonZeroU64;
use std::sync::Arc;

use rejoin_core::record::About;
use rejoin_core::{InSeq, Seq, Timestamp};

use super::commit::SessionRow;
use super::index::IndexChange;
use super::journal::{Key, Records};
use super::limits;
use super::piece::{Ledger, Piece, Row};
use super::request::Answer;
use super::slot::{Session, Slot, Touches, Trace};
use super::waiting::{Ticket, Waiting};
use crate::audit::AuditRecord;
use crate::changes::News;
use crate::contract::Body;
use crate::forgotten::SealNote;

/// What goes into the next commit.
#[derive(Debug)]
pub(super) struct Batch {
    /// The journal row that it becomes.
    pub(super) row: Arc<Row>,
    /// What is in that row.
    pub(super) records: Records,
    /// Sessions of which more is written than records of their logs.
    pub(super) traced: Vec<Arc<Slot>>,
    /// Their rows.
    pub(super) rows: Vec<SessionRow>,
    /// Rows of sessions that go.
    pub(super) deleted: Vec<Key>,
    /// For the audit trail.
    pub(super) audit: Vec<AuditRecord>,
    /// Which older seals are refused from now on, if their session is not known.
    pub(super) forgotten_seals: Vec<SealNote>,
    /// Sessions about which this row is the first to say something that no note says.
    pub(super) unnoted: Vec<Key>,
    /// Whether message ids are in the row.
    pub(super) has_ids: bool,
    /// What is to be done once it is durable.
    pub(super) aftermath: Aftermath,
}

/// What is to be done once a commit has returned.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// The row that says all of it, once there is one.
    pub(super) row: Option<Arc<Row>>,
    /// Sessions of which more was changed than that events were added: readers may see it then.
    pub(super) touched: Vec<Arc<Slot>>,
    /// Sessions that readers will see changed.
    pub(super) changed: Vec<(Arc<About>, News)>,
    /// What readers will see come and go.
    pub(super) index_changes: Vec<IndexChange>,
    /// Bodies that were written again.
    pub(super) moves: Vec<Move>,
    /// The latest moment that a request spoke of.
    pub(super) now: Timestamp,
    /// Who is to be told more than that.
    pub(super) answers: Vec<Answer>,
    /// Who waits for it to be done.
    pub(super) waiting: Waiting,
}

impl Aftermath {
    /// How many requests wait for it.
    pub(super) fn requests(&self) -> usize {
        self.answers.len() + self.waiting.tickets()
    }

    /// For somebody who waits for it to be done.
    pub(super) fn ticket(&mut self) -> Ticket {
        self.waiting.ticket()
    }
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
            traced: Vec::new(),
            rows: Vec::new(),
            deleted: Vec::new(),
            audit: Vec::new(),
            forgotten_seals: Vec::new(),
            unnoted: Vec::new(),
            has_ids: false,
            aftermath: Aftermath::default(),
        }
    }

    /// The running number that the commit will have.
    pub(super) fn number(&self) -> u64 {
        self.row.number()
    }

    /// How many requests are in it.
    pub(super) fn requests(&self) -> usize {
        self.aftermath.requests()
    }

    /// Whether it takes no further request.
    pub(super) fn is_full(&self) -> bool {
        self.requests() >= limits::BATCH_REQUESTS || self.records.len() >= limits::BATCH_BYTES
    }

    /// Whether anything must be written. Acks, renewed leases and refusals alone need no commit.
    pub(super) fn must_commit(&self) -> bool {
        self.records.len() > 0
            || !self.traced.is_empty()
            || !self.deleted.is_empty()
            || !self.audit.is_empty()
    }

    /// A body that will be in this row, somewhere.
    pub(super) fn piece(&self, body: Body) -> Piece {
        Piece::unwritten(&self.row, body)
    }

    /// To be called before a session is changed: what readers see is kept until the commit.
    pub(super) fn touch(&mut self, slot: &Arc<Slot>, session: &mut Session, touches: Touches) {
        self.touch_some(slot, session, touches, News::Anything);
    }

    /// The same before a message is entered.
    pub(super) fn touch_messages(&mut self, slot: &Arc<Slot>, session: &mut Session) {
        self.touch_some(slot, session, Touches::Record, News::Messages);
    }

    fn touch_some(
        &mut self,
        slot: &Arc<Slot>,
        session: &mut Session,
        touches: Touches,
        news: News,
    ) {
        session.put_aside(touches);
        session.plan.reschedule |= touches >= Touches::Record;
        if !session.plan.is_changed() {
            session.touched = self.number();
        }
        if session.plan.changed < Some(news) {
            session.plan.changed = Some(news);
            self.aftermath.changed.push((Arc::clone(&session.state.about), news));
        }
        if touches >= Touches::Record {
            self.list(slot, session);
        }
        debug_assert_eq!(session.touched, self.number(), "changed by one commit at a time");
    }

    /// The writer will go through this session once the commit has returned.
    pub(super) fn list(&mut self, slot: &Arc<Slot>, session: &mut Session) {
        if !session.plan.listed {
            session.plan.listed = true;
            self.aftermath.touched.push(Arc::clone(slot));
        }
    }

    /// To be called after: what the commit must write besides the records of the logs.
    pub(super) fn leave(&mut self, slot: &Arc<Slot>, session: &mut Session, trace: Trace) {
        debug_assert!(session.plan.listed || trace == Trace::Nothing, "a plan that nobody ends");
        if session.plan.trace == Trace::Nothing && trace > Trace::Nothing {
            self.traced.push(Arc::clone(slot));
        }
        session.plan.trace = session.plan.trace.max(trace);
    }

    /// The out log of a session is to be trimmed after the commit, as of `now`.
    pub(super) fn settle(&mut self, session: &mut Session, now: Timestamp) {
        session.plan.settle = true;
        self.aftermath.now = self.aftermath.now.max(now);
    }

    /// To be called when the row says something about a session that its own row does not say.
    pub(super) fn says_something_of(&mut self, session: &mut Session) {
        if session.unnoted_from.is_none() {
            session.unnoted_from = NonZeroU64::new(self.number());
            self.unnoted.push(session.key);
        }
    }
}
