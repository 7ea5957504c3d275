//! Callers that wait for one commit, and readers of the sessions that it changed, all in one place.
//!
//! The writer wakes the first of them and that one wakes the others: from one task of a runtime to
//! others of the same that is several times cheaper than from a thread outside, and the writer's time is
//! what everybody waits for. Should the first not get to it, the writer does it a moment later.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::changes::Announcement;
use crate::contract::Unavailable;

/// How a commit went; nothing if the writer has gone without a word.
type Outcome = Result<(), Option<Unavailable>>;

/// The end that belongs to the commit.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    cell: Arc<Cell>,
    tickets: usize,
}

/// The end of one who waits: a future.
#[derive(Debug)]
pub(super) struct Ticket {
    cell: Arc<Cell>,
    /// Where its waker is.
    place: Option<usize>,
}

/// Those of a commit that is done who may be asleep still.
#[derive(Debug)]
pub(super) struct Sleepers(Arc<Cell>);

#[derive(Debug, Default)]
struct Cell(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    wakers: VecDeque<Waker>,
    readers: Announcement,
}

impl State {
    /// Takes out everybody who is asleep; what is returned wakes them.
    fn take_sleepers(&mut self) -> impl FnOnce() + use<> {
        let (wakers, readers) = (mem::take(&mut self.wakers), mem::take(&mut self.readers));
        || {
            wakers.into_iter().for_each(Waker::wake);
            readers.make();
        }
    }
}

impl Waiting {
    /// Somebody waits.
    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket { cell: Arc::clone(&self.cell), place: None }
    }

    /// How many wait, or have waited.
    pub(super) fn tickets(&self) -> usize {
        self.tickets
    }

    /// The commit has returned, and readers are to look at what it changed.
    pub(super) fn end(self, outcome: Result<(), Unavailable>, readers: Announcement) -> Sleepers {
        let mut state = self.cell.lock();
        state.outcome = Some(outcome.map_err(Some));
        let first = state.wakers.pop_front();
        match first.is_some() {
            true => state.readers = readers,
            false => readers.make(),
        }
        drop(state);
        first.into_iter().for_each(Waker::wake);
        Sleepers(Arc::clone(&self.cell))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.cell.lock();
        if state.outcome.is_none() {
            state.outcome = Some(Err(None));
            drop(state);
            self.cell.wake_all();
        }
    }
}

impl Sleepers {
    /// Wakes them.
    pub(super) fn wake(self) {
        self.0.wake_all();
    }
}

impl Cell {
    fn wake_all(&self) {
        let wake = self.lock().take_sleepers();
        wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { cell, place } = &mut *self;
        let mut state = cell.lock();
        if let Some(outcome) = state.outcome.clone() {
            let wake_others = state.take_sleepers();
            drop(state);
            wake_others();
            return Poll::Ready(outcome);
        }
        match place {
            Some(place) => state.wakers[*place].clone_from(cx.waker()),
            None => {
                *place = Some(state.wakers.len());
                state.wakers.push_back(cx.waker().clone());
            }
        }
        Poll::Pending
    }
}
