//! How a place in a session's logs is named, and the two counters that guard writing to them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a counter that starts at nothing (0) and goes up by one.
macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// The counter at `value`.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The bare number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// `count` further on.
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                Self(self.0 + count)
            }

            /// The one before this; zero stays zero.
            #[must_use]
            pub const fn previous(self) -> Self {
                Self(self.0.saturating_sub(1))
            }

            /// How many steps it takes from `earlier` to here; none if it lies ahead.
            pub const fn steps_from(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// The number of an event in the out log: 1, 2, 3, … without holes. Zero is "before the first".
    Seq
}
counter! {
    /// The number of an entry in the in log: 1, 2, 3, … without holes. Zero is "before the first".
    InSeq
}
counter! {
    /// Guards the client's side of a session: goes up by one whenever a client attaches. Acks,
    /// messages and clean-ups that name an older generation are refused at the store, so a connection
    /// that was replaced can do no harm, however late its last words arrive.
    Generation
}
counter! {
    /// Guards the agent's side of a session: goes up by one when another process takes the lease.
    /// Appends and snapshots that name an older term are refused at the store, so a process that was
    /// thought dead can't write after its successor has begun. Attaching never changes the term.
    Term
}

/// Names one incarnation of an out log.
///
/// It changes only when the log was really lost, and a restored session has its own. Without it a
/// client that stood at seq 50 would, after the server lost its log and numbered anew, take the new
/// 1…50 for old ones and drop them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(Box<str>);

impl Epoch {
    /// A new epoch from random bytes.
    pub fn from_random(bytes: [u8; 6]) -> Self {
        Self(crate::ids::url_safe(&bytes).into())
    }

    /// An epoch as a client or a store gave it. Any text will do: it is only ever compared.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The epoch as it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place in an out log: everything up to and including `seq` has been seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Which incarnation of the log `seq` counts in.
    pub epoch: Epoch,
    /// The last event seen.
    pub seq: Seq,
}

/// Events that are not there any more, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeqRange {
    /// The first of them.
    pub from: Seq,
    /// The last of them.
    pub to: Seq,
}

impl SeqRange {
    /// The range, or nothing if it would be empty.
    pub fn new(from: Seq, to: Seq) -> Option<Self> {
        (from <= to).then_some(Self { from, to })
    }

    /// How many events it spans.
    pub fn count(self) -> u64 {
        self.to.steps_from(self.from) + 1
    }
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…{}", self.from, self.to)
    }
}
