//! Where requests are worked on. Whoever has the desk's lock applies them: a caller its own, if the desk
//! is free and nobody is in line before it; the writer what is in line. So callers do the work of
//! applying, on their own processors and also while a commit is under way, and the writer's thread has
//! the disk to see to.
//!
//! No caller sleeps for the desk: the writer has it for longer at times, and a caller that does not get
//! it in a moment stands in line ([`Queue`](super::queue::Queue)). Whoever has it next works the line
//! off first, so that nobody is overtaken.
//!
//! Requests for a session that the commit under way has changed are put off until that is published:
//! so every session is in at most one commit that is not durable yet, and readers' view of it is simple.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use rejoin_core::SessionId;
use rejoin_core::state::{Append, AppendRefused, Appended};

use super::apply::{Appending, Tables};
use super::batch::Batch;
use super::cleanup::Journal;
use super::commit::Commit;
use super::error::Fault;
use super::journal::Records;
use super::limits;
use super::piece::Ledger;
use super::request::{Reply, Request};
use super::shared::Shared;
use super::slot::Slot;
use super::waiting::Ticket;
use crate::contract::{Body, Failure, Unavailable};

/// The desk, with its lock.
#[derive(Debug)]
pub(super) struct Desk(Mutex<Papers>);

/// What lies on it.
#[derive(Debug)]
pub(super) struct Papers {
    pub(super) shared: Arc<Shared>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tables: Tables,
    pub(super) journal: Journal,
    /// The commit that is being put together.
    pub(super) batch: Batch,
    /// The buffer of an earlier commit, for a later one.
    pub(super) spare: Records,
    /// Whether there is a commit before it that is not published yet.
    pub(super) under_way: bool,
    /// Requests for sessions that it has changed.
    pub(super) put_off: VecDeque<Request>,
    /// Requests that were taken from the line and can't be applied yet.
    pub(super) backlog: VecDeque<Request>,
    /// Sessions that opening alone has changed; their rows are written by and by.
    pub(super) unwritten: Vec<Arc<Slot>>,
    /// Who asked to close.
    pub(super) closing: Vec<Reply<(), Unavailable>>,
    /// Whether the writer has gone.
    pub(super) abandoned: bool,
}

/// An append that was applied at once: what comes of it, once the commit is durable.
pub(super) type AppliedAppend = (Result<Appended, Failure<AppendRefused>>, Ticket);

impl Desk {
    /// With this on it.
    pub(super) fn new(papers: Papers) -> Arc<Self> {
        Arc::new(Self(Mutex::new(papers)))
    }

    /// For the writer, which may wait for a caller to be done.
    pub(super) fn take(&self) -> Result<MutexGuard<'_, Papers>, Fault> {
        match self.look_for_it() {
            Some(papers) => Ok(papers),
            None => self.0.lock().map_err(|_| Fault::Panicked), // half of a request may be applied
        }
    }

    /// The same, whatever has happened: for its end.
    pub(super) fn lock(&self) -> MutexGuard<'_, Papers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The desk, if it is free or becomes so in a moment: to stand in line, or to sleep, costs more
    /// than what others usually do at it.
    fn look_for_it(&self) -> Option<MutexGuard<'_, Papers>> {
        let mut since = None;
        loop {
            match self.0.try_lock() {
                Ok(papers) => return Some(papers),
                Err(TryLockError::Poisoned(_)) => return None, // the writer will find out and end
                Err(TryLockError::WouldBlock) => {}
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= limits::LOOK_FOR_DESK {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes a request, or gives it back: it must stand in line.
    #[expect(clippy::result_large_err, reason = "no error: it is asked for in another way then")]
    pub(super) fn accept(&self, request: Request) -> Result<(), Request> {
        let Some(mut papers) = self.look_for_it() else { return Err(request) };
        papers.work_off();
        if !papers.is_next(&request) {
            return Err(request);
        }
        papers.place(request);
        papers.tell_writer();
        Ok(())
    }

    /// Applies an append at once, or gives it back: it must go the way of all requests.
    #[expect(clippy::result_large_err, reason = "no error: it is asked for in another way then")]
    pub(super) fn append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<AppliedAppend, Append<Body>> {
        let Some(mut papers) = self.look_for_it() else { return Err(append) };
        let papers = &mut *papers;
        papers.work_off();
        if papers.has_line() || papers.is_full() {
            return Err(append);
        }
        let Papers { shared, ledger, tables, batch, under_way, .. } = papers;
        let outcome = match tables.by_id.get(id) {
            Some(slot) => {
                let session = &mut *slot.lock();
                let checked = append.fixed_growth(&session.state);
                if (*under_way && session.must_wait(batch.number()))
                    || (checked > 0 && shared.accounts.must_check(checked))
                {
                    return Err(append);
                }
                Appending { shared, ledger, batch, slot }.apply(session, append)
            }
            None => Err(Failure::NotFound),
        };
        let ticket = papers.batch.aftermath.ticket();
        papers.tell_writer();
        Ok((outcome, ticket))
    }
}

impl Papers {
    /// Applies what is in line, as far as the batch takes it.
    pub(super) fn work_off(&mut self) {
        if self.has_line() {
            while let Some(request) = self.next_in_line() {
                self.place(request);
            }
            self.tell_writer();
        }
    }

    fn next_in_line(&mut self) -> Option<Request> {
        if self.backlog.is_empty() {
            self.shared.queue.take(&mut self.backlog);
        }
        let next = self.backlog.front().is_some_and(|request| self.takes(request));
        if next { self.backlog.pop_front() } else { None }
    }

    /// Says how much there is for the writer to do.
    pub(super) fn tell_writer(&self) {
        self.shared.queue.applied(self.batch.requests() + self.closing.len());
    }

    /// A commit is published: what was put off for it comes before all that is in line.
    pub(super) fn commit_is_done(&mut self, commit: Commit) {
        let mut records = commit.records;
        records.clear();
        self.spare = records;
        self.under_way = false;
        for request in &self.put_off {
            if let Some(slot) = request.session().and_then(|id| self.tables.by_id.get(id)) {
                slot.lock().waited_for = false;
            }
        }
        while let Some(request) = self.put_off.pop_back() {
            self.backlog.push_front(request);
        }
        self.work_off();
    }

    /// Drops every request, which tells its caller, and takes no more: the writer has gone.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.batch.aftermath = Default::default();
        self.put_off.clear();
        self.backlog.clear();
        self.closing.clear();
    }

    /// Whether a request that comes now may be applied at once: nobody is before it.
    fn is_next(&self, request: &Request) -> bool {
        !self.has_line() && self.takes(request)
    }

    fn has_line(&self) -> bool {
        !self.backlog.is_empty() || self.shared.queue.waiting() > 0
    }

    /// Whether the batch takes this request.
    fn takes(&self, request: &Request) -> bool {
        let too_early = self.under_way && request.needs_quiet();
        !too_early && !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.batch.is_full() || !self.closing.is_empty() || self.abandoned
    }

    /// Applies a request, or puts it off if the commit under way has changed its session.
    fn place(&mut self, request: Request) {
        let slot = request.session().and_then(|id| self.tables.by_id.get(id)).cloned();
        if slot.as_ref().is_some_and(|slot| self.must_wait(slot)) {
            self.put_off.push_back(request);
        } else {
            self.apply(request, slot);
        }
    }

    fn must_wait(&self, slot: &Slot) -> bool {
        self.under_way && {
            let session = &mut *slot.lock();
            session.waited_for = session.must_wait(self.batch.number());
            session.waited_for
        }
    }
}
