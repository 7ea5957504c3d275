//! `commits.mark`: a few bytes beside the database that remember the last commit.
//!
//! SQLite drops everything behind a damaged frame of its write-ahead log without a word, and a
//! database that was put back from a backup looks like any other. The witness makes both visible:
//! after each commit its running number is written here, without a flush, so that a killed process
//! leaves it exact and a power loss leaves it behind the truth, never ahead of it.
//!
//! Two slots are written in turn, so that one is whole at any moment:
//! `magic:4 crc:4 store:16 number:8`, little-endian, the checksum over what follows it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::private;

const MAGIC: &[u8; 4] = b"RJNW";
const SLOT: usize = 64;
const USED: usize = 32;

/// Tells one store from another, so that a mark is not taken for another database's.
pub(super) type StoreId = [u8; 16];

/// What the witness says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Testimony {
    /// The store it speaks of.
    pub(super) store: StoreId,
    /// The last commit it knows of.
    pub(super) number: u64,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Witness {
    file: File,
    store: StoreId,
}

impl Witness {
    /// What the file at `path` says; nothing if it is missing or neither slot is whole.
    pub(super) fn read(path: &Path) -> io::Result<Option<Testimony>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut best: Option<Testimony> = None;
        for index in 0..2 {
            let mut slot = [0; USED];
            if file.read_exact_at(&mut slot, index * SLOT as u64).is_err() {
                continue;
            }
            let later = |said: &Testimony| best.is_none_or(|best| said.number > best.number);
            if let Some(testimony) = parse(&slot).filter(later) {
                best = Some(testimony);
            }
        }
        Ok(best)
    }

    /// Opens or makes the file. A new one is flushed, so that it is there from the first commit on.
    pub(super) fn open(path: &Path, testimony: Testimony) -> io::Result<Self> {
        let file = private::options().read(true).write(true).truncate(false).open(path)?;
        let witness = Self { file, store: testimony.store };
        if Self::read(path)? != Some(testimony) {
            // Both slots: an older store's slot could otherwise win by its number.
            witness.file.write_all_at(&[0; 2 * SLOT], 0)?;
            witness.note(testimony.number)?;
            witness.file.sync_all()?;
        }
        Ok(witness)
    }

    /// Notes that a commit has returned.
    pub(super) fn note(&self, number: u64) -> io::Result<()> {
        let mut slot = [0; USED];
        slot[..4].copy_from_slice(MAGIC);
        slot[8..24].copy_from_slice(&self.store);
        slot[24..32].copy_from_slice(&number.to_le_bytes());
        let crc = crc32fast::hash(&slot[8..]);
        slot[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&slot, (number % 2) * SLOT as u64)
    }
}

fn parse(slot: &[u8; USED]) -> Option<Testimony> {
    let (front, content) = slot.split_at(8);
    let crc = crc32fast::hash(content).to_le_bytes();
    if front[..4] != *MAGIC || front[4..] != crc {
        return None;
    }
    let (store, number) = content.split_at(16);
    let number = u64::from_le_bytes(number.try_into().ok()?);
    Some(Testimony { store: store.try_into().ok()?, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = [7; 16];

    fn say(number: u64) -> Testimony {
        Testimony { store: STORE, number }
    }

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        assert_eq!(Witness::read(&path).unwrap(), None);
        let witness = Witness::open(&path, say(0)).unwrap();
        for number in 1..=5 {
            witness.note(number).unwrap();
            assert_eq!(Witness::read(&path).unwrap(), Some(say(number)));
        }
        witness.file.write_all_at(&[0xff], SLOT as u64 + 30).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), Some(say(4)));
        witness.file.write_all_at(&[0xff], 30).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), None);
    }

    #[test]
    fn a_mark_of_another_store_does_not_linger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        Witness::open(&path, say(1000)).unwrap().note(1001).unwrap();
        let other = Testimony { store: [8; 16], number: 3 };
        Witness::open(&path, other).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), Some(other));
    }
}
