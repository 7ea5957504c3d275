//! The in log: what the client sent to the agent, each message once. Entries wait here until they are
//! dealt with: the agent's state covers all up to one, or a single one is answered while older ones wait.
//! After a crash of the agent, those that wait are handed to it again.

use std::collections::VecDeque;

use crate::position::InSeq;
use crate::time::Timestamp;

/// What a client wants of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EntryKind {
    /// A message for the agent.
    Message,
    /// The wish that the agent stop what it is doing.
    Cancel,
}

/// One entry that waits for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<B> {
    /// What it is.
    pub kind: EntryKind,
    /// When it was entered.
    pub at: Timestamp,
    /// What it counts against the bound in bytes.
    pub size: u32,
    /// Where its body is.
    pub body: B,
}

/// The entries of a session that are not dealt with yet, and how far the numbering has come. One that is
/// dealt with has no place here, wherever it stood: it takes no room and counts against no bound.
#[derive(Clone, Debug)]
pub struct Inbox<B> {
    head: InSeq,
    bytes: usize,
    /// In order, with holes where an entry was answered before an older one.
    entries: VecDeque<(InSeq, Entry<B>)>,
}

impl<B> Default for Inbox<B> {
    fn default() -> Self {
        Self::starting_after(InSeq::ZERO)
    }
}

impl<B> Inbox<B> {
    /// An inbox whose entries up to `head` are all covered.
    pub fn starting_after(head: InSeq) -> Self {
        Self { head, bytes: 0, entries: VecDeque::new() }
    }

    /// An inbox that has come to `head` and in which these wait. They must be in order.
    pub fn of_waiting(head: InSeq, entries: Vec<(InSeq, Entry<B>)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        let bytes = entries.iter().map(|(_, entry)| entry.size as usize).sum();
        let last = entries.last().map_or(head, |(last, _)| head.max(*last));
        Self { head: last, bytes, entries: entries.into() }
    }

    /// The last entry's number; zero before the first.
    pub fn head(&self) -> InSeq {
        self.head
    }

    /// Everything up to here is dealt with; the next one waits, if there is one.
    pub fn covered(&self) -> InSeq {
        self.entries.front().map_or(self.head, |(first, _)| first.previous())
    }

    /// How many entries wait.
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enters one and says its number.
    pub fn push(&mut self, entry: Entry<B>) -> InSeq {
        self.head = self.head.next();
        self.bytes += entry.size as usize;
        self.entries.push_back((self.head, entry));
        self.head
    }

    /// The waiting entries after `in_seq`, oldest first.
    pub fn after(&self, in_seq: InSeq) -> impl Iterator<Item = (InSeq, &Entry<B>)> {
        let skip = self.entries.partition_point(|(number, _)| *number <= in_seq);
        self.entries.iter().skip(skip).map(|(number, entry)| (*number, entry))
    }

    /// Everything that waits, to move its bodies elsewhere.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry<B>> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// The entry with this number, if it still waits, to move its body elsewhere.
    pub fn get_mut(&mut self, in_seq: InSeq) -> Option<&mut Entry<B>> {
        let index = self.index_of(in_seq)?;
        self.entries.get_mut(index).map(|(_, entry)| entry)
    }

    /// Lets go of everything up to `in_seq`, as far as it was ever entered. Covering only grows.
    pub fn cover(&mut self, in_seq: InSeq) {
        while self.covered() < in_seq {
            let Some((_, entry)) = self.entries.pop_front() else { break };
            self.bytes -= entry.size as usize;
        }
        self.shrink_if_empty();
    }

    /// Lets go of this one alone, if it still waits.
    pub fn answer(&mut self, in_seq: InSeq) {
        let index = self.index_of(in_seq);
        if let Some((_, entry)) = index.and_then(|index| self.entries.remove(index)) {
            self.bytes -= entry.size as usize;
        }
        self.shrink_if_empty();
    }

    fn index_of(&self, in_seq: InSeq) -> Option<usize> {
        self.entries.binary_search_by_key(&in_seq, |(number, _)| *number).ok()
    }

    fn shrink_if_empty(&mut self) {
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
    }

    /// The same, and goes on numbering after `in_seq` if that lies ahead: for a state that is newer
    /// than the log.
    pub fn cover_up_to(&mut self, in_seq: InSeq) {
        self.cover(in_seq);
        self.head = self.head.max(in_seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u32) -> Entry<u32> {
        Entry { kind: EntryKind::Message, at: Timestamp::default(), size, body: size }
    }

    #[test]
    fn entries_are_numbered_once_and_wait_until_they_are_covered() {
        let mut inbox = Inbox::default();
        let numbers: Vec<u64> = (1..=4).map(|size| inbox.push(entry(size)).get()).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        inbox.cover(InSeq::new(2));
        let waiting: Vec<u64> = inbox.after(InSeq::ZERO).map(|(n, _)| n.get()).collect();
        assert_eq!(waiting, [3, 4]);
        assert_eq!((inbox.covered(), inbox.bytes()), (InSeq::new(2), 7));
    }

    #[test]
    fn one_that_is_answered_before_an_older_one_takes_no_room() {
        let mut inbox = Inbox::default();
        inbox.push(entry(1));
        for size in 2..=1_000 {
            let in_seq = inbox.push(entry(size));
            inbox.answer(in_seq);
        }
        assert_eq!((inbox.waiting(), inbox.bytes()), (1, 1));
        assert_eq!((inbox.covered(), inbox.head()), (InSeq::ZERO, InSeq::new(1_000)));
        assert_eq!(inbox.push(entry(7)), InSeq::new(1_001));
        let waiting: Vec<u64> = inbox.after(InSeq::new(1)).map(|(n, _)| n.get()).collect();
        assert_eq!(waiting, [1_001]);
        inbox.answer(InSeq::new(1));
        assert_eq!((inbox.covered(), inbox.bytes()), (InSeq::new(1_000), 7));
    }

    #[test]
    fn covering_only_grows_and_stops_at_the_head() {
        let mut inbox = Inbox::default();
        inbox.push(entry(1));
        inbox.cover(InSeq::new(99));
        inbox.cover(InSeq::ZERO);
        assert_eq!((inbox.covered(), inbox.head()), (InSeq::new(1), InSeq::new(1)));
        assert_eq!(inbox.push(entry(1)), InSeq::new(2));
    }
}
