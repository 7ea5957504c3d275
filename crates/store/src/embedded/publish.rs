//! Sends a batch on its way, and once it is durable lets readers see it and callers know.

use std::mem;
use std::time::Instant;

use rejoin_core::log::Trimmed;

use super::batch::Aftermath;
use super::commit::Commit;
use super::error::Fault;
use super::index::IndexChange;
use super::limits;
use super::writer::Writer;

impl Writer {
    /// Sends the batch on its way, or makes it durable at once if it is small.
    pub(super) fn finish_batch(&mut self, tidy_up: bool) -> Result<(), Fault> {
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
    pub(super) fn look_after_commit(&mut self, wait: bool) -> Result<(), Fault> {
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

    /// Takes what a commit that is done leaves: its buffer serves the next one.
    fn take_back(&mut self, commit: Commit) {
        self.untidy = commit.left_untidy;
        let mut records = commit.records;
        records.clear();
        self.spare = records;
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
                let trimmed = session.state.settle(&self.shared.bounds, now);
                session.unsaved |= trimmed != Trimmed::default();
                self.shared.measurements.overflowed(trimmed.unacked);
            }
            self.shared.count_held(session);
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
        self.shared.keep_to_bound(&self.tables);
        self.expected = self.shared.queue.length() + answers.len();
        for answer in answers {
            answer.give(Ok(()));
        }
        self.spill.keep_to_bound();
    }
}
