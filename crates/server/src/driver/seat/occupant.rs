//! The agent in the seat, as its driver sees it: what it is handed, what it is told, how it ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rejoin_core::page::StoredEntry;
use rejoin_core::worker::Workload;
use rejoin_core::{InSeq, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};

use crate::agent::{ChildEnd, Orders};

/// How long an agent may go on that has nothing to do any more.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// An agent that never says what it has dealt with is taken to be at work until it has been silent
/// for so long.
const UNSURE: Duration = Duration::from_secs(60);

pub(super) enum Occupant {
    None,
    Starting,
    /// In a box: most sessions have nobody here.
    Running(Box<Running>),
}

/// What happened in the seat.
pub(in crate::driver) enum SeatEvent {
    /// The agent has taken entries, up to this one.
    Took(InSeq),
    /// It has ended.
    Ended(Result<(), JoinError>),
}

pub(super) struct Running {
    pub(super) task: JoinHandle<()>,
    /// Its queue; none once it was told to stop.
    pub(super) entries: Option<mpsc::Sender<StoredEntry>>,
    /// Entries that the agent's queue had no room for.
    pub(super) waiting: VecDeque<StoredEntry>,
    /// The last entry that it took.
    pub(super) taken: watch::Receiver<InSeq>,
    pub(super) orders: watch::Sender<Orders>,
    /// It said that it leaves in peace.
    pub(super) resigned: Arc<AtomicBool>,
    /// How it ended, if it is a child and did so by itself.
    pub(super) child_end: Arc<OnceLock<ChildEnd>>,
    pub(super) busy: Arc<AtomicBool>,
    pub(super) started: Timestamp,
    /// When it last took or said something.
    pub(super) quiet_since: Timestamp,
    /// Since when it has had nothing to do.
    pub(super) resting_since: Option<Timestamp>,
    /// When it is aborted if it has not stopped by itself.
    pub(super) last_word_by: Option<Timestamp>,
    /// How long it may go on when the session or the server ends.
    pub(super) last_words: Duration,
    /// Whether its successor is started for work only.
    pub(super) rests: bool,
}

impl Running {
    /// From when on it counts as idle; nothing while it has work. A time to come is for one of which
    /// nobody knows whether it works.
    pub(super) fn idle_from(&mut self, workload: Workload, now: Timestamp) -> Option<Timestamp> {
        match workload {
            Workload::Nothing => Some(*self.resting_since.get_or_insert(now)),
            Workload::Unsure => Some(self.quiet_since + UNSURE),
            Workload::Waiting => {
                self.resting_since = None;
                None
            }
        }
    }

    /// Tells it how it stands; one that was told to stop is told nothing else.
    pub(super) fn order(&self, orders: Orders) {
        self.orders.send_if_modified(|present| {
            let changed = *present != orders && !present.is_stop();
            if changed {
                *present = orders;
            }
            changed
        });
    }

    /// There is nothing to do for it: it sees the end of its queue, and ends. If that is in spite of a
    /// client that is there, the client alone does not bring it back.
    pub(super) fn let_go(&mut self, company: bool, now: Timestamp) {
        self.rests = company;
        self.tell_to_stop(Orders::Stop, now + LAST_WORDS);
    }

    /// The session or the server ends: it may say its last words, if it wants to say any.
    pub(super) fn end(&mut self, orders: Orders, now: Timestamp) {
        if self.last_words.is_zero() {
            self.abort();
        } else {
            self.tell_to_stop(orders, now + self.last_words);
        }
    }

    fn tell_to_stop(&mut self, orders: Orders, by: Timestamp) {
        self.order(orders);
        self.entries = None;
        self.waiting.clear();
        self.last_word_by.get_or_insert(by);
    }

    /// It ends wherever it is.
    pub(super) fn abort(&mut self) {
        self.entries = None;
        self.task.abort();
    }

    pub(super) fn abort_if_overdue(&mut self, now: Timestamp) {
        if self.last_word_by.is_some_and(|by| by <= now) {
            self.abort();
        }
    }

    pub(super) fn was_told_to_stop(&self) -> bool {
        self.entries.is_none()
    }

    /// Whether it is at work on something that no entry stands for: a response that goes on after it covered
    /// its entry.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(super) fn has_resigned(&self) -> bool {
        self.resigned.load(Ordering::Acquire)
    }

    /// Waits until it takes something or ends, handing it what waits meanwhile. Nothing is lost if
    /// it is dropped: an entry leaves `waiting` in the moment it is sent.
    pub(super) async fn event(&mut self) -> SeatEvent {
        loop {
            let queue = self.entries.as_ref().filter(|_| !self.waiting.is_empty());
            let room = async {
                match queue {
                    // In a box: it is rare, and every live session would have room for it.
                    Some(queue) => Box::pin(queue.reserve()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased; // what it took counts, also if it has ended since
                Ok(()) = self.taken.changed() => {
                    return SeatEvent::Took(*self.taken.borrow_and_update());
                }
                end = &mut self.task => return SeatEvent::Ended(end),
                room = room => match room {
                    Ok(room) => self.waiting.pop_front().map_or((), |entry| room.send(entry)),
                    Err(_) => self.waiting.clear(), // it has dropped its seat
                },
            }
        }
    }
}

/// However a driver ends, its agent ends too.
impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
