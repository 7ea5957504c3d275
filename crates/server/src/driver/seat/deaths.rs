//! How often an agent may die: it is started again, more slowly each time, until it has died too often.

use std::collections::VecDeque;
use std::time::Duration;

use rejoin_core::EventBody;
use rejoin_core::Timestamp;

/// The wait after the first death; it doubles with each that follows …
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// … up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// So many deaths …
const TOO_MANY: usize = 5;

/// … within this time end the attempts. An agent that lived this long before is not known for dying.
const WITHIN: Duration = Duration::from_secs(60);

/// The deaths of a session's agents that still matter.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    recent: VecDeque<Timestamp>,
    in_a_row: u32,
}

/// What follows from a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterDeath {
    /// The agent is started again at this time.
    StartAt(Timestamp),
    /// It is not started again.
    GiveUp,
}

impl Deaths {
    /// Counts the death of an agent that was started at `started`.
    pub(super) fn count(&mut self, started: Timestamp, now: Timestamp) -> AfterDeath {
        if now.since(started) >= WITHIN {
            self.in_a_row = 0;
        }
        while self.recent.front().is_some_and(|death| now.since(*death) >= WITHIN) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        if self.recent.len() >= TOO_MANY {
            return AfterDeath::GiveUp;
        }
        let wait = FIRST_WAIT.saturating_mul(1 << self.in_a_row.min(16)).min(LONGEST_WAIT);
        self.in_a_row += 1;
        AfterDeath::StartAt(now + wait)
    }
}

/// The event that says so, as it is stored.
pub(super) fn agent_failed() -> Option<EventBody> {
    const EVENT: &str = concat!(
        r#"{"event":"agent.failed","content":"The agent died five times within a minute. "#,
        r#"It is started again when you send another message or reconnect.","#,
        r#""metadata":{"error_code":"AGENT_FAILED","recovery_action":"retry_later","#,
        r#""recovery_strategy":"retry_later"}}"#
    );
    EventBody::parse(EVENT.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn waits_double_and_the_fifth_death_within_a_minute_ends_the_attempts() {
        let mut deaths = Deaths::default();
        for wait in [100, 200, 400, 800] {
            assert_eq!(deaths.count(at(0), at(1_000)), AfterDeath::StartAt(at(1_000 + wait)));
        }
        assert_eq!(deaths.count(at(0), at(60_999)), AfterDeath::GiveUp);
    }

    #[test]
    fn an_agent_that_dies_now_and_then_is_started_again_for_ever_at_most_five_seconds_later() {
        let mut deaths = Deaths::default();
        let mut waits = Vec::new();
        for death in 1..=10 {
            let now = at(death * 20_000);
            let AfterDeath::StartAt(next) = deaths.count(now, now) else { panic!("given up") };
            waits.push(next.since(now).as_millis());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]);
    }

    #[test]
    fn an_agent_that_has_lived_for_a_minute_is_started_again_at_once() {
        let mut deaths = Deaths::default();
        deaths.count(at(0), at(1_000));
        deaths.count(at(0), at(1_000));
        let restart = deaths.count(at(2_000), at(62_000));
        assert_eq!(restart, AfterDeath::StartAt(at(62_100)));
    }

    #[test]
    fn the_event_that_says_so_is_one() {
        assert!(agent_failed().is_some());
    }
}
