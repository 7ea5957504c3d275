//! The one thread that writes. Callers apply what they ask for to the state in memory by themselves
//! ([`Desk`]); it makes commits of that, one after the other, and lets readers see and callers know
//! what is durable:
//!
//! ```text
//! wait → prepare → commit → witness → publish → answer → wait …
//! ```
//!
//! While a commit is under way, callers go on applying requests for the next one.
//!
//! It ends when the store is closed or dropped, or when a commit fails; then nothing is acknowledged
//! any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Aftermath;
use super::commit::Database;
use super::desk::Desk;
use super::error::Fault;
use super::limits;
use super::lock::DirectoryLock;
use super::queue::Woken;
use super::shared::Shared;
use super::spill::Spill;
use super::waiting::Sleepers;

/// All that the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) desk: Arc<Desk>,
    pub(super) database: Database,
    /// Held as long as the thread lives: no other process may open the directory.
    pub(super) lock: DirectoryLock,
    pub(super) spill: Spill,
    /// What is to be done when the commit that is under way is done.
    pub(super) under_way: Option<Aftermath>,
    /// Those of the last commit that nobody may have woken.
    pub(super) sleepers: Option<Sleepers>,
    /// Whether the database has more to tidy up than a commit does by the way.
    pub(super) untidy: bool,
    /// How many requests there are if everybody who was answered comes back at once.
    pub(super) expected: usize,
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
        loop {
            let (patience, sleepers) = (self.patience()?, &mut self.sleepers);
            let wake = || sleepers.take().into_iter().for_each(Sleepers::wake);
            let taken = self.shared.queue.wait(patience, wake);
            if taken == Woken::Closed {
                return Ok(End::Dropped);
            }
            self.linger();
            self.finish_batch(taken == Woken::Nothing)?;
            if !self.desk.take()?.closing.is_empty() {
                return Ok(End::Closed);
            }
        }
    }

    /// How long to wait for a request before tidying up without one; for ever if there is no need.
    fn patience(&self) -> Result<Option<Duration>, Fault> {
        let untidy = self.untidy || self.desk.take()?.journal.wants_commit();
        Ok(untidy.then_some(limits::PATIENCE))
    }

    /// Lets callers that were just answered come back: those that miss this commit wait for two. Of
    /// many, a third are enough: two or three commits in turn keep disk and processors busy. Nobody
    /// waits longer than a fraction of what a commit takes.
    fn linger(&self) {
        let (started, queue) = (Instant::now(), &self.shared.queue);
        let enough = self.expected.min(limits::LARGE_COMMIT).max(self.expected / 3);
        while queue.to_commit() < enough && started.elapsed() < limits::LINGER {
            // Whoever looks too often keeps those from their work that it waits for.
            (0..limits::LINGER_PAUSES).for_each(|_| std::hint::spin_loop());
            std::thread::yield_now();
        }
    }
}
