//! Hooks that do as they are told.

use async_trait::async_trait;
use rejoin::core::record::Record;
use rejoin::{Cleanup, SessionHook};
use tokio::sync::mpsc;

/// Gives every clean-up away, to whoever has the other end.
pub struct GiveAway(mpsc::UnboundedSender<Cleanup>);

impl GiveAway {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Cleanup>) {
        let (sender, cleanups) = mpsc::unbounded_channel();
        (Self(sender), cleanups)
    }
}

#[async_trait]
impl SessionHook for GiveAway {
    async fn disconnected(&self, _session: Record, cleanup: Cleanup) {
        self.0.send(cleanup).unwrap();
    }
}

/// Panics with the clean-up in its hand.
pub struct Panics;

#[async_trait]
impl SessionHook for Panics {
    async fn disconnected(&self, _session: Record, _cleanup: Cleanup) {
        panic!("a hook that panics, on purpose");
    }
}

/// Never returns, and never decides.
pub struct Hangs;

#[async_trait]
impl SessionHook for Hangs {
    async fn disconnected(&self, _session: Record, _cleanup: Cleanup) {
        std::future::pending().await
    }
}
