//! The server's time line: the wall clock read once at start, moved on by a monotonic clock. Nobody
//! who sets the machine's clock can make sessions expire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_core::Timestamp;
use tokio::time::Instant;

/// Tells the time to everything in one server.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Clock {
    /// A time line that begins now.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { started: Instant::now(), started_at: Timestamp::from_millis(millis) }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }

    /// When that is for the runtime's timers; at once if it has passed.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.started + at.since(self.started_at)
    }
}
