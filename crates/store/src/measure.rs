//! What a store measures about itself, for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_core::log::Trimmed;

/// What has happened since the store was opened.
#[derive(Debug, Default)]
pub struct Measurements {
    /// How long commits took, in seconds.
    pub commit_seconds: Distribution<10>,
    /// How many requests went into each.
    pub commit_requests: Distribution<8>,
    /// Events that were dropped over a bound before their client had acked them.
    pub overflowed_events: AtomicU64,
    /// Events that were dropped, acked or not, because all sessions together held too much.
    pub shed_events: AtomicU64,
    /// Bytes of events that all sessions hold at this moment.
    pub buffered_bytes: AtomicU64,
}

/// How many bytes a store takes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreBytes {
    /// In the file of its database.
    pub database: u64,
    /// In the file of its write-ahead log, which may be made larger than what is in it.
    pub wal: u64,
    /// Of events, messages and states in memory.
    pub memory: u64,
}

/// Upper bounds of commit times, in seconds.
const SECONDS: [f64; 10] = [0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];

/// Upper bounds of the number of requests in a commit.
const REQUESTS: [f64; 8] = [1.0, 2.0, 8.0, 32.0, 64.0, 128.0, 512.0, 2_048.0];

impl Measurements {
    /// A commit of so many requests took so long.
    pub fn committed(&self, took: Duration, requests: usize) {
        self.commit_seconds.note(&SECONDS, took.as_secs_f64());
        self.commit_requests.note(&REQUESTS, requests as f64);
    }

    /// Events were dropped that their client had not acked.
    pub fn overflowed(&self, events: u64) {
        if events > 0 {
            self.overflowed_events.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// Events were dropped because all sessions together held too much.
    pub fn shed(&self, trimmed: Trimmed) {
        self.shed_events.fetch_add(trimmed.settled + trimmed.unacked, Ordering::Relaxed);
        self.overflowed(trimmed.unacked);
    }

    /// A session holds `now` bytes of events instead of `was`.
    pub fn holds(&self, was: u64, now: u64) {
        if was != now {
            // It wraps, and comes out right: nothing was taken away that had not been added.
            self.buffered_bytes.fetch_add(now.wrapping_sub(was), Ordering::Relaxed);
        }
    }

    /// Whether any session holds an event.
    pub(crate) fn holds_any(&self) -> bool {
        self.buffered_bytes.load(Ordering::Relaxed) > 0
    }

    /// The bounds that go with [`Self::commit_seconds`].
    pub fn seconds(&self) -> &'static [f64] {
        &SECONDS
    }

    /// The bounds that go with [`Self::commit_requests`].
    pub fn requests(&self) -> &'static [f64] {
        &REQUESTS
    }
}

/// How often something lay between which bounds.
#[derive(Debug)]
pub struct Distribution<const N: usize> {
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    /// The sum, in millionths.
    sum: AtomicU64,
}

impl<const N: usize> Default for Distribution<N> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Distribution<N> {
    /// Notes a value. The bounds are the same every time.
    pub fn note(&self, bounds: &[f64; N], value: f64) {
        let place = bounds.iter().position(|bound| value <= *bound);
        let count = place.map_or(&self.beyond, |place| &self.counts[place]);
        count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    /// How often it lay at or below each bound, and how often in all.
    pub fn cumulated(&self) -> (Vec<u64>, u64) {
        let mut below = 0;
        let counts = self.counts.iter().map(|count| {
            below += count.load(Ordering::Relaxed);
            below
        });
        let counts: Vec<u64> = counts.collect();
        (counts, below + self.beyond.load(Ordering::Relaxed))
    }

    /// The sum of all.
    pub fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / 1e6
    }
}
