//! Tells the store every second that this process is alive, as long as clients are attached: if it is
//! killed, the next one knows since when they have been away.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::shared::Shared;

/// How often. So much may be missing of the time that clients were there.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the server stops, which is the last sign of life.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.stopping() => break,
        }
        if shared.metrics.attached.get() > 0 {
            shared.store.note_alive(shared.clock.now());
        }
    }
    shared.store.note_alive(shared.clock.now());
}
