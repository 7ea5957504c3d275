//! How often something may happen, for each of many keys: so many at once, and then at a steady pace.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rejoin_core::Timestamp;

/// Keys that are remembered; past it those that have recovered are forgotten, and if none has, a new
/// key is told to wait: an attacker with many names must not fill the memory.
const KEYS: usize = 100_000;

/// A budget of `burst` that fills up again at one per `interval`.
#[derive(Debug)]
pub(crate) struct Rate<K> {
    interval: Duration,
    burst: u32,
    /// When each key will have its whole budget again.
    full_at: Mutex<HashMap<K, Timestamp>>,
}

impl<K: Hash + Eq> Rate<K> {
    pub(crate) fn per_minute(times: u32) -> Self {
        let interval = Duration::from_secs(60) / times.max(1);
        Self { interval, burst: times, full_at: Mutex::default() }
    }

    /// Takes one from a key's budget; says how long to wait if it is spent.
    pub(crate) fn take(&self, key: K, now: Timestamp) -> Result<(), Duration> {
        let mut keys = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full = keys.len() >= keys.capacity().min(KEYS); // before the map would grow
        if full && !keys.contains_key(&key) {
            keys.retain(|_, full_at| *full_at > now);
            if keys.len() >= KEYS {
                return Err(self.interval);
            }
        }
        let full_at = keys.entry(key).or_default();
        let after = (*full_at).max(now) + self.interval;
        let furthest = now + self.interval * self.burst;
        if after > furthest {
            return Err(after.since(furthest));
        }
        *full_at = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_burst_is_taken_at_once_and_then_one_for_each_interval() {
        let rate = Rate::per_minute(10);
        for _ in 0..10 {
            assert_eq!(rate.take("a", at(0)), Ok(()));
        }
        assert_eq!(rate.take("a", at(0)), Err(Duration::from_secs(6)));
        assert_eq!(rate.take("b", at(0)), Ok(()), "others have a budget of their own");
        assert_eq!(rate.take("a", at(5_999)), Err(Duration::from_millis(1)));
        assert_eq!(rate.take("a", at(6_000)), Ok(()));
        assert!(rate.take("a", at(6_000)).is_err());
    }

    #[test]
    fn a_refused_attempt_costs_nothing() {
        let rate = Rate::per_minute(1);
        assert_eq!(rate.take(1, at(0)), Ok(()));
        for millis in 0..100 {
            assert!(rate.take(1, at(millis)).is_err());
        }
        assert_eq!(rate.take(1, at(60_000)), Ok(()));
    }

    #[test]
    fn names_without_end_do_not_fill_the_memory() {
        let rate = Rate::per_minute(10);
        for key in 0..KEYS {
            assert_eq!(rate.take(key, at(0)), Ok(()));
        }
        assert!(rate.take(KEYS, at(0)).is_err());
        assert_eq!(rate.take(KEYS, at(6_000)), Ok(()), "the others have recovered");
        assert_eq!(rate.full_at.lock().unwrap().len(), 1);
    }
}
