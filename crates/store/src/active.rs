//! How many sessions go on, in all and of each principal: counted as they change, so that the bound on new sessions is
//! checked without walking through them.

use std::collections::HashMap;

use rejoin_core::Principal;
use rejoin_core::state::{Create, NoRoom};

/// The numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Active {
    all: usize,
    of: HashMap<Principal, usize>,
}

impl Active {
    /// With these numbers, by principal.
    #[cfg_attr(not(feature = "embedded"), allow(dead_code, reason = "a store that opens has some"))]
    pub(crate) fn new(mut of: HashMap<Principal, usize>) -> Self {
        of.retain(|_, count| *count > 0);
        Self { all: of.values().sum(), of }
    }

    /// All of them.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Those of one principal.
    pub(crate) fn of(&self, principal: &Principal) -> usize {
        self.of.get(principal).copied().unwrap_or(0)
    }

    /// Whether one more may be made.
    pub(crate) fn check_room(&self, create: &Create) -> Result<(), NoRoom> {
        create.room.check(self.all, self.of(&create.about.principal))
    }

    /// A session of this principal `was` active, or not, and `is` now.
    pub(crate) fn change(&mut self, principal: &Principal, was: bool, is: bool) {
        match (was, is) {
            (false, true) => self.add(principal),
            (true, false) => self.remove(principal),
            (true, true) | (false, false) => {}
        }
    }

    fn add(&mut self, principal: &Principal) {
        self.all += 1;
        match self.of.get_mut(principal) {
            Some(count) => *count += 1,
            None => drop(self.of.insert(principal.clone(), 1)),
        }
    }

    fn remove(&mut self, principal: &Principal) {
        let Some(count) = self.of.get_mut(principal) else { return };
        (*count, self.all) = (*count - 1, self.all - 1);
        if *count == 0 {
            self.of.remove(principal);
        }
    }
}
