//! What the demo shows: lines with the time, and below them, where a person looks on, one that moves.

use std::time::{Duration, Instant};

use super::super::failure::Failure;
use super::super::line::ink_of;
use super::super::out::{Ink, Out};
use super::tally::Came;

/// How often the line that moves does so.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// What an event says is cut here where the width of the terminal is not known.
const WIDTH: usize = 100;

const SPINNER: [char; 8] = ['⠋', '⠙', '⠸', '⢰', '⣠', '⣄', '⡆', '⠇'];

/// To the beginning of the line, and nothing on it.
const ANEW: &str = "\r\x1b[K";

/// Where the demo is shown.
pub(super) struct Screen {
    pub(super) out: Out,
    began: Instant,
}

impl Screen {
    pub(super) fn new(out: Out) -> Self {
        Self { out, began: Instant::now() }
    }

    /// Writes a line above the one that moves.
    pub(super) fn line(&self, text: &str) -> Result<(), Failure> {
        let anew = if self.out.is_terminal() { ANEW } else { "" };
        self.out.raw(&format!("{anew}{text}\n"))
    }

    /// Something happens to the session.
    pub(super) fn scene(&self, ink: Ink, text: &str) -> Result<(), Failure> {
        self.line(&format!("{} {}", self.clock(), self.out.paint(ink, text)))
    }

    /// An event has arrived.
    pub(super) fn event(
        &self,
        seq: u64,
        came: Came,
        name: &str,
        text: &str,
    ) -> Result<(), Failure> {
        let (how, ink) = match came {
            Came::Live => ("live", Ink::Green),
            Came::Replayed => ("replayed", Ink::Yellow),
        };
        let before = format!("{:>5} s {seq:>4}  {how:<8}  {name:<18}  ", "").chars().count();
        let room = self.out.width().unwrap_or(WIDTH).saturating_sub(before);
        self.line(&format!(
            "{} {seq:>4}  {}  {}  {}",
            self.clock(),
            self.out.paint(ink, &format!("{how:<8}")),
            self.out.paint(ink_of(name), &format!("{name:<18}")),
            cut(text, room),
        ))
    }

    /// Moves the line that moves.
    pub(super) fn tick(&self, text: &str) -> Result<(), Failure> {
        if !self.out.is_terminal() {
            return Ok(());
        }
        let step = self.began.elapsed().as_millis() / TICK.as_millis();
        let mark = SPINNER[usize::try_from(step).unwrap_or(0) % SPINNER.len()];
        let line = format!("{mark} {:.0} s  {text}", self.began.elapsed().as_secs_f64());
        let room = self.out.width().unwrap_or(WIDTH).saturating_sub(1);
        self.out.raw(&format!("{ANEW}{}", self.out.paint(Ink::Dim, &cut(&line, room))))
    }

    fn clock(&self) -> String {
        self.out.paint(Ink::Dim, &format!("{:>5.1} s", self.began.elapsed().as_secs_f64()))
    }
}

/// As much of a text as there is room for.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_in_an_ellipsis() {
        assert_eq!(cut("four", 4), "four");
        assert_eq!(cut("fünfe", 4), "fün…");
    }
}
