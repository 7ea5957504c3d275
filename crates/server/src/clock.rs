//! The two clocks of a server, with a type each, so that they can't be taken for one another.
//!
//! | clock | its moments | what is judged by it |
//! |---|---|---|
//! | [`Clock`] | [`Timestamp`] | sessions, reconnect tokens, sealed states: the wall clock read once at start, moved on by a monotonic clock. Setting the machine's clock makes nothing expire |
//! | [`WallClock`] | [`WallTime`] | credentials, whose times another machine wrote: the wall clock of this moment, with every correction |

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_core::Timestamp;
use tokio::time::Instant;

/// Tells the time to everything in one server but credentials.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Clock {
    /// A time line that begins now.
    pub fn start() -> Self {
        let started_at = Timestamp::from_millis(WallClock::default().now().as_millis());
        Self { started: Instant::now(), started_at }
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

/// A moment by the wall clock, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(u64);

impl WallTime {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; nothing if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

/// The machine's wall clock, read anew each time; or, in tests, one that is set by hand.
#[derive(Clone, Debug, Default)]
pub struct WallClock(Option<Arc<AtomicU64>>);

impl WallClock {
    /// A clock that stands still until [`WallClock::set`] moves it, forwards or backwards.
    pub fn standing_at(now: WallTime) -> Self {
        Self(Some(Arc::new(AtomicU64::new(now.0))))
    }

    /// Sets a clock made by [`WallClock::standing_at`], and all clones of it.
    pub fn set(&self, now: WallTime) {
        if let Some(millis) = &self.0 {
            millis.store(now.0, Ordering::Relaxed);
        }
    }

    /// Now.
    pub fn now(&self) -> WallTime {
        if let Some(millis) = &self.0 {
            return WallTime(millis.load(Ordering::Relaxed));
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallTime(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
    }
}
