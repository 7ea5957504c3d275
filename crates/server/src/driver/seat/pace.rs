//! How quickly an agent answers and its client comes back. Where both are quick, a runtime that stays awake
//! for them saves more than it spends ([`crate::awake`]), and an agent that answers at once can be durable
//! together with what it answers (decision 0026).

use std::time::{Duration, Instant};

/// An agent that says something within this time is quick, and so is a client that is back within it.
pub(super) const QUICK: Duration = Duration::from_millis(1);

/// An agent that says something within this time answers at once: a message can wait for that.
pub(super) const AT_ONCE: Duration = Duration::from_micros(200);

/// How long the runtime stays awake for a client that was answered quickly.
pub(super) const BACK: Duration = Duration::from_micros(150);

/// How it went with the last message.
#[derive(Debug)]
pub(super) struct Pace {
    /// When a message came that the agent has said nothing after.
    asked: Option<Instant>,
    /// How long it took to say something after the last one.
    took: Duration,
    answer: Answer,
    /// Whether the client was back quickly with the last message, after the answer to the one before.
    back: bool,
}

/// What has become of the answer to the last message.
#[derive(Debug)]
enum Answer {
    /// There is none, or nothing to wait for.
    None,
    /// It is on its way to the store.
    Said,
    /// It was durable at this time, and the client could know it.
    Durable(Instant),
}

impl Pace {
    /// Of an agent of which nothing is known.
    pub(super) fn new() -> Self {
        Self { asked: None, took: Duration::MAX, answer: Answer::None, back: false }
    }

    /// A message comes; how long the agent can be expected to take, if it and its client go on as they did.
    pub(super) fn asked(&mut self, now: Instant) -> Duration {
        let in_turn = self.asked.replace(now).is_none();
        self.back = match self.answer {
            Answer::Durable(at) => in_turn && now.duration_since(at) < QUICK,
            Answer::Said | Answer::None => false,
        };
        if self.back { self.took } else { Duration::MAX }
    }

    /// The agent says something, which is an answer if something was asked.
    pub(super) fn said(&mut self, now: Instant) {
        if let Some(asked) = self.asked.take() {
            self.took = now.duration_since(asked);
            self.answer = Answer::Said;
        }
    }

    /// What it said is durable; whether that was a quick answer to a client that will quickly be back.
    pub(super) fn durable(&mut self, now: Instant) -> bool {
        let answered = matches!(self.answer, Answer::Said);
        if answered {
            self.answer = Answer::Durable(now);
        }
        answered && self.back && self.took < QUICK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a message that was answered at once.
    fn quick(now: Instant) -> Pace {
        let mut pace = Pace::new();
        assert_eq!(pace.asked(now), Duration::MAX, "nothing is known of the agent");
        pace.said(now + AT_ONCE);
        assert!(!pace.durable(now + AT_ONCE), "nor of its client");
        pace
    }

    #[test]
    fn a_message_is_expected_to_take_as_long_as_the_last_one() {
        let now = Instant::now();
        let mut pace = quick(now);
        assert_eq!(pace.asked(now + AT_ONCE), AT_ONCE);
        pace.said(now + AT_ONCE);
        assert!(pace.durable(now + AT_ONCE), "both are quick");
        assert_eq!(pace.asked(now + AT_ONCE), Duration::ZERO);
        pace.said(now + AT_ONCE + QUICK);
        assert!(!pace.durable(now + AT_ONCE + QUICK), "it took its time");
    }

    #[test]
    fn nothing_is_expected_if_the_client_takes_its_time() {
        let now = Instant::now();
        let mut pace = quick(now);
        assert_eq!(pace.asked(now + AT_ONCE + QUICK), Duration::MAX);
    }

    #[test]
    fn what_an_agent_says_by_itself_is_no_answer() {
        let now = Instant::now();
        let mut pace = quick(now);
        pace.said(now + QUICK);
        assert!(!pace.durable(now + QUICK));
        assert_eq!(pace.asked(now + AT_ONCE), AT_ONCE);
    }

    #[test]
    fn nothing_is_expected_while_a_message_is_not_answered() {
        let now = Instant::now();
        let mut pace = quick(now);
        assert_eq!(pace.asked(now + AT_ONCE), AT_ONCE);
        assert_eq!(pace.asked(now + AT_ONCE), Duration::MAX);
    }
}
