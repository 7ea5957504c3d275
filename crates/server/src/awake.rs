//! Staying awake for what comes at once. A processor with nothing to do sleeps, and on virtual machines
//! above all it takes longer to wake up, and to get going again with cold caches, than a quick tool takes to
//! answer: a call that passes through several processes pays that at each step. So where an agent has just
//! been quick, a worker of the runtime goes on looking for its answer, and then for the client's next
//! message, instead of sleeping ([`crate::driver`] says when). Everything else on that worker runs as
//! it would.
//!
//! That spends time of a processor, at most about a millisecond for a message, and nothing where agents
//! or clients take their time. It is off unless the settings say so
//! ([`crate::ServerSettings::stay_awake`]): the runtime belongs to whoever has built this server in, and
//! with several workers another one may be the one that hears of input (decision 0026).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::shared::Shared;

/// Keeps a worker of the runtime awake whenever it is to be, until the server stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some(awake) = &shared.awake else { return };
    tokio::select! {
        never = awake.run() => match never {},
        () = shared.stopping() => {}
    }
}

#[derive(Debug)]
pub(crate) struct Awake {
    started: Instant,
    /// Until when, in nanoseconds since the start.
    until: AtomicU64,
    roused: Notify,
}

impl Awake {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), until: AtomicU64::new(0), roused: Notify::new() }
    }

    /// The runtime stays awake for so long from now. Whoever says so last is right: with several messages
    /// under way there is enough to do to stay awake for.
    pub(crate) fn stay(&self, time: Duration) {
        self.until.store(self.now().saturating_add(nanos(time)), Ordering::Relaxed);
        self.roused.notify_one();
    }

    async fn run(&self) -> Infallible {
        loop {
            self.roused.notified().await;
            while self.now() < self.until.load(Ordering::Relaxed) {
                yield_now().await; // the worker runs what is ready and looks for input, and does not sleep
            }
        }
    }

    fn now(&self) -> u64 {
        nanos(self.started.elapsed())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn it_looks_on_as_long_as_it_is_to_stay_awake() {
        let (awake, looks) = (Arc::new(Awake::new()), Arc::new(AtomicUsize::new(0)));
        let counted = {
            let (awake, looks) = (Arc::clone(&awake), Arc::clone(&looks));
            async move {
                let mut running = pin!(awake.run());
                poll_fn(|context| {
                    looks.fetch_add(1, Ordering::Relaxed);
                    running.as_mut().poll(context)
                })
                .await
            }
        };
        let task = tokio::spawn(counted);

        let looks_meanwhile = async || {
            let before = looks.load(Ordering::Relaxed);
            for _ in 0..100 {
                yield_now().await;
            }
            looks.load(Ordering::Relaxed) - before
        };
        assert_eq!(looks_meanwhile().await, 1, "it begins, and nobody wants it awake");
        awake.stay(HOUR);
        assert!(looks_meanwhile().await >= 99);
        awake.stay(Duration::ZERO);
        assert!(looks_meanwhile().await <= 2, "the time is over");
        awake.stay(HOUR);
        assert!(looks_meanwhile().await >= 99, "and begins anew");
        task.abort();
    }
}
