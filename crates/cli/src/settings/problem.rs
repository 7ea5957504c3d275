//! What is wrong with the settings, all of it at once, each in one sentence that begins with where it
//! came from.

use std::error::Error;
use std::fmt;

/// Where a value came from. The order is that of precedence: the later wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Nobody gave it.
    Default,
    /// A line of the file.
    File {
        /// The path as it was given.
        path: String,
        /// Counted from one.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag, without its dashes.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// Where it came from.
    pub(crate) origin: Origin,
    /// What it is, and what to do about it.
    pub(crate) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// Everything that is wrong, one sentence a line: the file's from top to bottom, then the
/// environment's, then the flags'.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, origin: Origin, text: impl Into<String>) {
        self.0.push(Problem { origin, text: text.into() });
    }

    /// How many there are so far.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// `good` if nothing is wrong.
    pub(super) fn or<T>(mut self, good: T) -> Result<T, Self> {
        self.0.sort();
        if self.0.is_empty() { Ok(good) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Error for Problems {}

/// `; did you mean "x"?` if one of `known` is near `word`, else nothing.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 3 && *distance * 3 <= candidate.len())
        .min();
    nearest.map_or_else(String::new, |(_, near)| format!("; did you mean {near:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_are_near_are_suggested() {
        let known = || ["session_ttl", "state_ttl", "log"].into_iter();
        assert_eq!(did_you_mean("sesion_ttl", known()), "; did you mean \"session_ttl\"?");
        assert_eq!(did_you_mean("session-ttl", known()), "; did you mean \"session_ttl\"?");
        assert_eq!(did_you_mean("port", known()), "");
    }
}
