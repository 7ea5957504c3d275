//! Maps by [`Key`]. Keys are numbers that we give out ourselves: nobody can choose them so that they
//! collide, and a multiplication is hash enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::journal::Key;

/// See the module.
pub(super) type KeyMap<T> = HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// See the module.
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
