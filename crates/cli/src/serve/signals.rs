//! How people and supervisors tell the server to stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT: the first stops in an orderly way, the second at once.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Listens from now on, so that a signal during the start is not lost.
    pub(crate) fn listen() -> Result<Self> {
        let open = |kind| signal(kind).context("signals can't be listened for");
        Ok(Self {
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    /// Waits for one, and says which.
    pub(crate) async fn requested(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
