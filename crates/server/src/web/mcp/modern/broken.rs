//! Calls whose client has gone before it was answered. A client that lost its stream asks the same again: for
//! a while the call goes on without anybody, then it is cancelled. Calls that wait for an answer of their client
//! wait longer.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::asked::Digest;
use super::execution::Execution;
use super::kept::Kept;
use super::upstream::{UpstreamSession, lock};
use crate::mcp::logged::StreamName;
use crate::web::Front;

/// How long a call waits for the answer of its client to a question before it is cancelled.
pub(super) const INPUT_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How long the same call waits for one whose client may have gone without anybody having noticed yet.
const UNNOTICED: Duration = Duration::from_millis(20);

/// What makes two requests the same call: who asks, and what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    /// A digest as well: names of clients may be long, and many calls wait.
    pub(super) owner: Digest,
    pub(super) digest: Digest,
}

/// Broken calls, and those that wait for their client.
#[derive(Default)]
pub(super) struct Broken {
    calls: Mutex<Kept<CallKey, OrphanedCall>>,
    /// Those that wait for an answer of their client. What is dropped when it comes ends the wait.
    asking: Mutex<HashMap<StreamName, oneshot::Sender<()>>>,
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
pub(super) struct OrphanedCall {
    pub(super) execution: Execution,
    pub(super) upstream: UpstreamSession,
}

impl Broken {
    /// The oldest call of this kind that broke. Whoever takes it goes on with it.
    pub(super) fn take(&self, key: &CallKey) -> Option<OrphanedCall> {
        lock(&self.calls).take(key, |_| true)
    }

    /// The same, where an equal call may be about to break: whoever lost a connection can be back before the
    /// loss is noticed here, or before the call has begun.
    pub(super) async fn take_soon(&self, key: &CallKey) -> Option<OrphanedCall> {
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

    fn count(&self, key: Option<&CallKey>, change: impl FnOnce(&mut Count)) {
        let Some(key) = key else { return };
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

    /// Has a broken call wait, and says under which number. Nothing if too many wait: it is cancelled at once.
    pub(super) fn keep(&self, key: &CallKey, waiting: OrphanedCall) -> Option<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let principal = waiting.upstream.record.about.principal.clone();
        lock(&self.calls).keep(key, principal, number, waiting).then_some(number)
    }

    /// The time of a broken call is over, unless somebody took it.
    pub(super) fn is_over(&self, key: &CallKey, number: u64) -> bool {
        lock(&self.calls).take(key, |known| known == number).is_some()
    }
}

/// A call that is being entered. Equal ones wait until it has begun; without a key there are none.
pub(super) struct EnteringCall {
    front: Arc<Front>,
    key: Option<CallKey>,
}

impl EnteringCall {
    pub(super) fn new(front: &Arc<Front>, key: Option<CallKey>) -> Self {
        front.modern.broken.count(key.as_ref(), |count| count.beginning += 1);
        Self { front: Arc::clone(front), key }
    }

    pub(super) fn key(&self) -> Option<&CallKey> {
        self.key.as_ref()
    }

    /// The call has begun.
    pub(super) fn with(self, waiting: OrphanedCall) -> Attended {
        self.front.modern.broken.count(self.key(), |count| count.begun += 1);
        let (front, key) = (Arc::clone(&self.front), self.key.clone());
        Attended { front, key, waiting, armed: true }
    }
}

impl Drop for EnteringCall {
    fn drop(&mut self) {
        self.front.modern.broken.count(self.key.as_ref(), |count| count.beginning -= 1);
    }
}

/// A call whose client is there. If it is dropped before it is finished, its stream has broken.
pub(super) struct Attended {
    front: Arc<Front>,
    /// By what it is known when it is issued again; nothing if it is cancelled once its stream breaks.
    key: Option<CallKey>,
    waiting: OrphanedCall,
    armed: bool,
}

impl Attended {
    pub(super) fn execution(&self) -> &Execution {
        &self.waiting.execution
    }

    pub(super) fn upstream(&self) -> &UpstreamSession {
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
        let (waits, comes) = oneshot::channel();
        lock(&broken.asking).insert(self.execution().stream.clone(), waits);
        let (front, waiting) = (Arc::clone(&self.front), self.waiting.clone());
        self.front.service.sessions().spawn(|_| give_up_asking(front, waiting, comes));
    }

    /// Nobody wants the answer.
    pub(super) fn abandon(&mut self, reason: &'static str) {
        if std::mem::take(&mut self.armed) {
            let (front, waiting) = (Arc::clone(&self.front), self.waiting.clone());
            self.front.service.sessions().spawn(|_| cancel(front, waiting, reason));
        }
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.leave();
        self.front.modern.broken.count(self.key.as_ref(), |count| count.begun -= 1);
    }
}

impl Attended {
    /// Unless the client has its answer, the call goes on without it for a while.
    fn leave(&mut self) {
        if !self.armed {
            return;
        }
        let window = self.front.settings.mcp.modern.reissue_window;
        let kept = self.key.clone().and_then(|key| {
            let number = self.front.modern.broken.keep(&key, self.waiting.clone())?;
            Some((key, number))
        });
        match kept {
            Some((key, number)) => {
                let (front, waiting) = (Arc::clone(&self.front), self.waiting.clone());
                let sessions = self.front.service.sessions();
                sessions.spawn(|_| give_up(front, key, waiting, number, window));
            }
            None => self.abandon("its stream broke"),
        }
    }
}

async fn give_up(
    front: Arc<Front>,
    key: CallKey,
    waiting: OrphanedCall,
    number: u64,
    after: Duration,
) {
    if has_passed(&front, after).await && front.modern.broken.is_over(&key, number) {
        cancel(front, waiting, "its stream broke and nobody came for it").await;
    }
}

/// Ends when the client comes: of many questions that are answered nothing is left.
async fn give_up_asking(
    front: Arc<Front>,
    waiting: OrphanedCall,
    mut comes: oneshot::Receiver<()>,
) {
    let passed = tokio::select! {
        biased;
        _ = &mut comes => false,
        passed = has_passed(&front, INPUT_PATIENCE) => passed,
    };
    if !passed {
        return;
    }
    let over = {
        let mut asking = lock(&front.modern.broken.asking);
        let over = comes.try_recv() == Err(TryRecvError::Empty);
        if over {
            asking.remove(&waiting.execution.stream);
        }
        over
    };
    if over {
        cancel(front, waiting, "its client did not answer").await;
    }
}

/// Waits, unless the server goes down before.
pub(super) async fn has_passed(front: &Front, wait: Duration) -> bool {
    tokio::time::timeout(wait, front.service.sessions().stopping()).await.is_err()
}

async fn cancel(front: Arc<Front>, waiting: OrphanedCall, reason: &'static str) {
    let OrphanedCall { execution, upstream } = &waiting;
    let sessions = front.service.sessions();
    tracing::debug!(session = %execution.session, in_seq = %execution.in_seq, reason, "a call is cancelled");
    let _ = execution.cancel(sessions, reason).await; // or its session is over
    if upstream.alone {
        sessions.end_and_forget(&execution.session);
    }
}
