//! What a session has been given under an id before, so that it may be sent again after a drop without
//! fear: messages by their clients, publications by their backends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::limits;
use crate::position::{InSeq, Seq};
use crate::time::Timestamp;

/// A message id and its content, as far as they must be remembered to know them again.
///
/// Ids come from clients and may be long; a hash of fixed size bounds what 10,000 of them cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDigest {
    id: [u8; 16],
    content: [u8; 16],
}

impl MessageDigest {
    /// Of a message with this id and this content.
    pub fn of(id: &str, content: &[u8]) -> Self {
        Self { id: short_hash(id.as_bytes()), content: short_hash(content) }
    }
}

/// A message that was entered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The id and content it came with.
    pub digest: MessageDigest,
    /// The number it got.
    pub in_seq: InSeq,
    /// When it was entered.
    pub at: Timestamp,
}

/// A publication that was appended before, under an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedKey {
    /// The key and content it came with.
    pub digest: MessageDigest,
    /// The seq of its first event; the one after the head of then if it had none.
    pub first: Seq,
    /// The head it left behind.
    pub last: Seq,
    /// When it was appended.
    pub at: Timestamp,
}

/// Something that is remembered by its id.
pub trait ById {
    /// The id and content it came with.
    fn digest(&self) -> &MessageDigest;
    /// When it came.
    fn at(&self) -> Timestamp;
}

impl ById for Remembered {
    fn digest(&self) -> &MessageDigest {
        &self.digest
    }
    fn at(&self) -> Timestamp {
        self.at
    }
}

impl ById for RememberedKey {
    fn digest(&self) -> &MessageDigest {
        &self.digest
    }
    fn at(&self) -> Timestamp {
        self.at
    }
}

/// The ids of the last messages.
pub type Seen = Memory<Remembered>;

/// The idempotency keys of the last publications.
pub type SeenKeys = Memory<RememberedKey>;

/// The last of something, by their ids, oldest forgotten first.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    /// Nothing until there is something: most sessions have none of either kind.
    ids: Option<Box<Ids<T>>>,
}

#[derive(Clone, Debug)]
struct Ids<T> {
    by_id: BTreeMap<[u8; 16], T>,
    in_order: VecDeque<[u8; 16]>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { ids: None }
    }
}

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), in_order: VecDeque::new() }
    }
}

impl Seen {
    /// Forgets those of these entries, so that they can be entered again.
    pub fn forget(&mut self, entries: &BTreeSet<InSeq>) {
        let Some(ids) = &mut self.ids else { return };
        ids.by_id.retain(|_, message| !entries.contains(&message.in_seq));
        ids.in_order.retain(|id| ids.by_id.contains_key(id));
    }
}

impl<T: ById> Memory<T> {
    /// What came under the same id before, whatever its content was.
    pub fn find(&self, digest: &MessageDigest) -> Option<&T> {
        self.ids.as_ref()?.by_id.get(&digest.id)
    }

    /// Remembers one, and forgets what is beyond the bound or, being older than it must be kept, of
    /// no use any more.
    pub fn remember(&mut self, one: T, now: Timestamp) {
        let ids = self.ids.get_or_insert_default();
        let id = one.digest().id;
        if ids.by_id.insert(id, one).is_none() {
            ids.in_order.push_back(id);
        }
        while let Some(oldest) = ids.oldest() {
            let old = now.since(oldest.at()) > limits::MESSAGE_ID_RETENTION;
            if ids.in_order.len() <= limits::MESSAGE_IDS && !old {
                break;
            }
            ids.forget_oldest();
        }
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let ids = self.ids.iter();
        ids.flat_map(|ids| ids.in_order.iter().filter_map(|id| ids.by_id.get(id)))
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.ids.as_ref().map_or(0, |ids| ids.in_order.len())
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Ids<T> {
    fn oldest(&self) -> Option<&T> {
        self.by_id.get(self.in_order.front()?)
    }

    fn forget_oldest(&mut self) {
        if let Some(id) = self.in_order.pop_front() {
            self.by_id.remove(&id);
        }
    }
}

/// Half a SHA-256: 128 bits are enough that two ids never meet by accident, and an attacker who makes
/// them meet only disturbs a session of its own.
fn short_hash(bytes: &[u8]) -> [u8; 16] {
    let full = Sha256::digest(bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    half
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn message(number: u64, at: Timestamp) -> Remembered {
        let digest = MessageDigest::of(&format!("m{number}"), b"text");
        Remembered { digest, in_seq: InSeq::new(number), at }
    }

    #[test]
    fn the_same_id_is_found_again_whatever_its_content() {
        let mut seen = Seen::default();
        seen.remember(message(1, Timestamp::default()), Timestamp::default());
        let found = seen.find(&MessageDigest::of("m1", b"other")).copied();
        assert_eq!(found.map(|m| m.in_seq), Some(InSeq::new(1)));
        assert_ne!(found.map(|m| m.digest), Some(MessageDigest::of("m1", b"other")));
    }

    #[test]
    fn the_last_ten_thousand_ids_are_remembered() {
        let (mut seen, now) = (Seen::default(), Timestamp::default());
        for number in 1..=limits::MESSAGE_IDS as u64 + 1 {
            seen.remember(message(number, now), now);
        }
        assert_eq!(seen.len(), limits::MESSAGE_IDS);
        assert!(seen.find(&MessageDigest::of("m1", b"text")).is_none());
        assert!(seen.find(&MessageDigest::of("m2", b"text")).is_some());
    }

    #[test]
    fn an_id_is_remembered_for_a_day_at_least() {
        let (mut seen, start) = (Seen::default(), Timestamp::default());
        seen.remember(message(1, start), start);
        let a_day_later = start + limits::MESSAGE_ID_RETENTION;
        seen.remember(message(2, a_day_later), a_day_later);
        assert_eq!(seen.len(), 2);
        let later = a_day_later + Duration::from_millis(1);
        seen.remember(message(3, later), later);
        assert_eq!(seen.len(), 2);
    }
}
