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
use std::sync::Arc;
use std::time::Instant;

use super::apply::Tables;
use super::batch::{Aftermath, Batch};
use super::cleanup::Journal;
use super::committer::Committer;
use super::error::Fault;
use super::journal::Records;
use super::limits;
use super::lock::DirectoryLock;
use super::piece::Ledger;
use super::queue::{Taken, Wait};
use super::request::{Reply, Request};
use super::shared::Shared;
use super::slot::Slot;
use super::spill::Spill;
use crate::contract::Unavailable;

/// All that the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) committer: Committer,
    /// Held as long as the thread lives: no other process may open the directory.
    pub(super) lock: DirectoryLock,
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
            std::thread::yield_now();
        }
    }

    /// Whether the commit under way has changed a session.
    fn is_under_way(&self, slot: &Slot) -> bool {
        self.under_way.is_some() && {
            let session = slot.lock();
            session.plan.changed && session.touched < self.batch.number()
        }
    }
}
