//! Calls whose client has gone before it was answered. A client that lost its stream asks the same again: for
//! a while the call goes on without anybody, then it is cancelled. Calls that wait for an answer of their client
//! wait longer.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::asked::Digest;
use super::execution::Execution;
use super::upstream::{Upstream, lock};
use crate::mcp::logged::StreamName;
use crate::service::Phase;
use crate::web::Front;

/// How long a call waits for the answer of its client to a question before it is cancelled.
pub(super) const INPUT_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How long the same call waits for one whose client may have gone without anybody having noticed yet.
const UNNOTICED: Duration = Duration::from_millis(20);

/// How many broken calls wait at most; what breaks then is cancelled at once.
const MOST_WAITING: usize = 10_000;

/// How many equal ones.
const MOST_EQUAL: usize = 1_000;

/// What makes two requests the same call: who asks, and what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) owner: String,
    pub(super) digest: Digest,
}

/// Broken calls, and those that wait for their client.
#[derive(Default)]
pub(super) struct Broken {
    calls: Mutex<HashMap<CallKey, VecDeque<(u64, Waiting)>>>,
    asking: Mutex<HashMap<StreamName, u64>>,
    /// Those of each kind whose client seems to be there.
    attended: Mutex<HashMap<CallKey, Count>>,
    /// Woken when one of those has begun or its client has gone.
    moved: Notify,
    last: AtomicU64,
}

/// How many calls of a kind there are.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Those that are being entered. The server behind may have been handed them already.
    beginning: usize,
    begun: usize,
}

/// A call that goes on although nobody listens.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) execution: Execution,
    pub(super) upstream: Upstream,
}

impl Broken {
    /// The oldest call of this kind that broke. Whoever takes it goes on with it.
    pub(super) fn take(&self, key: &CallKey) -> Option<Waiting> {
        let mut calls = lock(&self.calls);
        let waiting = calls.get_mut(key)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            calls.remove(key);
        }
        first.map(|(_, waiting)| waiting)
    }

    /// The same, where an equal call may be about to break: whoever lost a connection can be back before the
    /// loss is noticed here, or before the call has begun.
    pub(super) async fn take_soon(&self, key: &CallKey) -> Option<Waiting> {
        let mut until = Instant::now() + UNNOTICED;
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            if let Some(waiting) = self.take(key) {
                return Some(waiting);
            }
            let count = lock(&self.attended).get(key).copied()?;
            if count.beginning > 0 {
                moved.await;
                until = Instant::now() + UNNOTICED;
            } else {
                timeout_at(until, moved).await.ok()?;
            }
        }
    }

    fn count(&self, key: &CallKey, change: impl FnOnce(&mut Count)) {
        let mut attended = lock(&self.attended);
        let count = attended.entry(key.clone()).or_default();
        change(count);
        if count.beginning + count.begun == 0 {
            attended.remove(key);
        }
        drop(attended);
        self.moved.notify_waiters();
    }

    /// The client of a call has come with an answer.
    pub(super) fn has_come(&self, stream: &StreamName) {
        lock(&self.asking).remove(stream);
    }

    pub(super) fn keep(&self, key: &CallKey, waiting: Waiting) -> Option<u64> {
        let mut calls = lock(&self.calls);
        if calls.len() >= MOST_WAITING {
            return None;
        }
        let same = calls.entry(key.clone()).or_default();
        if same.len() >= MOST_EQUAL {
            return None;
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        same.push_back((number, waiting));
        Some(number)
    }

    /// The time of a broken call is over, unless somebody took it.
    pub(super) fn is_over(&self, key: &CallKey, number: u64) -> bool {
        let mut calls = lock(&self.calls);
        let Some(waiting) = calls.get_mut(key) else { return false };
        let before = waiting.len();
        waiting.retain(|(known, _)| *known != number);
        let over = waiting.len() < before;
        if waiting.is_empty() {
            calls.remove(key);
        }
        over
    }
}

/// A call that is being entered. Equal ones wait until it has begun.
pub(super) struct Beginning {
    front: Arc<Front>,
    key: CallKey,
}

impl Beginning {
    pub(super) fn new(front: &Arc<Front>, key: CallKey) -> Self {
        front.modern.broken.count(&key, |count| count.beginning += 1);
        Self { front: Arc::clone(front), key }
    }

    pub(super) fn key(&self) -> &CallKey {
        &self.key
    }

    /// The call has begun.
    pub(super) fn with(self, waiting: Waiting) -> Attended {
        self.front.modern.broken.count(&self.key, |count| count.begun += 1);
        let (front, key) = (Arc::clone(&self.front), self.key.clone());
        Attended { front, key, waiting, armed: true }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        self.front.modern.broken.count(&self.key, |count| count.beginning -= 1);
    }
}

/// A call whose client is there. If it is dropped before it is finished, its stream has broken.
pub(super) struct Attended {
    front: Arc<Front>,
    key: CallKey,
    waiting: Waiting,
    armed: bool,
}

impl Attended {
    pub(super) fn execution(&self) -> &Execution {
        &self.waiting.execution
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.waiting.upstream
    }

    /// The client has its answer.
    pub(super) fn finish(&mut self) {
        if std::mem::take(&mut self.armed) && self.upstream().alone {
            self.front.service.sessions().end_and_forget(&self.execution().session);
        }
    }

    /// The call goes on by itself.
    pub(super) fn let_go(&mut self) {
        self.armed = false;
    }

    /// The call waits for its client, which has been asked something.
    pub(super) fn asks(&mut self) {
        self.armed = false;
        let broken = &self.front.modern.broken;
        let number = broken.last.fetch_add(1, Ordering::Relaxed);
        lock(&broken.asking).insert(self.execution().stream.clone(), number);
        tokio::spawn(give_up_asking(Arc::clone(&self.front), self.waiting.clone(), number));
    }

    /// Nobody wants the answer.
    pub(super) fn abandon(&mut self, reason: &'static str) {
        if std::mem::take(&mut self.armed) {
            tokio::spawn(cancel(Arc::clone(&self.front), self.waiting.clone(), reason));
        }
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.leave();
        self.front.modern.broken.count(&self.key, |count| count.begun -= 1);
    }
}

impl Attended {
    /// Unless the client has its answer, the call goes on without it for a while.
    fn leave(&mut self) {
        if !self.armed || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let window = self.front.settings.mcp.modern.reissue_window;
        let waiting = self.waiting.clone();
        let kept = match window.is_zero() {
            true => None,
            false => self.front.modern.broken.keep(&self.key, waiting),
        };
        match kept {
            Some(number) => {
                let (front, key) = (Arc::clone(&self.front), self.key.clone());
                tokio::spawn(give_up(front, key, self.waiting.clone(), number, window));
            }
            None => self.abandon("its stream broke"),
        }
    }
}

async fn give_up(front: Arc<Front>, key: CallKey, waiting: Waiting, number: u64, after: Duration) {
    if has_passed(&front, after).await && front.modern.broken.is_over(&key, number) {
        cancel(front, waiting, "its stream broke and nobody came for it").await;
    }
}

async fn give_up_asking(front: Arc<Front>, waiting: Waiting, number: u64) {
    if !has_passed(&front, INPUT_PATIENCE).await {
        return;
    }
    let stream = &waiting.execution.stream;
    let over = {
        let mut asking = lock(&front.modern.broken.asking);
        let over = asking.get(stream) == Some(&number);
        if over {
            asking.remove(stream);
        }
        over
    };
    if over {
        cancel(front, waiting, "its client did not answer").await;
    }
}

/// Waits, unless the server goes down before.
pub(super) async fn has_passed(front: &Front, wait: Duration) -> bool {
    let mut phase = front.service.phase();
    let closing = phase.wait_for(|phase| *phase == Phase::Closing);
    tokio::time::timeout(wait, closing).await.is_err()
}

async fn cancel(front: Arc<Front>, waiting: Waiting, reason: &'static str) {
    let Waiting { execution, upstream } = &waiting;
    let sessions = front.service.sessions();
    tracing::debug!(session = %execution.session, in_seq = %execution.in_seq, reason, "a call is cancelled");
    let _ = execution.cancel(sessions, reason).await; // or its session is over
    if upstream.alone {
        sessions.end_and_forget(&execution.session);
    }
}
