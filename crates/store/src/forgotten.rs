//! Seals that are refused if their session is not known: it may have been closed, and forgotten since. A seal can outlive
//! the memory of its session: sessions are forgotten before their time where there is no room, and `state_ttl` may have been
//! longer when the seal was made.
//!
//! There is one note for each principal, up to a bound. Beyond it the oldest note becomes one for all principals that
//! have none of their own: that refuses more than it must, and never lets go on what was closed.

use std::collections::{BTreeSet, HashMap};

use rejoin_core::limits::FORGOTTEN_SEALS;
use rejoin_core::{Principal, Timestamp};

/// The notes of all principals.
#[derive(Debug, Default)]
pub(crate) struct ForgottenSeals {
    of: HashMap<Principal, Timestamp>,
    /// The same notes, the oldest first.
    by_age: BTreeSet<(Timestamp, Principal)>,
    /// The note of all others.
    of_others: Timestamp,
}

/// A note to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealNote {
    /// Of one principal.
    Of(Principal, Timestamp),
    /// Of all that have none of their own, to which this one belongs from now on.
    OfOthers(Principal, Timestamp),
}

impl ForgottenSeals {
    /// Seals of a principal whose states were taken by `at` are refused from now on. Says what is new about that.
    pub(crate) fn note(&mut self, principal: &Principal, at: Timestamp) -> Vec<SealNote> {
        if self.until(principal) >= at {
            return Vec::new();
        }
        if let Some(known) = self.of.insert(principal.clone(), at) {
            self.by_age.remove(&(known, principal.clone()));
        }
        self.by_age.insert((at, principal.clone()));
        let mut notes = vec![SealNote::Of(principal.clone(), at)];
        if self.of.len() > FORGOTTEN_SEALS
            && let Some((at, oldest)) = self.by_age.pop_first()
        {
            self.of.remove(&oldest);
            self.of_others = self.of_others.max(at);
            notes.push(SealNote::OfOthers(oldest, at));
        }
        notes
    }

    /// The note of all that have none of their own, as it was written down.
    #[cfg(feature = "embedded")]
    pub(crate) fn note_others(&mut self, at: Timestamp) {
        self.of_others = self.of_others.max(at);
    }

    /// Up to when the states of a principal were taken whose seals are refused.
    pub(crate) fn until(&self, principal: &Principal) -> Timestamp {
        self.of.get(principal).map_or(self.of_others, |at| self.of_others.max(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(number: usize) -> Principal {
        Principal::new(&format!("p{number}"))
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_note_moves_on_and_an_older_one_changes_nothing() {
        let mut seals = ForgottenSeals::default();
        assert_eq!(seals.note(&who(1), at(5)), [SealNote::Of(who(1), at(5))]);
        assert_eq!(seals.note(&who(1), at(4)), []);
        assert_eq!(seals.note(&who(1), at(6)), [SealNote::Of(who(1), at(6))]);
        assert_eq!((seals.until(&who(1)), seals.until(&who(2))), (at(6), at(0)));
        assert_eq!((seals.of.len(), seals.by_age.len()), (1, 1));
    }

    #[test]
    fn principals_without_end_are_folded_into_one_note_the_oldest_first() {
        let mut seals = ForgottenSeals::default();
        for number in 0..FORGOTTEN_SEALS {
            assert_eq!(seals.note(&who(number), at(1_000 + number as u64)).len(), 1);
        }
        seals.note(&who(0), at(900_000)); // not the oldest any more
        let next = who(FORGOTTEN_SEALS);
        let notes = seals.note(&next, at(800_000));
        let folded = SealNote::OfOthers(who(1), at(1_001));
        assert_eq!(notes, [SealNote::Of(next, at(800_000)), folded]);
        assert_eq!(seals.until(&who(1)), at(1_001), "it is refused as before");
        assert_eq!(seals.until(&Principal::new("new")), at(1_001), "and so are all others");
        assert_eq!(seals.until(&who(0)), at(900_000));
        assert_eq!(seals.note(&who(1), at(1_001)), [], "the note of all says it");
        for number in 0..3 * FORGOTTEN_SEALS {
            seals.note(&Principal::new(&format!("q{number}")), at(1_000_000 + number as u64));
        }
        assert_eq!((seals.of.len(), seals.by_age.len()), (FORGOTTEN_SEALS, FORGOTTEN_SEALS));
        assert!(seals.until(&who(0)) > at(900_000));
    }
}
