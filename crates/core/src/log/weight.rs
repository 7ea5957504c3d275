//! What an event counts against the bounds of its log, and how soon it gives way.

use serde::{Deserialize, Serialize};

/// An event's bytes, and whether it is a result: something that somebody waits for. Where a log is over
/// its bounds what only passes by (progress, log messages) goes first and results go last.
///
/// One number, because a store has one for each of millions of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u32);

/// Set for a result. No event has that many bytes.
const RESULT: u32 = 1 << 31;

impl Weight {
    /// Of an event that passes by.
    pub const fn passing(bytes: usize) -> Self {
        Self(if bytes < RESULT as usize { bytes as u32 } else { RESULT - 1 })
    }

    /// Of a result.
    pub const fn result(bytes: usize) -> Self {
        Self(Self::passing(bytes).0 | RESULT)
    }

    /// What it counts against the bound in bytes.
    pub const fn bytes(self) -> usize {
        (self.0 & !RESULT) as usize
    }

    /// Whether it goes last.
    pub const fn is_result(self) -> bool {
        self.0 & RESULT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_says_what_it_was_made_of() {
        for (weight, bytes, result) in [
            (Weight::passing(7), 7, false),
            (Weight::result(7), 7, true),
            (Weight::result(usize::MAX), (1 << 31) - 1, true),
        ] {
            assert_eq!((weight.bytes(), weight.is_result()), (bytes, result));
        }
    }
}
