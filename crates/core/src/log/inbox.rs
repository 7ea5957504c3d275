//! The in log: what the client sent to the agent, each message once. Entries wait here until the
//! agent's state covers them; after a crash of the agent, those that it does not cover are handed to
//! it again.

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

/// The entries of a session that no state covers yet, and how far the numbering has come.
#[derive(Clone, Debug)]
pub struct Inbox<B> {
    head: InSeq,
    bytes: usize,
    entries: VecDeque<Entry<B>>,
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

    /// The last entry's number; zero before the first.
    pub fn head(&self) -> InSeq {
        self.head
    }

    /// Everything up to here is covered by the agent's state.
    pub fn covered(&self) -> InSeq {
        InSeq::new(self.head.get() - self.entries.len() as u64)
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
        self.entries.push_back(entry);
        self.head
    }

    /// The waiting entries after `in_seq`, oldest first.
    pub fn after(&self, in_seq: InSeq) -> impl Iterator<Item = (InSeq, &Entry<B>)> {
        let first = self.covered().next();
        let skip = in_seq.next().steps_from(first) as usize;
        let numbered = self.entries.iter().enumerate().skip(skip);
        numbered.map(move |(index, entry)| (first.plus(index as u64), entry))
    }

    /// The entry with this number, if it still waits, to move its body elsewhere.
    pub fn get_mut(&mut self, in_seq: InSeq) -> Option<&mut Entry<B>> {
        let index = in_seq.get().checked_sub(self.covered().get() + 1)?;
        self.entries.get_mut(usize::try_from(index).ok()?)
    }

    /// Lets go of everything up to `in_seq`, as far as it was ever entered. Covering only grows.
    pub fn cover(&mut self, in_seq: InSeq) {
        while self.covered() < in_seq {
            let Some(entry) = self.entries.pop_front() else { break };
            self.bytes -= entry.size as usize;
        }
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
    fn covering_only_grows_and_stops_at_the_head() {
        let mut inbox = Inbox::default();
        inbox.push(entry(1));
        inbox.cover(InSeq::new(99));
        inbox.cover(InSeq::ZERO);
        assert_eq!((inbox.covered(), inbox.head()), (InSeq::new(1), InSeq::new(1)));
        assert_eq!(inbox.push(entry(1)), InSeq::new(2));
    }
}
