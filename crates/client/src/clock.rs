//! The client's time line: the wall clock read once at start, moved on by a monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_core::Timestamp;
use tokio::time::Instant;

/// A wait that no program lives to see the end of; later than that a timer can't be set.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Tells the time to one driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Clock {
    /// A time line that begins now.
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { started: Instant::now(), started_at: Timestamp::from_millis(millis) }
    }

    /// Now.
    pub(crate) fn now(&self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }

    /// When that is for the runtime's timers: not earlier, though the time line counts in whole
    /// milliseconds.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let from_start = at.since(self.started_at);
        if from_start > FOR_EVER {
            return Instant::now() + FOR_EVER;
        }
        self.started + from_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_time_can_be_waited_for() {
        let clock = Clock::start();
        assert!(clock.instant(Timestamp::from_millis(u64::MAX)) > Instant::now());
        let soon = clock.now() + Duration::from_millis(5);
        assert!(clock.instant(soon) <= Instant::now() + Duration::from_millis(5));
    }
}
