//! What a child writes to its standard error: every line goes into the log, and the last ones are kept for the case that
//! the child dies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncRead;

use super::lines::{Bounds, Line, Lines};
use crate::limits::{LAST_STDERR_BYTES, LAST_STDERR_LINES};

/// What is logged of a line.
const LOG_LINE: Bounds = Bounds { whole: 8 * 1024, of_longer: 8 * 1024 };

/// The last lines of a child's standard error, within bounds. A clone is another handle on the same lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLines(Arc<Mutex<VecDeque<Box<str>>>>);

impl LastLines {
    /// Logs each line by `log` until the child closes its standard error, and keeps the last ones.
    pub(crate) async fn follow(self, stderr: impl AsyncRead + Unpin, log: impl Fn(&str)) {
        let mut lines = Lines::new(stderr, LOG_LINE);
        while let Ok(Some(Line::Whole(text) | Line::TooLong(text))) = lines.next().await {
            let text = String::from_utf8_lossy(&text);
            let text = text.trim_end();
            log(text);
            self.push(text);
        }
    }

    /// Those that came so far, oldest first.
    pub(crate) fn take(&self) -> Vec<Box<str>> {
        std::mem::take(&mut *self.lock()).into()
    }

    fn push(&self, line: &str) {
        let line = &line[..line.floor_char_boundary(LAST_STDERR_BYTES)];
        let mut lines = self.lock();
        lines.push_back(line.into());
        let mut bytes: usize = lines.iter().map(|line| line.len()).sum();
        while lines.len() > LAST_STDERR_LINES || bytes > LAST_STDERR_BYTES {
            bytes -= lines.pop_front().map_or(bytes, |line| line.len());
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn last(text: &str) -> Vec<Box<str>> {
        let lines = LastLines::default();
        lines.clone().follow(text.as_bytes(), |_| {}).await;
        lines.take()
    }

    #[tokio::test]
    async fn the_last_lines_are_kept_in_their_order() {
        let text: String = (0..LAST_STDERR_LINES + 7).map(|line| format!("{line}\n")).collect();
        let kept = last(&text).await;
        assert_eq!(kept.len(), LAST_STDERR_LINES);
        assert_eq!((&*kept[0], kept.last().map(|line| &**line)), ("7", Some("26")));
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_push_out_those_before_them() {
        let long = "ü".repeat(LAST_STDERR_BYTES);
        let kept = last(&format!("first\n{long}\n")).await;
        assert_eq!(kept.len(), 1);
        assert_eq!(*kept[0], *"ü".repeat(LAST_STDERR_BYTES / 2));
        assert_eq!(last(&format!("{long}\nlast\n")).await, ["last".into()]);
    }
}
