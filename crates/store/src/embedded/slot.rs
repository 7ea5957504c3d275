//! One session in memory: its state as of the last change, and the view that readers may have of it.
//!
//! A change is applied before it is durable. Until the commit has returned, readers must not
//! see it: a client that saw an event which a crash takes back would later drop a real one. So events
//! at the end of the out log are counted until they are committed, and before any other change what
//! readers see is put aside. A lock is held for the moment of a look or a change, never during a
//! commit.
//!
//! Most changes only add events. Those need not be looked at again when the commit has returned: the
//! row that the newest event is in says whether it is durable, and whoever looks at the session next
//! finds out. All others are listed, for the writer to go through.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::limits::LogBounds;
use rejoin_core::log::{Inbox, OutLog};
use rejoin_core::record::{Record, Status};
use rejoin_core::state::{SessionState, Snapshot};
use rejoin_core::{Seq, Timestamp};

use super::index::IndexChange;
use super::journal::{Key, Numbers};
use super::packed::PackedLog;
use super::piece::Piece;
use crate::account::Counted;
use crate::changes::News;

/// A session, shared between callers, the writer and the readers.
#[derive(Debug)]
pub(super) struct Slot(Mutex<Session>);

/// What is in a slot. There are many, and most are parked: rarely used parts are in boxes.
#[derive(Debug)]
pub(super) struct Session {
    /// The session as of the last change, committed or not.
    pub(super) state: SessionState<Piece>,
    /// What else there is to know of its out log; most have nothing.
    beside_log: Option<Box<BesideLog>>,
    /// The name of its row and its logs.
    pub(super) key: Key,
    /// The checksum of its row, if it has one.
    pub(super) row_sum: RowSum,
    /// The oldest journal row that says something about it which neither its own row nor a later note
    /// says. That row must not be deleted before a note was made.
    pub(super) unnoted_from: Option<NonZeroU64>,
    /// The commit that it was last changed in.
    pub(super) touched: u64,
    /// Whether it stands in the line of those whose bodies may leave memory.
    pub(super) in_line: bool,
    /// Whether it is counted among those that go on.
    pub(super) counted: bool,
    /// What it is counted as in the account of its principal; nothing before it is, and once it is forgotten.
    pub(super) in_account: Counted,
    /// Whether it is forgotten: it counts no more.
    pub(super) forgotten: bool,
    /// Whether something is known of it that no file says, and need not: an ack, a trim.
    pub(super) unsaved: bool,
    /// Whether requests for it were put off.
    pub(super) waited_for: bool,
    /// What the commit that is being made does with it.
    pub(super) plan: Plan,
    /// Events that were appended since the last commit, and their bytes.
    uncommitted: (u32, u32),
    /// What readers see instead, if more than that was changed.
    aside: Option<Box<Aside>>,
}

/// What there is to know of an out log besides the log. One after the other, so they share their place.
#[derive(Debug)]
pub(super) enum BesideLog {
    /// Its events: nobody has looked at it since the store was opened.
    Packed(PackedLog),
    /// Where it began when that was written last, with results and without: it has had results since the
    /// store was opened.
    SaidTrimmed(Seq, Seq),
}

/// The checksum of a session's row, if it has one. Five bytes where `Option<u32>` has eight, with no
/// alignment of its own: there are many sessions, and this fits between their flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowSum {
    is_there: bool,
    sum: [u8; 4],
}

impl RowSum {
    pub(super) fn is_some(self) -> bool {
        self.is_there
    }

    /// The row is gone; says what its checksum was.
    pub(super) fn take(&mut self) -> Option<u32> {
        let was = std::mem::take(self);
        was.is_there.then(|| u32::from_le_bytes(was.sum))
    }

    /// The row has this checksum now; says what it was before.
    pub(super) fn replace(&mut self, sum: u32) -> Option<u32> {
        let was = self.take();
        *self = Self { is_there: true, sum: sum.to_le_bytes() };
        was
    }
}

/// What a commit does with a session, besides writing the records of its logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// What there is to tell of it since the last commit, if it was changed.
    pub(super) changed: Option<News>,
    /// Whether the writer goes through it afterwards. If not, only events were added.
    pub(super) listed: bool,
    /// What is written of it.
    pub(super) trace: Trace,
    /// Whether the out log is trimmed afterwards.
    pub(super) settle: bool,
    /// Whether its deadline may have changed.
    pub(super) reschedule: bool,
    /// Whether readers do not know it yet.
    pub(super) is_new: bool,
}

impl Plan {
    /// Whether the session was changed since the last commit.
    pub(super) fn is_changed(&self) -> bool {
        self.changed.is_some()
    }
}

/// What a change leaves behind besides the records of the logs. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trace {
    /// Nothing: it may be lost in a crash, or the logs' own records say it.
    #[default]
    Nothing,
    /// A note in the journal.
    Note,
    /// The session's row.
    Row,
}

/// A session as of the last commit.
#[derive(Debug)]
struct Aside {
    record: Record,
    /// Put aside as well if a change took something away or replaced it.
    contents: Option<Contents>,
}

#[derive(Debug)]
struct Contents {
    out: Option<OutLog<Piece>>,
    inbox: Inbox<Piece>,
    snapshot: Option<Snapshot<Piece>>,
}

/// What a change does to what readers see, and so what must be put aside. Each includes the ones
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Touches {
    /// Nothing but the end of the out log.
    End,
    /// The record; what is in the logs stays where it is.
    Record,
    /// Entries or the snapshot may go.
    Inbox,
    /// Everything may go.
    Everything,
}

impl Slot {
    /// A session that has just been made.
    pub(super) fn new(key: Key, state: SessionState<Piece>) -> Arc<Self> {
        Self::with_packed(key, state, None)
    }

    /// A session that has just been read. `packed` are the events of its out log.
    pub(super) fn with_packed(
        key: Key,
        state: SessionState<Piece>,
        packed: Option<PackedLog>,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Session {
            state,
            beside_log: packed.map(|packed| Box::new(BesideLog::Packed(packed))),
            key,
            row_sum: RowSum::default(),
            unnoted_from: None,
            touched: 0,
            in_line: false,
            counted: false,
            in_account: Counted::default(),
            forgotten: false,
            unsaved: false,
            waited_for: false,
            plan: Plan::default(),
            uncommitted: (0, 0),
            aside: None,
        })))
    }

    /// The session, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, Session> {
        let mut session = self.lock_packed();
        session.unpack();
        session
    }

    /// The same without its events, if they are packed still: only for opening and closing, which
    /// look at every session.
    pub(super) fn lock_packed(&self) -> MutexGuard<'_, Session> {
        // After a panic of the writer, what was put aside is still the truth.
        let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        session.catch_up();
        session
    }
}

impl Session {
    /// The events of its out log, if they are packed still.
    pub(super) fn packed(&self) -> Option<&PackedLog> {
        match self.beside_log.as_deref() {
            Some(BesideLog::Packed(packed)) => Some(packed),
            Some(BesideLog::SaidTrimmed(..)) | None => None,
        }
    }

    /// Notes whether it is to be counted among those that go on; says what that changes.
    pub(super) fn recount(&mut self) -> Option<IndexChange> {
        let counts = self.state.vitals.status == Status::Active;
        let changed = std::mem::replace(&mut self.counted, counts) != counts;
        let principal = &self.state.about.principal;
        changed.then(|| IndexChange::Count(principal.clone(), counts))
    }

    /// What it counts, its events packed or not.
    pub(super) fn counts(&self) -> Counted {
        let (count, bytes) = match self.packed() {
            Some(packed) => (packed.len(), packed.bytes()),
            None => (self.state.out.len(), self.state.out.bytes()),
        };
        Counted::of(&self.state, self.state.holding_with(count, bytes), bytes)
    }

    /// Whether its oldest event is settled, or its oldest message dealt with, and has outlived the retention.
    pub(super) fn has_outlived(&self, bounds: &LogBounds, now: Timestamp) -> bool {
        let messages = self.state.has_outlived_messages(bounds, now);
        let (settled, bounds) = (self.state.grows_old(), self.state.bounds(bounds));
        messages
            || match self.packed() {
                Some(packed) => packed.has_outlived(&bounds, settled, now),
                None => self.state.out.has_outlived(&bounds, settled, now),
            }
    }

    /// Makes the out log whole.
    pub(super) fn unpack(&mut self) {
        let is_packed = |beside: &mut Box<BesideLog>| matches!(**beside, BesideLog::Packed(_));
        let Some(beside) = self.beside_log.take_if(is_packed) else { return };
        if let BesideLog::Packed(packed) = *beside {
            self.state.out = packed.unpack(self.state.out.acked());
        }
        if self.state.out.holds_results() {
            self.says_trimmed(Seq::ZERO, Seq::ZERO);
        }
    }

    /// Puts aside what readers see, as far as a change is about to touch it.
    pub(super) fn put_aside(&mut self, touches: Touches) {
        if touches >= Touches::Record && self.aside.is_none() {
            self.aside = Some(Box::new(Aside { record: self.record(), contents: None }));
        }
        let Some(aside) = &mut self.aside else { return };
        let state = &self.state;
        if touches >= Touches::Inbox && aside.contents.is_none() {
            let (inbox, snapshot) = (state.inbox.clone(), state.snapshot.clone());
            aside.contents = Some(Contents { out: None, inbox, snapshot });
        }
        if touches == Touches::Everything
            && let Some(contents) = &mut aside.contents
            && contents.out.is_none()
        {
            contents.out = Some(state.out.clone());
        }
    }

    /// Where the out log begins, with results and without, if it has results and that has changed since it
    /// was asked last.
    pub(super) fn trimmed_since_said(&mut self) -> Option<(Seq, Seq)> {
        let out = &self.state.out;
        if self.beside_log.is_none() && !out.holds_results() {
            return None;
        }
        let now = (out.first(), out.oldest());
        let said = match self.beside_log.as_deref() {
            Some(BesideLog::SaidTrimmed(first, oldest)) => (*first, *oldest),
            Some(BesideLog::Packed(_)) | None => (Seq::ZERO, Seq::ZERO),
        };
        if said != now {
            self.says_trimmed(now.0, now.1);
        }
        (said != now).then_some(now)
    }

    fn says_trimmed(&mut self, first: Seq, oldest: Seq) {
        self.beside_log = Some(Box::new(BesideLog::SaidTrimmed(first, oldest)));
    }

    /// Goes on with the logs of another session, in the same place of the journal.
    pub(super) fn has_logs_of(&mut self, old: &mut Self) {
        self.beside_log = old.beside_log.take();
    }

    /// An event was added to the out log, which readers do not see until the commit.
    pub(super) fn hide_event(&mut self, bytes: usize) {
        self.uncommitted.0 += 1;
        self.uncommitted.1 += bytes as u32;
    }

    /// Whether requests for it must wait, while a commit is under way and `next` is being put together:
    /// that commit has changed it, or others that came before wait still.
    pub(super) fn must_wait(&self, next: u64) -> bool {
        self.waited_for || (self.plan.is_changed() && self.touched < next)
    }

    /// Readers see the events that were added, if their commit has returned.
    fn catch_up(&mut self) {
        let unlisted = self.plan.is_changed() && !self.plan.listed;
        if unlisted && self.state.out.newest().is_some_and(|event| event.body.is_durable()) {
            self.reveal();
        }
    }

    /// Whether events were added, and a trim can only take away what is committed, if nothing else was
    /// changed.
    pub(super) fn may_be_trimmed(&self, bounds: &LogBounds) -> bool {
        let SessionState { out, .. } = &self.state;
        let (events, bytes) = self.uncommitted;
        let committed = Seq::new(out.head().get() - u64::from(events));
        let fits = events as usize <= bounds.events && bytes as usize <= bounds.bytes;
        events > 0 && fits && !out.holds_results() && self.state.grows_old() <= committed
    }

    /// The commit has returned: readers see everything, and the plan is carried out by the caller.
    pub(super) fn reveal(&mut self) -> Plan {
        self.aside = None;
        self.uncommitted = (0, 0);
        std::mem::take(&mut self.plan)
    }

    /// The session as of the last commit.
    pub(super) fn record(&self) -> Record {
        if let Some(aside) = &self.aside {
            return aside.record.clone();
        }
        let mut record = self.state.record();
        let (events, bytes) = self.uncommitted;
        record.head = Seq::new(record.head.get() - u64::from(events));
        record.held_bytes -= bytes as usize;
        record
    }

    /// Where it stands in the index of deadlines, which knows what is committed.
    pub(super) fn due(&self) -> Option<Timestamp> {
        match &self.aside {
            Some(aside) => aside.record.due_at(),
            None => self.state.due_at(),
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

    /// Whether any body belongs to it.
    pub(super) fn has_bodies(&self) -> bool {
        let SessionState { out, inbox, snapshot, .. } = &self.state;
        !out.is_empty() || !inbox.is_empty() || snapshot.is_some()
    }

    /// Lets all bodies leave memory. They must have been committed.
    pub(super) fn cool(&mut self) {
        self.state.out.all_mut().for_each(|event| event.body.cool());
        self.state.inbox.all_mut().for_each(|entry| entry.body.cool());
        if let Some(snapshot) = &mut self.state.snapshot {
            snapshot.body.cool();
        }
    }

    fn contents(&self) -> Option<&Contents> {
        self.aside.as_ref().and_then(|aside| aside.contents.as_ref())
    }
}
