//! Calls that wait for somebody to ask the same again, within bounds: in all, of one principal, and of one kind. A
//! principal has a share, so that none can take the places of the others.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use rejoin_core::Principal;

use crate::limits::{BROKEN_CALLS, BROKEN_CALLS_OF_PRINCIPAL, EQUAL_BROKEN_CALLS};

/// Calls of type `C`, by what makes them equal.
#[derive(Debug)]
pub(super) struct Kept<K, C> {
    /// Those of each kind, the oldest first.
    calls: HashMap<K, VecDeque<One<C>>>,
    /// How many each principal has. None has none.
    shares: HashMap<Principal, usize>,
    all: usize,
}

#[derive(Debug)]
struct One<C> {
    number: u64,
    principal: Principal,
    call: C,
}

impl<K, C> Default for Kept<K, C> {
    fn default() -> Self {
        Self { calls: HashMap::new(), shares: HashMap::new(), all: 0 }
    }
}

impl<K: Clone + Eq + Hash, C> Kept<K, C> {
    /// Keeps a call, unless there are too many.
    pub(super) fn keep(&mut self, kind: &K, principal: Principal, number: u64, call: C) -> bool {
        let of_principal = self.shares.get(&principal).copied().unwrap_or_default();
        let equal = self.calls.get(kind).map_or(0, VecDeque::len);
        if self.all >= BROKEN_CALLS
            || of_principal >= BROKEN_CALLS_OF_PRINCIPAL
            || equal >= EQUAL_BROKEN_CALLS
        {
            return false;
        }
        self.all += 1;
        *self.shares.entry(principal.clone()).or_default() += 1;
        let one = One { number, principal, call };
        self.calls.entry(kind.clone()).or_default().push_back(one);
        true
    }

    /// Takes out the oldest call of a kind whose number is `wanted`.
    pub(super) fn take(&mut self, kind: &K, wanted: impl Fn(u64) -> bool) -> Option<C> {
        let calls = self.calls.get_mut(kind)?;
        let place = calls.iter().position(|one| wanted(one.number))?;
        let One { principal, call, .. } = calls.remove(place)?;
        if calls.is_empty() {
            self.calls.remove(kind);
        }
        self.all -= 1;
        if let Some(count) = self.shares.get_mut(&principal) {
            *count -= 1;
            if *count == 0 {
                self.shares.remove(&principal);
            }
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Principal {
        Principal::new(name)
    }

    /// Keeps as many calls of a principal as there is room for, each of another kind.
    fn fill(kept: &mut Kept<(String, u64), u64>, name: &str) -> u64 {
        let mut keep = |n| kept.keep(&(name.to_owned(), n), who(name), n, n);
        (0..).take_while(|number| keep(*number)).count() as u64
    }

    #[test]
    fn one_principal_has_its_share_and_leaves_the_others_theirs() {
        let mut kept = Kept::default();
        assert_eq!(fill(&mut kept, "ann"), BROKEN_CALLS_OF_PRINCIPAL as u64);
        assert_eq!(fill(&mut kept, "bob"), BROKEN_CALLS_OF_PRINCIPAL as u64);
        assert_eq!(kept.take(&("ann".into(), 7), |_| true), Some(7));
        assert_eq!(fill(&mut kept, "ann"), 1, "a place was free again");
    }

    #[test]
    fn all_together_have_a_bound_which_counts_calls_and_not_kinds() {
        let mut kept = Kept::default();
        let mut taken = 0;
        for number in 0..2 * BROKEN_CALLS as u64 {
            let (kind, principal) = (number % 20, who(&(number % 20).to_string()));
            taken += usize::from(kept.keep(&kind, principal, number, ()));
        }
        assert_eq!((taken, kept.all), (BROKEN_CALLS, BROKEN_CALLS));
        for number in 0..2 * BROKEN_CALLS as u64 {
            taken -= usize::from(kept.take(&(number % 20), |known| known == number).is_some());
        }
        assert_eq!((taken, kept.all), (0, 0));
        assert!(kept.calls.is_empty() && kept.shares.is_empty(), "nothing is left of them");
    }

    #[test]
    fn equal_calls_are_taken_oldest_first_and_are_bounded() {
        let mut kept = Kept::default();
        let keep = |kept: &mut Kept<_, _>, number| kept.keep(&"kind", who("ann"), number, number);
        assert_eq!((0..).take_while(|number| keep(&mut kept, *number)).count(), EQUAL_BROKEN_CALLS);
        assert_eq!(kept.take(&"kind", |_| true), Some(0));
        assert_eq!(kept.take(&"kind", |number| number == 5), Some(5));
        assert_eq!(kept.take(&"kind", |number| number == 5), None);
        assert_eq!(kept.take(&"another", |_| true), None);
    }
}
