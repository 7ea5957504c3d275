//! The line of requests before the writer.
//!
//! It is bounded, and strictly first come, first served: a call that finds it full must not be
//! overtaken by a later one, or a producer's second append would arrive before its first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::limits;
use super::request::Request;
use crate::contract::Unavailable;

/// Where callers leave requests and the writer takes them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    line: Mutex<Line>,
    /// How many are in line, for the writer to look at without the lock.
    length: AtomicUsize,
    arrived: Condvar,
    /// Callers that found the line full wait here, in order; the first of them waits for `room`.
    gate: tokio::sync::Mutex<()>,
    room: Notify,
}

#[derive(Debug, Default)]
struct Line {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Callers at the gate. As long as there are any, nobody else may enter.
    at_gate: usize,
    /// How many requests the writer sleeps for, if it sleeps.
    wake_writer_at: Option<usize>,
    /// Whether the commit that was under way is done.
    nudged: bool,
    closed: Option<Unavailable>,
}

/// What the writer waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// A request; for some patience, or without end.
    ForRequests { patience: Option<Duration> },
    /// The end of the commit that is under way, or enough requests to be worth looking at.
    ForCommit,
}

/// Why the writer waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There are requests, or the commit that was under way is done.
    Requests,
    /// Its patience has run out.
    Nothing,
    /// The queue was closed.
    Closed,
}

impl Queue {
    /// Puts a request in line, if there is room. If not, the caller stands at the gate with it.
    pub(super) fn push(&self, request: Request) -> Result<Option<AtGate<'_>>, Unavailable> {
        let mut line = self.lock();
        if let Some(closed) = &line.closed {
            return Err(closed.clone());
        }
        if line.at_gate > 0 || !line.has_room() {
            line.at_gate += 1;
            return Ok(Some(AtGate { queue: self, request: Some(request) }));
        }
        self.enter(&mut line, request);
        Ok(None)
    }

    fn enter(&self, line: &mut Line, request: Request) {
        line.bytes += request.bytes();
        line.requests.push_back(request);
        self.length.store(line.requests.len(), Ordering::Release);
        if line.wake_writer_at.is_some_and(|enough| line.requests.len() >= enough) {
            line.wake_writer_at = None;
            self.arrived.notify_one();
        }
    }

    /// Moves all that is in line into `backlog`, which is empty, once there is something.
    pub(super) fn take(&self, backlog: &mut VecDeque<Request>, wait: Wait) -> Taken {
        debug_assert!(backlog.is_empty());
        let (enough, patience) = match wait {
            Wait::ForRequests { patience } => {
                self.look_for_request();
                (1, patience)
            }
            Wait::ForCommit => (limits::LARGE_COMMIT, None),
        };
        let mut line = self.lock();
        let mut timed_out = false;
        while line.requests.len() < enough && line.closed.is_none() && !line.nudged && !timed_out {
            line.wake_writer_at = Some(enough);
            (line, timed_out) = self.sleep(line, patience);
        }
        line.wake_writer_at = None;
        line.nudged = false;
        self.empty(&mut line, backlog);
        if line.closed.is_some() {
            Taken::Closed
        } else if timed_out && backlog.is_empty() {
            Taken::Nothing
        } else {
            Taken::Requests
        }
    }

    /// Moves all that is in line into `backlog`, which is empty.
    pub(super) fn take_at_once(&self, backlog: &mut VecDeque<Request>) {
        debug_assert!(backlog.is_empty());
        self.empty(&mut self.lock(), backlog);
    }

    fn empty(&self, line: &mut Line, backlog: &mut VecDeque<Request>) {
        std::mem::swap(&mut line.requests, backlog);
        line.bytes = 0;
        self.length.store(0, Ordering::Release);
        if line.at_gate > 0 {
            self.room.notify_one();
        }
    }

    fn sleep<'a>(
        &self,
        line: MutexGuard<'a, Line>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'a, Line>, bool) {
        match patience {
            None => (self.arrived.wait(line).unwrap_or_else(PoisonError::into_inner), false),
            Some(patience) => {
                let waited = self.arrived.wait_timeout(line, patience);
                let (line, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (line, timeout.timed_out())
            }
        }
    }

    /// Wakes the writer if it waits for the commit that is under way.
    pub(super) fn nudge(&self) {
        self.lock().nudged = true;
        self.arrived.notify_one();
    }

    /// How many requests are in line.
    pub(super) fn length(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Refuses every later request. Those in line are dropped, which tells their callers.
    pub(super) fn close(&self, why: &Unavailable) {
        let mut line = self.lock();
        line.closed.get_or_insert_with(|| why.clone());
        line.requests = VecDeque::new();
        self.arrived.notify_one();
        self.room.notify_one();
    }

    /// Looks on for a moment: waking the writer costs a single caller more than the wait. Whoever was
    /// just answered may need this very processor to come back.
    fn look_for_request(&self) {
        let started = Instant::now();
        while self.length() == 0 && started.elapsed() < limits::SPIN {
            std::thread::yield_now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn has_room(&self) -> bool {
        self.requests.len() < limits::QUEUE_REQUESTS && self.bytes < limits::QUEUE_BYTES
    }
}

/// A caller at the gate with its request; it leaves when it has entered, or was cancelled.
pub(super) struct AtGate<'a> {
    queue: &'a Queue,
    request: Option<Request>,
}

impl AtGate<'_> {
    /// Puts the request in line once there is room and it is its turn.
    pub(super) async fn enter(mut self) -> Result<(), Unavailable> {
        let queue = self.queue;
        let _turn = queue.gate.lock().await;
        loop {
            let room = queue.room.notified();
            {
                let mut line = queue.lock();
                if let Some(closed) = &line.closed {
                    return Err(closed.clone());
                }
                if line.has_room() {
                    self.request.take().into_iter().for_each(|it| queue.enter(&mut line, it));
                    return Ok(());
                }
            }
            room.await;
        }
    }
}

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.lock();
        line.at_gate -= 1;
        if line.at_gate > 0 {
            self.queue.room.notify_one(); // the next one's turn: it looks for itself
        }
    }
}
