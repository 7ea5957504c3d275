//! One session in memory: its state as the writer has it, and the view that readers may have of it.
//!
//! The writer applies a change before it is durable. Until the commit has returned, readers must not
//! see it: a client that saw an event which a crash takes back would later drop a real one. So the
//! first change since the last commit puts the view of before aside ([`Pending`]), and readers get
//! that. A lock is held for the moment of a look or a change, never during a commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::Timestamp;
use rejoin_core::log::{Inbox, OutLog};
use rejoin_core::record::Record;
use rejoin_core::state::{SessionState, Snapshot};

use super::journal::{Key, Numbers};
use super::piece::Piece;

/// A session, shared between the writer and the readers.
#[derive(Debug)]
pub(super) struct Slot(Mutex<Session>);

/// What is in a slot.
#[derive(Debug)]
pub(super) struct Session {
    /// The session as of the last change, committed or not.
    pub(super) state: SessionState<Piece>,
    /// The name of its row and its logs.
    pub(super) key: Key,
    /// The checksum of its row, if it has one.
    pub(super) row_sum: Option<u32>,
    /// The oldest journal row that says something about it which neither its own row nor a later note
    /// says. That row must not be deleted before a note was made.
    pub(super) unnoted_from: Option<u64>,
    /// Whether something is known of it that no file says, and need not: an ack, a trim.
    pub(super) unsaved: bool,
    /// Where it stands in the index of deadlines.
    pub(super) due: Option<Timestamp>,
    /// The commit that it was last changed in.
    pub(super) touched: u64,
    /// Whether it stands in the line of those whose bodies may leave memory.
    pub(super) in_line: bool,
    /// What the commit that is being made will do to it.
    pub(super) pending: Option<Box<Pending>>,
}

/// What readers see while changes wait for their commit, and what is to be done with it.
#[derive(Debug)]
pub(super) struct Pending {
    record: Record,
    /// Put aside as well if a change took something away or replaced it.
    contents: Option<Contents>,
    /// What the commit writes of it besides the records of its logs.
    pub(super) trace: Trace,
    /// As of when the out log is trimmed after the commit.
    pub(super) settle_at: Option<Timestamp>,
    /// Whether its deadline may have changed.
    pub(super) reschedule: bool,
}

#[derive(Debug)]
struct Contents {
    out: Option<OutLog<Piece>>,
    inbox: Inbox<Piece>,
    snapshot: Option<Snapshot<Piece>>,
}

/// What a change leaves behind besides the records of the logs. Each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trace {
    /// Nothing: it may be lost in a crash, or the logs' own records say it.
    Nothing,
    /// A note in the journal.
    Note,
    /// The session's row.
    Row,
}

/// How much a change may take away, and so must be put aside for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Takes {
    /// Nothing: what was there stays where it is.
    Nothing,
    /// Entries, or the snapshot.
    Inbox,
    /// Everything.
    All,
}

impl Slot {
    /// A session that has just been made or read.
    pub(super) fn new(key: Key, state: SessionState<Piece>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Session {
            state,
            key,
            row_sum: None,
            unnoted_from: None,
            unsaved: false,
            due: None,
            touched: 0,
            in_line: false,
            pending: None,
        })))
    }

    /// The session, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, Session> {
        // After a panic of the writer the view that was put aside is still the truth.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Puts aside what readers see, as far as a change is about to take it away. Says whether this is
    /// the first change since the last commit.
    pub(super) fn put_aside(&mut self, takes: Takes) -> bool {
        let first = self.pending.is_none();
        let state = &self.state;
        let pending = self.pending.get_or_insert_with(|| {
            Box::new(Pending {
                record: state.record(),
                contents: None,
                trace: Trace::Nothing,
                settle_at: None,
                reschedule: false,
            })
        });
        if takes >= Takes::Inbox && pending.contents.is_none() {
            let (inbox, snapshot) = (state.inbox.clone(), state.snapshot.clone());
            pending.contents = Some(Contents { out: None, inbox, snapshot });
        }
        if takes == Takes::All
            && let Some(contents) = &mut pending.contents
            && contents.out.is_none()
        {
            contents.out = Some(state.out.clone());
        }
        first
    }

    /// The session as of the last commit.
    pub(super) fn record(&self) -> Record {
        match &self.pending {
            Some(pending) => pending.record.clone(),
            None => self.state.record(),
        }
    }

    /// The out log; what lies beyond the head of [`Session::record`] is not committed yet.
    pub(super) fn out(&self) -> &OutLog<Piece> {
        let aside = self.contents().and_then(|contents| contents.out.as_ref());
        aside.unwrap_or(&self.state.out)
    }

    /// The in log; what lies beyond the head of [`Session::record`] is not committed yet.
    pub(super) fn inbox(&self) -> &Inbox<Piece> {
        self.contents().map_or(&self.state.inbox, |contents| &contents.inbox)
    }

    /// The agent's state as of the last commit.
    pub(super) fn snapshot(&self) -> Option<&Snapshot<Piece>> {
        match self.contents() {
            Some(contents) => contents.snapshot.as_ref(),
            None => self.state.snapshot.as_ref(),
        }
    }

    /// How far the numbering has come.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            head: self.state.out.head(),
            acked: self.state.out.acked(),
            oldest: self.state.out.oldest(),
            in_head: self.state.inbox.head(),
            covered: self.state.inbox.covered(),
        }
    }

    /// Lets all bodies leave memory. They must have been committed.
    pub(super) fn cool(&mut self) {
        let oldest = self.state.out.oldest();
        for index in 0..self.state.out.len() as u64 {
            if let Some(event) = self.state.out.get_mut(oldest.plus(index)) {
                event.body.cool();
            }
        }
        let covered = self.state.inbox.covered();
        for index in 1..=self.state.inbox.waiting() as u64 {
            if let Some(entry) = self.state.inbox.get_mut(covered.plus(index)) {
                entry.body.cool();
            }
        }
        if let Some(snapshot) = &mut self.state.snapshot {
            snapshot.body.cool();
        }
    }

    fn contents(&self) -> Option<&Contents> {
        self.pending.as_ref().and_then(|pending| pending.contents.as_ref())
    }
}
