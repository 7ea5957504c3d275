//! Every task of a server has this one owner: drivers, the reaper, calls of the hook. Whoever closes
//! the server waits here until all of them have ended.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// How long tasks that were aborted have to notice.
const AFTER_ABORT: Duration = Duration::from_secs(1);

pub(crate) struct Tasks {
    runtime: Handle,
    set: Mutex<JoinSet<()>>,
}

impl Tasks {
    /// None yet. To be called inside a tokio runtime, which will run them.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), set: Mutex::default() }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.lock();
        while let Some(end) = set.try_join_next() {
            note_panic(end);
        }
        set.spawn_on(task, &self.runtime);
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
