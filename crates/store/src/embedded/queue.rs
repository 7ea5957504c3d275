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
    writer_sleeps: bool,
    closed: Option<Unavailable>,
}

impl Queue {
    /// Puts a request in line, once there is room.
    pub(super) async fn push(&self, request: Request) -> Result<(), Unavailable> {
        let Some(request) = self.push_at_once(request)? else { return Ok(()) };
        let _leaves_gate = AtGate(self);
        let _turn = self.gate.lock().await;
        loop {
            let room = self.room.notified();
            {
                let mut line = self.lock();
                if let Some(closed) = &line.closed {
                    return Err(closed.clone());
                }
                if line.has_room() {
                    self.enter(&mut line, request);
                    return Ok(());
                }
            }
            room.await;
        }
    }

    /// Puts it in line if there is room, or joins those at the gate and gives it back.
    fn push_at_once(&self, request: Request) -> Result<Option<Request>, Unavailable> {
        let mut line = self.lock();
        if let Some(closed) = &line.closed {
            return Err(closed.clone());
        }
        if line.at_gate > 0 || !line.has_room() {
            line.at_gate += 1;
            return Ok(Some(request));
        }
        self.enter(&mut line, request);
        Ok(None)
    }

    fn enter(&self, line: &mut Line, request: Request) {
        line.bytes += request.bytes();
        line.requests.push_back(request);
        self.length.store(line.requests.len(), Ordering::Release);
        if line.writer_sleeps {
            line.writer_sleeps = false;
            self.arrived.notify_one();
        }
    }

    /// Moves all that is in line into `backlog`, which is empty. Waits for something to come, if
    /// there is no `patience` without end. Says whether the queue is still open.
    pub(super) fn take(&self, backlog: &mut VecDeque<Request>, patience: Option<Duration>) -> bool {
        debug_assert!(backlog.is_empty());
        self.look_for_a_moment();
        let mut line = self.lock();
        while line.requests.is_empty() && line.closed.is_none() {
            line.writer_sleeps = true;
            let Some(patience) = patience else {
                line = self.arrived.wait(line).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.arrived.wait_timeout(line, patience);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            line = woken;
            if timeout.timed_out() {
                break;
            }
        }
        line.writer_sleeps = false;
        std::mem::swap(&mut line.requests, backlog);
        line.bytes = 0;
        self.length.store(0, Ordering::Release);
        if line.at_gate > 0 {
            self.room.notify_one();
        }
        line.closed.is_none()
    }

    /// Refuses every later request. Those in line are dropped, which tells their callers.
    pub(super) fn close(&self, why: &Unavailable) {
        let mut line = self.lock();
        line.closed.get_or_insert_with(|| why.clone());
        line.requests = VecDeque::new();
        line.writer_sleeps = false;
        self.arrived.notify_one();
        self.room.notify_one();
    }

    fn look_for_a_moment(&self) {
        let until = Instant::now() + Duration::from_micros(limits::SPIN_MICROS);
        while self.length.load(Ordering::Acquire) == 0 && Instant::now() < until {
            std::hint::spin_loop();
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

/// A caller at the gate; it leaves when it has entered, or was cancelled.
struct AtGate<'a>(&'a Queue);

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        let mut line = self.0.lock();
        line.at_gate -= 1;
        if line.at_gate > 0 {
            self.0.room.notify_one(); // the next one's turn: it looks for itself
        }
    }
}
