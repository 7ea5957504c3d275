//! Makes the batch durable, and then lets readers see it and callers know.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::batch::Aftermath;
use super::commit::{Commit, Database};
use super::error::Fault;
use super::index::IndexChange;
use super::waiting::Sleepers;
use super::writer::Writer;
use crate::changes::Announcement;

impl Writer {
    /// Makes a commit of what has been applied, if that or tidying up needs one.
    pub(super) fn finish_batch(&mut self, tidy_up: bool) -> Result<(), Fault> {
        let desk = Arc::clone(&self.desk);
        let mut papers = desk.take()?;
        papers.work_off();
        if tidy_up || papers.batch.must_commit() {
            let (commit, aftermath) = papers.prepare()?;
            drop(papers);
            return self.make(commit, aftermath);
        }
        let mut aftermath = mem::take(&mut papers.batch.aftermath);
        papers.tell_writer();
        // The desk is kept: the batch that these sessions were changed in goes on.
        let readers = self.publish(&mut aftermath);
        drop(papers);
        self.answer(aftermath, readers);
        Ok(())
    }

    /// Makes a commit durable, and lets everybody know.
    fn make(&mut self, mut commit: Commit, aftermath: Aftermath) -> Result<(), Fault> {
        let aftermath = self.under_way.insert(aftermath);
        let (started, requests) = (Instant::now(), commit.requests);
        debug_assert_eq!(requests, aftermath.requests());
        self.until_it_works(|database| database.make(&mut commit))?;
        self.until_it_works(|database| database.witness(commit.number))?;
        self.shared.measurements.committed(started.elapsed(), requests);
        self.untidy = commit.left_untidy;
        if let Some(mut aftermath) = self.under_way.take() {
            let readers = self.publish(&mut aftermath);
            self.keep_to_bound()?;
            self.answer(aftermath, readers);
        }
        self.desk.take()?.commit_is_done(commit);
        self.spill.keep_to_bound();
        self.database.checkpoint_if_due()
    }

    /// Tries again as long as there is no space or another program has the database locked. What was
    /// applied stays applied and unseen, and nothing new is taken meanwhile. Callers that wait for it too long are
    /// told that its outcome is not known.
    fn until_it_works(
        &mut self,
        mut work: impl FnMut(&mut Database) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut since: Option<Instant> = None;
        loop {
            match work(&mut self.database) {
                Err(fault) if fault.is_passing() => {
                    let first = since.is_none();
                    let waited = since.get_or_insert_with(Instant::now).elapsed();
                    if !self.shared.tries_again(waited) {
                        return Err(fault);
                    }
                    self.shared.wait_out(&fault, first, waited);
                }
                done => {
                    if since.is_some() {
                        self.shared.goes_on();
                    }
                    return done;
                }
            }
        }
    }

    /// Lets readers see what was committed. Returns those who are to be told so.
    fn publish(&mut self, aftermath: &mut Aftermath) -> Announcement {
        let Aftermath { row, touched, changed, index_changes, moves, now, .. } = aftermath;
        row.take().into_iter().for_each(|row| row.set_durable());
        for moved in moves.drain(..) {
            moved.take_effect();
        }
        for slot in touched.drain(..) {
            let session = &mut *slot.lock();
            let was = session.plan.reschedule.then(|| session.due()).flatten();
            let plan = session.reveal();
            if plan.settle {
                self.shared.trim(session, *now);
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
            self.shared.index.apply(index_changes.drain(..));
        }
        let readers = self
            .shared
            .changes
            .announcement(changed.iter().map(|(about, news)| (&about.id, *news)));
        changed.clear();
        readers
    }

    /// Has sessions give way if a principal, or all of them together, hold too much.
    fn keep_to_bound(&self) -> Result<(), Fault> {
        if self.shared.accounts.holds_too_much() {
            self.shared.keep_to_bound(&self.desk.take()?.tables);
        }
        Ok(())
    }

    /// Lets callers and readers know.
    fn answer(&mut self, aftermath: Aftermath, readers: Announcement) {
        self.expected = self.shared.queue.to_commit() + aftermath.requests();
        // Messages are answered before appends: whoever learns of an event that answers one can know that
        // one too.
        for answer in aftermath.answers {
            answer.give(Ok(()));
        }
        let sleepers = self.sleepers.replace(aftermath.waiting.end(Ok(()), readers));
        sleepers.into_iter().for_each(Sleepers::wake);
    }
}
