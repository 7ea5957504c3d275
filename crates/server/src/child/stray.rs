//! Output that says nothing to us: a print that went to standard output, an event under a reserved name. It is logged as
//! it is, because it is mostly a mistake of whoever wrote the agent; cut short, and only so much of it in a minute.

use std::time::{Duration, Instant};

use crate::limits::{STRAY_BYTES, STRAY_LINES_A_MINUTE};

const MINUTE: Duration = Duration::from_secs(60);

/// How much of one agent's stray output was logged lately.
#[derive(Debug, Default)]
pub(crate) struct StrayLog {
    /// When the present minute began.
    since: Option<Instant>,
    logged: u32,
    left_out: u64,
}

impl StrayLog {
    /// Whether another line may be logged now; if so, how many were left out since the last one.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            (self.since, self.logged) = (Some(now), 0);
        }
        if self.logged >= STRAY_LINES_A_MINUTE {
            self.left_out += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The beginning of a text, for the log.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let (text, cut) = match text.get(..STRAY_BYTES) {
        Some(beginning) => (beginning, text.len() > STRAY_BYTES),
        None => (text, false),
    };
    let mut excerpt = String::from_utf8_lossy(text).into_owned();
    if cut {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_lines_are_logged_in_a_minute_and_the_next_says_how_many_were_left_out() {
        let (mut log, start) = (StrayLog::default(), Instant::now());
        for _ in 0..STRAY_LINES_A_MINUTE {
            assert_eq!(log.admit(start), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(log.admit(start + MINUTE / 2), None);
        }
        assert_eq!(log.admit(start + MINUTE), Some(5));
        assert_eq!(log.admit(start + MINUTE), Some(0));
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(excerpt(b"short"), "short");
        assert_eq!(excerpt("x".repeat(STRAY_BYTES).as_bytes()), "x".repeat(STRAY_BYTES));
        let cut = excerpt("x".repeat(STRAY_BYTES + 1).as_bytes());
        assert_eq!(cut, format!("{}…", "x".repeat(STRAY_BYTES)));
    }
}
