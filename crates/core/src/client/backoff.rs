//! When to try again: longer each time, never all clients at once, never earlier than the server asks.

use crate::limits;
use std::time::Duration;

/// How often it went wrong since the last attachment, and how long to wait because of it.
#[derive(Debug)]
pub(super) struct Backoff {
    steps: Vec<Duration>,
    max_attempts: u32,
    failures: u32,
    refusals: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            steps: limits::BACKOFF.to_vec(),
            max_attempts: limits::MAX_ATTEMPTS,
            failures: 0,
            refusals: 0,
        }
    }
}

impl Backoff {
    /// The server says how it wants clients to wait.
    pub(super) fn configure(&mut self, steps: &[Duration], max_attempts: u32) {
        if !steps.is_empty() {
            self.steps = steps.iter().copied().take(limits::BACKOFF_STEPS).collect();
        }
        self.max_attempts = max_attempts;
    }

    /// An attachment: all is well.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
        self.refusals = 0;
    }

    /// The server refused to attach this client. Only this counts towards the end: a server that
    /// can't be reached, or closes with "come back", is tried for ever. True when it is enough.
    pub(super) fn refused(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= self.max_attempts
    }

    /// An attempt came to nothing: how long to wait before the next, and the how-manieth that is.
    ///
    /// The jitter is full, from nothing up to the step: after a crash of the server its clients come
    /// back spread over the whole step. What the server asked for is waited in any case, and the
    /// jitter comes on top of it, for it told all of them the same.
    pub(super) fn next(&mut self, retry_after: Option<Duration>, random: u32) -> (u32, Duration) {
        let step = self.step(self.failures);
        self.failures = self.failures.saturating_add(1);
        let delay = retry_after.unwrap_or_default().saturating_add(jitter(step, random));
        (self.failures, delay)
    }

    /// The step after `failures` failures; the last one stays.
    pub(super) fn step(&self, failures: u32) -> Duration {
        let last = self.steps.len() - 1;
        self.steps[last.min(usize::try_from(failures).unwrap_or(last))]
    }
}

/// A part of `step` in whole milliseconds, from none up to but not including the whole, in proportion
/// to `random`.
fn jitter(step: Duration, random: u32) -> Duration {
    let millis = (step.as_millis() * u128::from(random)) >> u32::BITS;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = 1 << 31;

    #[test]
    fn jitter_spans_the_whole_step_and_never_reaches_its_end() {
        let step = Duration::from_secs(8);
        let cases = [(0, 0), (1 << 30, 2000), (HALF, 4000), (3 << 30, 6000), (u32::MAX, 7999)];
        for (random, millis) in cases {
            assert_eq!(jitter(step, random), Duration::from_millis(millis), "{random}");
        }
        assert_eq!(jitter(Duration::MAX, u32::MAX), Duration::from_millis(u64::MAX));
    }

    #[test]
    fn steps_grow_and_the_last_one_stays() {
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..9).map(|_| backoff.next(None, HALF).1.as_millis()).collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 15_000, 30_000, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next(None, HALF), (1, Duration::from_millis(500)));
    }

    #[test]
    fn what_the_server_asks_for_is_a_lower_bound_with_jitter_on_top() {
        let mut backoff = Backoff::default();
        let asked = Some(Duration::from_secs(10));
        assert_eq!(backoff.next(asked, 0).1, Duration::from_secs(10));
        assert_eq!(backoff.next(asked, HALF).1, Duration::from_secs(11));
        assert_eq!(backoff.next(Some(Duration::MAX), u32::MAX).1, Duration::MAX);
    }

    #[test]
    fn an_empty_list_of_the_server_changes_nothing() {
        let mut backoff = Backoff::default();
        backoff.configure(&[], 5);
        assert_eq!(backoff.step(0), Duration::from_secs(1));
        backoff.configure(&[Duration::from_secs(3)], 5);
        assert_eq!(backoff.step(7), Duration::from_secs(3));
    }
}
