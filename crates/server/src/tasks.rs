//! Every task of a server has this one owner: drivers, the reaper, calls of the hook, and every change that a caller asks
//! for. Whoever closes the server waits here until all of them have ended.
//!
//! A caller's future may be dropped at any await: hyper drops a handler when its client hangs up. So whatever changes
//! sessions, and what follows from the change, runs in a task here and the caller only waits for it ([`Tasks::finish`]).
//! Only such a task has an [`Owned`], and only with that can the store be changed.
//!
//! `clippy.toml` of this crate disallows `tokio::spawn`: a task that has another owner names it where it is spawned.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rejoin_store::Unavailable;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::Instrument as _;

/// How long tasks that were aborted have to notice.
const AFTER_ABORT: Duration = Duration::from_secs(1);

pub(crate) struct Tasks {
    runtime: Handle,
    set: Mutex<JoinSet<()>>,
}

/// Proof that something runs in a task of the server: no caller that goes away ends it half way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned(());

/// Work that was begun.
#[derive(Debug)]
pub(crate) enum Begun<T> {
    Done(T),
    UnderWay(oneshot::Receiver<T>),
}

impl<T> Begun<T> {
    /// What came of it.
    pub(crate) async fn outcome(self) -> Result<T, Unavailable> {
        match self {
            Self::Done(outcome) => Ok(outcome),
            Self::UnderWay(outcome) => outcome.await.map_err(|_| crate::error::gone()),
        }
    }
}

impl Tasks {
    /// None yet. To be called inside a tokio runtime, which will run them.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), set: Mutex::default() }
    }

    pub(crate) fn spawn<F>(&self, task: impl FnOnce(Owned) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // The task gets its work after the lock is released: a runtime that has ended drops what it is given at once, and
        // what the work owns may spawn when it is dropped (`Cleanup` does).
        let (give, work) = oneshot::channel();
        self.spawn_in_set(async move {
            if let Ok(work) = work.await {
                work.await;
            }
        });
        let _ = give.send(Box::pin(task(Owned(())))); // not taken: the runtime has ended
    }

    fn spawn_in_set(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.lock();
        while let Some(end) = set.try_join_next() {
            note_panic(end);
        }
        set.spawn_on(task, &self.runtime);
    }

    /// Does some work to its end, whether or not the caller waits for it. Fails only if the work panics, or takes too
    /// long to end when the server closes.
    pub(crate) async fn finish<T, F>(&self, work: impl FnOnce(Owned) -> F) -> Result<T, Unavailable>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        self.spawn(|owned| {
            let work = work(owned).in_current_span();
            async move {
                let _ = done.send(work.await); // the caller may have gone
            }
        });
        outcome.await.map_err(|_| crate::error::gone())
    }

    /// Begins some work before it returns, and does the rest of it to its end, whether or not the caller waits. What one
    /// caller begins first, the store does first.
    pub(crate) fn begin<T, F>(&self, work: impl FnOnce(Owned) -> F) -> Begun<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut work = Box::pin(work(Owned(())));
        if let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Begun::Done(outcome);
        }
        let (done, outcome) = oneshot::channel();
        self.spawn_in_set(async move {
            let _ = done.send(work.await); // the caller may have gone
        });
        Begun::UnderWay(outcome)
    }

    /// Waits until all have ended; those that take longer than `within` are aborted.
    pub(crate) async fn end(&self, within: Duration) {
        if timeout(within, self.all_ended()).await.is_err() {
            tracing::warn!("some tasks did not end in time and are aborted");
            self.lock().abort_all();
            let _ = timeout(AFTER_ABORT, self.all_ended()).await;
        }
    }

    async fn all_ended(&self) {
        // Locked for each look and never in between, since a task that ends may start another.
        while let Some(end) = poll_fn(|context| self.lock().poll_join_next(context)).await {
            note_panic(end);
        }
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note_panic(end: Result<(), JoinError>) {
    if end.is_err_and(|error| error.is_panic()) {
        tracing::error!("a task of the server panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn work_ends_though_its_caller_has_gone() {
        let (tasks, done) = (Tasks::new(), Arc::new(AtomicBool::new(false)));
        let noted = Arc::clone(&done);
        let work = tasks.finish(|_| async move {
            yield_now().await;
            noted.store(true, Ordering::SeqCst);
        });
        assert!(work.now_or_never().is_none(), "polled once and dropped");
        tasks.end(Duration::from_secs(5)).await;
        assert!(done.load(Ordering::SeqCst));
    }

    /// Spawns when it is dropped, as [`crate::Cleanup`] does.
    struct SpawnsAtLast(Arc<Tasks>);

    impl Drop for SpawnsAtLast {
        fn drop(&mut self) {
            self.0.spawn(|_| async {});
        }
    }

    #[test]
    fn work_that_a_runtime_drops_at_once_may_spawn_when_it_is_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks = runtime.block_on(async { Arc::new(Tasks::new()) });
        drop(runtime);
        let (ended, noticed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let last = SpawnsAtLast(Arc::clone(&tasks));
            tasks.spawn(|_| async move { drop(last) });
            ended.send(())
        });
        let noticed = noticed.recv_timeout(Duration::from_secs(20));
        assert!(noticed.is_ok(), "it waits for a lock that it holds");
    }

    #[tokio::test]
    async fn work_that_panics_is_not_waited_for_for_ever() {
        let tasks = Tasks::new();
        let failed: Result<(), _> = tasks.finish(|_| async { panic!("on purpose") }).await;
        assert!(failed.is_err());
    }
}
