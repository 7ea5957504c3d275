//! Maps by [`Key`] and by [`SessionId`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rejoin_core::SessionId;

use super::journal::Key;

/// By session id. A hash with a seed: clients may have chosen the id. Looked up for every write, so it is
/// not the slowest there is.
pub(super) type IdMap<T> = HashMap<SessionId, T, foldhash::quality::RandomState>;

/// By key. Keys are numbers that we give out ourselves: nobody can choose them so that they collide, and
/// a multiplication is hash enough.
pub(super) type KeyMap<T> = HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// See [`KeyMap`].
#[derive(Debug, Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Odd, its bits being those of the golden ratio: neighbours end up far apart. The map looks at
        // the lowest bits and the highest ones, so both must depend on all of the number.
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
