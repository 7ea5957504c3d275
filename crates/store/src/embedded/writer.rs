//! The one thread that decides what is written, and in which order. It takes what has come, applies
//! it to the state in memory, has it committed, and only then lets anybody know:
//!
//! ```text
//! take → apply → prepare → commit → witness → publish → answer → take …
//! ```
//!
//! While a large commit is under way on the other thread ([`Committer`]), it goes on taking and
//! applying requests for the next one. Requests for a session that the commit under way has changed
//! are put off until that is published: so every session is in at most one commit that is not durable
//! yet, and readers' view of it is simple.
//!
//! It ends when the store is closed or dropped, or when a commit fails; then nothing is acknowledged
//! any more.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use rejoin_core::limits::LogBounds;
use rejoin_core::log::Trimmed;

use super::apply::Tables;
use super::batch::{Aftermath, Batch};
use super::cleanup::{self, Journal, JournalRow};
use super::commit::Commit;
use super::committer::Committer;
use super::error::Fault;
use super::index::IndexChange;
use super::journal::{Header, Records};
use super::limits;
use super::lock::DirectoryLock;
use super::piece::Ledger;
use super::queue::{Taken, Wait};
use super::request::{Reply, Request};
use super::rows;
use super::shared::Shared;
use super::slot::{Slot, Touches, Trace};
use super::spill::Spill;
use crate::contract::Unavailable;

/// All that the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) committer: Committer,
    /// Held as long as the thread lives: no other process may open the directory.
    pub(super) lock: DirectoryLock,
    pub(super) bounds: LogBounds,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tables: Tables,
    pub(super) journal: Journal,
    pub(super) spill: Spill,
    /// The commit that is being put together.
    pub(super) batch: Batch,
    /// The buffer of an earlier commit, for a later one.
    pub(super) spare: Records,
    /// What is to be done when the commit that is under way on the other thread is done.
    pub(super) under_way: Option<Aftermath>,
    /// Requests for sessions that it has changed.
    pub(super) put_off: VecDeque<Request>,
    /// Those whose time has come.
    pub(super) come_back: VecDeque<Request>,
    /// Whether the database has more to tidy up than a commit does by the way.
    pub(super) untidy: bool,
    /// Sessions that opening alone has changed; their rows are written by and by.
    pub(super) unwritten: Vec<Arc<Slot>>,
    /// How many requests are in line if everybody who was answered comes back at once.
    pub(super) expected: usize,
    /// Who asked to close.
    pub(super) closing: Vec<Reply<(), Unavailable>>,
}

/// Why the writer ends.
enum End {
    Closed,
    Dropped,
}

impl Writer {
    /// Works until the store is closed or dropped, or a commit fails.
    pub(super) fn run(mut self) {
        match self.work() {
            Ok(End::Closed) => self.close(),
            Ok(End::Dropped) => {}
            Err(fault) => self.fail(&fault),
        }
    }

    fn work(&mut self) -> Result<End, Fault> {
        let mut backlog = VecDeque::new();
        loop {
            let mut taken = Taken::Requests;
            if backlog.is_empty() && self.has_batch_to_make() {
                self.shared.queue.take_at_once(&mut backlog);
            } else if backlog.is_empty() {
                taken = self.shared.queue.take(&mut backlog, self.wait());
            }
            if taken == Taken::Closed {
                return Ok(End::Dropped);
            }
            let stuck = self.apply_batch(&mut backlog);
            if self.under_way.is_none() {
                self.gather(&mut backlog);
                self.finish_batch(taken == Taken::Nothing)?;
            } else {
                self.look_after_commit(stuck)?;
            }
            while let Some(request) = self.come_back.pop_back() {
                backlog.push_front(request);
            }
            if self.under_way.is_none() && !self.closing.is_empty() {
                return Ok(End::Closed);
            }
        }
    }

    /// Whether there are requests that were applied while a commit was under way, which is done by now:
    /// nobody may come any more to make another commit for, and they wait.
    fn has_batch_to_make(&self) -> bool {
        self.under_way.is_none() && self.batch.requests() > 0
    }

    /// How to wait for the next requests.
    fn wait(&self) -> Wait {
        if self.under_way.is_some() {
            return Wait::ForCommit;
        }
        let untidy = self.journal.wants_commit() || self.untidy;
        Wait::ForRequests { patience: untidy.then_some(limits::PATIENCE) }
    }

    /// Applies what the batch can take; while a commit is under way, not too much at once, so that
    /// the next one begins soon after it. Says whether the rest can only wait for that.
    fn apply_batch(&mut self, backlog: &mut VecDeque<Request>) -> bool {
        let at_once = self.under_way.as_ref().map_or(usize::MAX, |_| limits::APPLY_AT_ONCE);
        for _ in 0..at_once {
            if self.is_full(backlog.len()) || !self.closing.is_empty() {
                return !backlog.is_empty();
            }
            let Some(request) = backlog.pop_front() else { return false };
            if self.under_way.is_some() && request.needs_quiet() {
                backlog.push_front(request);
                return true;
            }
            let slot = request.session().and_then(|id| self.tables.by_id.get(id)).cloned();
            if slot.as_ref().is_some_and(|slot| self.is_under_way(slot)) {
                self.put_off.push_back(request);
            } else {
                self.apply(request, slot);
            }
        }
        false
    }

    /// Whether the batch takes no further request, `waiting` being in line for it. While a commit is
    /// under way it takes half of all there are at most: two commits of like size in turn keep disk
    /// and processors busy, a large one and a small one wait for each other.
    fn is_full(&self, waiting: usize) -> bool {
        let Some(under_way) = &self.under_way else { return self.batch.is_full() };
        let all = under_way.answers.len() + self.batch.requests() + waiting;
        let half = all.div_ceil(2).max(limits::LARGE_COMMIT);
        self.batch.is_full() || self.batch.requests() >= half
    }

    /// Applies the requests of callers that were just answered as they come back: those that miss
    /// this commit wait for two. Nobody waits longer than a fraction of what a commit takes.
    fn gather(&mut self, backlog: &mut VecDeque<Request>) {
        let started = Instant::now();
        while backlog.is_empty()
            && self.closing.is_empty()
            && let missing = self.expected.saturating_sub(self.batch.requests())
            && missing > 0
        {
            let over = started.elapsed() >= limits::GATHER;
            if self.shared.queue.length() >= missing.min(limits::GATHER_AT_ONCE) || over {
                self.shared.queue.take_at_once(backlog);
                self.apply_batch(backlog);
            }
            if over {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether the commit under way has changed a session.
    fn is_under_way(&self, slot: &Slot) -> bool {
        self.under_way.is_some() && {
            let session = slot.lock();
            session.plan.changed && session.touched < self.batch.number()
        }
    }

    /// Sends the batch on its way, or makes it durable at once if it is small.
    fn finish_batch(&mut self, tidy_up: bool) -> Result<(), Fault> {
        if self.batch.requests() >= limits::LARGE_COMMIT {
            return self.begin_commit();
        }
        if tidy_up || self.batch.must_commit() {
            let (mut commit, aftermath) = self.prepare()?;
            let (started, requests) = (Instant::now(), commit.requests);
            self.committer.database().make(&mut commit)?;
            self.shared.measurements.committed(started.elapsed(), requests);
            self.take_back(commit);
            self.publish(aftermath);
            self.committer.database().checkpoint_if_due()
        } else {
            let aftermath = mem::take(&mut self.batch.aftermath);
            self.publish(aftermath);
            Ok(())
        }
    }

    fn begin_commit(&mut self) -> Result<(), Fault> {
        debug_assert!(self.under_way.is_none(), "one at a time");
        let (commit, aftermath) = self.prepare()?;
        self.under_way = Some(aftermath);
        self.committer.begin(commit)
    }

    /// If the commit under way is done, begins the next one if that is large as well, and tells
    /// everybody about the one that is done.
    fn look_after_commit(&mut self, wait: bool) -> Result<(), Fault> {
        let Some(commit) = self.committer.outcome(wait)? else { return Ok(()) };
        let done = self.under_way.take();
        if self.batch.requests() >= limits::LARGE_COMMIT {
            self.begin_commit()?;
        }
        self.take_back(commit);
        done.into_iter().for_each(|aftermath| self.publish(aftermath));
        self.come_back.append(&mut self.put_off);
        Ok(())
    }

    /// Completes the batch with notes, rows and survivors, and begins the next one. From here on it
    /// is plain data: what later requests change does not show in it.
    fn prepare(&mut self) -> Result<(Commit, Aftermath), Fault> {
        let number = self.batch.number();
        let delete_up_to = self.journal.drop_dead_rows(&self.tables, &mut self.batch);
        self.journal.evacuate(&self.shared.readers, &self.tables, &mut self.batch)?;
        self.write_rows_of_opening();
        self.write_traces();
        let header = Header {
            number,
            first: self.journal.first(number),
            next_key: self.tables.next_key,
            sessions: self.tables.rows,
            sessions_sum: self.tables.rows_sum,
        };
        self.batch.records.seal(&header);
        self.journal.push(JournalRow {
            row: Arc::clone(&self.batch.row),
            stored: cleanup::stored_bytes(self.batch.records.sealed().len()),
            has_ids: self.batch.has_ids,
            unnoted: mem::take(&mut self.batch.unnoted),
        });
        let mut batch = Batch::new(number + 1, &self.ledger);
        batch.records = mem::take(&mut self.spare);
        mem::swap(&mut self.batch, &mut batch);
        let Batch { records, rows, deleted, audit, aftermath, .. } = batch;
        let (requests, left_untidy) = (aftermath.answers.len(), false);
        let commit =
            Commit { number, requests, records, delete_up_to, deleted, rows, audit, left_untidy };
        Ok((commit, aftermath))
    }

    /// Takes what a commit that is done leaves: its buffer serves the next one.
    fn take_back(&mut self, commit: Commit) {
        self.untidy = commit.left_untidy;
        let mut records = commit.records;
        records.clear();
        self.spare = records;
    }

    /// Puts the rows and notes of sessions into the batch.
    fn write_traces(&mut self) {
        for slot in mem::take(&mut self.batch.traced) {
            let session = &mut *slot.lock();
            match session.plan.trace {
                Trace::Row => {
                    let (row, sum) = rows::encode(session, self.batch.number());
                    self.batch.rows.push(row);
                    self.tables.put_row(session, sum);
                    session.unnoted_from = None;
                    session.unsaved = false;
                }
                Trace::Note => cleanup::note(session, &mut self.batch),
                Trace::Nothing => {}
            }
        }
    }

    /// Puts some rows into the batch that opening alone has changed.
    fn write_rows_of_opening(&mut self) {
        let mut busy = Vec::new();
        let some = self.unwritten.len().saturating_sub(limits::LAZY_ROWS);
        for slot in self.unwritten.drain(some..) {
            let session = &mut *slot.lock();
            if session.plan.changed && session.touched < self.batch.number() {
                busy.push(Arc::clone(&slot));
            } else if session.row_sum.is_some() {
                self.batch.touch(&slot, session, Touches::Record);
                self.batch.leave(&slot, session, Trace::Row);
            }
        }
        self.unwritten.extend(busy);
    }

    /// Lets readers see what was committed, and callers know.
    fn publish(&mut self, aftermath: Aftermath) {
        let Aftermath { touched, mut index_changes, moves, now, answers } = aftermath;
        for moved in moves {
            moved.take_effect();
        }
        for slot in touched {
            let session = &mut *slot.lock();
            let was = session.plan.reschedule.then(|| session.due()).flatten();
            let plan = session.reveal();
            if plan.settle {
                let trimmed = session.state.settle(&self.bounds, now);
                session.unsaved |= trimmed != Trimmed::default();
                self.shared.measurements.overflowed(trimmed.unacked);
            }
            if plan.reschedule {
                index_changes.extend(session.recount());
                let due = session.due();
                if due != was || plan.is_new {
                    let id = session.state.about.id.clone();
                    index_changes.push(IndexChange::Reschedule(id, was, due));
                }
            }
            if session.has_bodies() {
                self.spill.note(&slot, session);
            }
        }
        if !index_changes.is_empty() {
            self.shared.index.apply(index_changes);
        }
        self.expected = self.shared.queue.length() + answers.len();
        for answer in answers {
            answer.give(Ok(()));
        }
        self.spill.keep_to_bound();
    }

    /// Nothing is acknowledged from here on. What readers see stays as of the last commit.
    fn fail(self, fault: &Fault) {
        let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
        self.shared.fail(&why);
        let under_way = self.under_way.into_iter().flat_map(|aftermath| aftermath.answers);
        for answer in under_way.chain(self.batch.aftermath.answers) {
            answer.give(Err(why.clone()));
        }
    }

    /// Writes what was put off, and leaves a single file behind.
    fn close(mut self) {
        let outcome = self.write_all_that_was_put_off();
        if let Err(fault) = &outcome {
            let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
            self.shared.fail(&why);
        }
        let Self { shared, committer, lock, closing, .. } = self;
        let closed = shared.close();
        drop(committer);
        drop(lock);
        for reply in closing {
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(_) => Err(closed.clone()),
            };
            let _ = reply.send(answer);
        }
    }

    fn write_all_that_was_put_off(&mut self) -> Result<(), Fault> {
        while !self.unwritten.is_empty() {
            self.finish_batch(true)?;
        }
        for slot in self.tables.by_key.values() {
            let session = &mut *slot.lock_packed();
            if session.unsaved {
                session.unpack();
                cleanup::note(session, &mut self.batch);
            }
        }
        self.finish_batch(false)?;
        self.committer.database().finish()
    }
}
