//! The message ids a session has seen, so that a client may send again after a drop without fear.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::limits;
use crate::position::InSeq;
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

/// The ids of the last messages, oldest forgotten first.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    by_id: BTreeMap<[u8; 16], Remembered>,
    in_order: VecDeque<[u8; 16]>,
}

impl Seen {
    /// What came under the same id before, whatever its content was.
    pub fn find(&self, digest: &MessageDigest) -> Option<&Remembered> {
        self.by_id.get(&digest.id)
    }

    /// Remembers one, and forgets what is beyond the bound or, being older than it must be kept, of
    /// no use any more.
    pub fn remember(&mut self, message: Remembered, now: Timestamp) {
        self.by_id.insert(message.digest.id, message);
        self.in_order.push_back(message.digest.id);
        while let Some(oldest) = self.oldest() {
            let old = now.since(oldest.at) > limits::MESSAGE_ID_RETENTION;
            if self.in_order.len() <= limits::MESSAGE_IDS && !old {
                break;
            }
            self.forget_oldest();
        }
    }

    /// Forgets those that were entered after `in_seq`, so that they can be entered again.
    pub fn forget_after(&mut self, in_seq: InSeq) {
        self.by_id.retain(|_, message| message.in_seq <= in_seq);
        self.in_order.retain(|id| self.by_id.contains_key(id));
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Remembered> {
        self.in_order.iter().filter_map(|id| self.by_id.get(id))
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    fn oldest(&self) -> Option<&Remembered> {
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
