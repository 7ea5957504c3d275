//! How quickly an agent answers: where it is quick, a runtime that stays awake for its answer saves more
//! than it spends ([`crate::awake`]), and one that answers at once can be durable together with what it
//! answers (decision 0026).

use std::time::{Duration, Instant};

/// An answer that takes less, from the message until it is durable, is quick.
pub(super) const QUICK: Duration = Duration::from_millis(1);

/// The agent has said it at once if it takes less than this.
pub(super) const AT_ONCE: Duration = Duration::from_micros(500);

/// How long a client has to come back that was answered quickly.
pub(super) const BACK: Duration = Duration::from_micros(150);

/// How long an agent has last taken.
#[derive(Debug)]
pub(super) struct Pace {
    /// When a message came that it has said nothing after.
    asked: Option<Instant>,
    took: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { asked: None, took: Duration::MAX }
    }
}

impl Pace {
    /// A message comes; how long it can be expected to take until it is answered.
    pub(super) fn asked(&mut self, now: Instant) -> Duration {
        if self.asked.replace(now).is_some() {
            self.took = Duration::MAX; // the message before it is not answered yet, and may never be
        }
        self.took
    }

    /// What the agent has said is durable; how long that took, if it is an answer.
    pub(super) fn answered(&mut self, now: Instant) -> Duration {
        let Some(asked) = self.asked.take() else { return Duration::MAX };
        self.took = now.duration_since(asked);
        self.took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_expected_to_take_as_long_as_the_last_one() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.asked(now), Duration::MAX, "nothing is known of the agent");
        assert_eq!(pace.answered(now + QUICK), QUICK);
        assert_eq!(pace.asked(now), QUICK);
        assert_eq!(pace.answered(now), Duration::ZERO);
        assert_eq!(pace.asked(now), Duration::ZERO);
    }

    #[test]
    fn what_an_agent_says_by_itself_is_no_answer() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.asked(now);
        pace.answered(now);
        assert_eq!(pace.answered(now + QUICK), Duration::MAX);
        assert_eq!(pace.asked(now), Duration::ZERO);
    }

    #[test]
    fn nothing_is_expected_while_a_message_is_not_answered() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.asked(now);
        pace.answered(now);
        assert_eq!(pace.asked(now), Duration::ZERO);
        assert_eq!(pace.asked(now), Duration::MAX);
    }
}
