//! Standard output, as a terminal or as a pipe. Colour is for terminals, and not where `NO_COLOR` is
//! set; what comes from a server never reaches a terminal as an escape sequence.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use super::failure::Failure;

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// As everything else.
    Plain,
    /// A heading.
    Bold,
    /// What matters less.
    Dim,
    /// All is well.
    Green,
    /// Worth a look.
    Yellow,
    /// Wrong.
    Red,
    /// A name.
    Cyan,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
            Self::Cyan => "36",
        }
    }
}

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    terminal: bool,
    colour: bool,
}

impl Out {
    /// The standard output of this process.
    pub(crate) fn of_process() -> Self {
        let terminal = io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colour: terminal && !refused }
    }

    /// A pipe.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { terminal: false, colour: false }
    }

    /// Whether a person looks on.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// How many columns there are, if that is known.
    pub(crate) fn width(&self) -> Option<usize> {
        let size = terminal_size::terminal_size().filter(|_| self.terminal);
        size.map(|(width, _)| usize::from(width.0))
    }

    /// How many lines there are, if that is known.
    pub(crate) fn height(&self) -> Option<usize> {
        let size = terminal_size::terminal_size().filter(|_| self.terminal);
        size.map(|(_, height)| usize::from(height.0))
    }

    /// `text` in colour, if there is any.
    pub(crate) fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.colour || ink == Ink::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", ink.code())
    }

    /// Writes a line.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.raw(&format!("{text}\n"))
    }

    /// Writes as it stands, at once.
    pub(crate) fn raw(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                return Failure::OutputClosed;
            }
            Failure::Other(format!("the output can't be written: {error}"))
        })
    }

    /// Says something about the command itself, on standard error, so that a pipe gets the data alone.
    pub(crate) fn note(&self, text: &str) {
        let text =
            if io::stderr().is_terminal() { self.paint(Ink::Dim, text) } else { text.to_owned() };
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// `text` on one line and without anything that a terminal would obey.
pub(crate) fn tame(text: &str) -> String {
    let mut tame = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c {
            '\n' => tame.push_str("\\n"),
            '\t' => tame.push(' '),
            c if c.is_control() || turns => {
                let _ = write!(tame, "\\u{{{:x}}}", u32::from(c)); // a string takes everything
            }
            c => tame.push(c),
        }
    }
    tame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_those_who_want_it() {
        let out = |colour| Out { terminal: true, colour };
        assert_eq!(out(false).paint(Ink::Red, "x"), "x");
        assert_eq!(out(true).paint(Ink::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(out(true).paint(Ink::Plain, "x"), "x");
    }

    #[test]
    fn an_agent_can_not_steer_the_terminal() {
        assert_eq!(tame("a\x1b[2Jb\nc\td\u{9b}e\u{202e}f"), "a\\u{1b}[2Jb\\nc d\\u{9b}e\\u{202e}f");
        assert_eq!(tame("“grüße” 日本"), "“grüße” 日本");
    }
}
