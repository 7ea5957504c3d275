//! The line of requests before the desk, and the place where the writer waits for work.
//!
//! It is bounded, and strictly first come, first served: a call that finds it full must not be
//! overtaken by a later one, or a producer's second append would arrive before its first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::limits;
use super::request::Request;
use crate::contract::Unavailable;

/// Where callers leave requests that they can't apply themselves.
#[derive(Debug, Default)]
pub(super) struct Queue {
    line: Mutex<RequestLine>,
    /// How many are in line or at the gate, to look at without the lock.
    waiting: AtomicUsize,
    /// How many requests have been applied and are in no commit yet.
    applied: AtomicUsize,
    /// Whether the writer sleeps.
    asleep: AtomicBool,
    arrived: Condvar,
    /// Callers that found the line full wait here, in order; the first of them waits for `room`.
    gate: tokio::sync::Mutex<()>,
    room: Notify,
}

#[derive(Debug, Default)]
struct RequestLine {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Callers at the gate. As long as there are any, nobody else may enter.
    at_gate: usize,
    closed: Option<Unavailable>,
}

/// Why the writer waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There are requests, in line or applied.
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
            self.count(&line);
            return Ok(Some(AtGate { queue: self, request: Some(request) }));
        }
        self.enter(&mut line, request);
        Ok(None)
    }

    fn enter(&self, line: &mut RequestLine, request: Request) {
        line.bytes += request.bytes();
        line.requests.push_back(request);
        self.count(line);
        if self.asleep.load(Ordering::Relaxed) {
            self.arrived.notify_one();
        }
    }

    /// So many requests have been applied and are in no commit yet.
    pub(super) fn applied(&self, requests: usize) {
        // Either the writer sees this before it falls asleep, or it is seen here that it sleeps.
        self.applied.store(requests, Ordering::SeqCst);
        if requests > 0 && self.asleep.load(Ordering::SeqCst) {
            drop(self.lock()); // it is not just between looking and sleeping
            self.arrived.notify_one();
        }
    }

    /// Waits until there is something to commit or to apply; says `nothing_comes` before it sleeps.
    pub(super) fn wait(&self, patience: Option<Duration>, nothing_comes: impl FnOnce()) -> Woken {
        if !self.look_for_work() {
            nothing_comes();
        }
        let mut line = self.lock();
        let mut timed_out = false;
        self.asleep.store(true, Ordering::SeqCst);
        while !self.has_work(&line) && line.closed.is_none() && !timed_out {
            (line, timed_out) = self.sleep(line, patience);
        }
        self.asleep.store(false, Ordering::Relaxed);
        if line.closed.is_some() {
            Woken::Closed
        } else if self.has_work(&line) {
            Woken::Requests
        } else {
            Woken::Nothing
        }
    }

    fn has_work(&self, line: &RequestLine) -> bool {
        !line.requests.is_empty() || self.applied.load(Ordering::SeqCst) > 0
    }

    /// Moves all that is in line into `backlog`, which is empty.
    pub(super) fn take(&self, backlog: &mut VecDeque<Request>) {
        debug_assert!(backlog.is_empty());
        let mut line = self.lock();
        std::mem::swap(&mut line.requests, backlog);
        line.bytes = 0;
        self.count(&line);
        if line.at_gate > 0 {
            self.room.notify_one();
        }
    }

    fn sleep<'a>(
        &self,
        line: MutexGuard<'a, RequestLine>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'a, RequestLine>, bool) {
        match patience {
            None => (self.arrived.wait(line).unwrap_or_else(PoisonError::into_inner), false),
            Some(patience) => {
                let waited = self.arrived.wait_timeout(line, patience);
                let (line, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (line, timeout.timed_out())
            }
        }
    }

    /// How many are in line or at the gate: a caller may not go past them. Never none once the queue is
    /// closed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// How many requests the next commit would have.
    pub(super) fn to_commit(&self) -> usize {
        self.waiting() + self.applied.load(Ordering::Relaxed)
    }

    fn count(&self, line: &RequestLine) {
        let closed = usize::from(line.closed.is_some());
        self.waiting.store(line.requests.len() + line.at_gate + closed, Ordering::Release);
    }

    /// Whether it takes no request any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Refuses every later request. Those in line are dropped, which tells their callers.
    pub(super) fn close(&self, why: &Unavailable) {
        let mut line = self.lock();
        line.closed.get_or_insert_with(|| why.clone());
        line.requests = VecDeque::new();
        self.count(&line);
        self.arrived.notify_one();
        self.room.notify_one();
    }

    /// Looks on for a moment: waking the writer costs a single caller more than the wait. Whoever was
    /// just answered may need this very processor to come back.
    fn look_for_work(&self) -> bool {
        let started = Instant::now();
        while self.to_commit() == 0 && started.elapsed() < limits::SPIN {
            std::thread::yield_now();
        }
        self.to_commit() > 0
    }

    fn lock(&self) -> MutexGuard<'_, RequestLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestLine {
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
        self.queue.count(&line);
        if line.at_gate > 0 {
            self.queue.room.notify_one(); // the next one's turn: it looks for itself
        }
    }
}
