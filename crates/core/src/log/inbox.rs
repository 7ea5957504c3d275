//! The in log: what the client sent to the agent, each message once. Entries wait here until they are
//! dealt with: the agent's state covers all up to one, or a single one is answered while older ones wait.
//! After a crash of the agent, those that wait are handed to it again. Those that are dealt with are kept
//! for readers, within the bounds of the session.

use std::collections::VecDeque;

use crate::limits::{KEPT_ENTRIES, LogBounds};
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
/// dealt with counts against no bound of those that wait, wherever it stood: it is kept beside them.
#[derive(Clone, Debug)]
pub struct Inbox<B> {
    head: InSeq,
    bytes: usize,
    /// In order, with holes where an entry was answered before an older one.
    entries: VecDeque<(InSeq, Entry<B>)>,
    /// In a box, because most inboxes have none and there are many inboxes.
    kept: Option<Box<Kept<B>>>,
}

/// Covered entries, kept for readers.
#[derive(Clone, Debug)]
struct Kept<B> {
    bytes: usize,
    /// In order.
    entries: VecDeque<(InSeq, Entry<B>)>,
}

impl<B> Default for Kept<B> {
    fn default() -> Self {
        Self { bytes: 0, entries: VecDeque::new() }
    }
}

impl<B> Kept<B> {
    fn keep(&mut self, in_seq: InSeq, entry: Entry<B>) {
        let place = self.entries.partition_point(|(number, _)| *number < in_seq);
        self.bytes += entry.size as usize;
        self.entries.insert(place, (in_seq, entry));
        if self.entries.len() > KEPT_ENTRIES {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, entry)) = self.entries.pop_front() {
            self.bytes -= entry.size as usize;
        }
    }

    fn exceeds(&self, bounds: &LogBounds, now: Timestamp) -> bool {
        let over = self.entries.len() > bounds.events || self.bytes > bounds.bytes;
        let old = |(_, entry): &(InSeq, Entry<B>)| now.since(entry.at) >= bounds.retention;
        over || self.entries.front().is_some_and(old)
    }
}

impl<B> Default for Inbox<B> {
    fn default() -> Self {
        Self::starting_after(InSeq::ZERO)
    }
}

impl<B> Inbox<B> {
    /// An inbox whose entries up to `head` are all covered.
    pub fn starting_after(head: InSeq) -> Self {
        Self { head, bytes: 0, entries: VecDeque::new(), kept: None }
    }

    /// An inbox that has come to `head` and in which these wait. They must be in order.
    pub fn of_waiting(head: InSeq, entries: Vec<(InSeq, Entry<B>)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        let bytes = entries.iter().map(|(_, entry)| entry.size as usize).sum();
        let last = entries.last().map_or(head, |(last, _)| head.max(*last));
        Self { head: last, bytes, entries: entries.into(), kept: None }
    }

    /// Restores a covered entry.
    pub fn keep(&mut self, in_seq: InSeq, entry: Entry<B>) {
        self.kept.get_or_insert_default().keep(in_seq, entry);
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

    /// Every entry after `in_seq`, oldest first, and whether it is covered.
    pub fn all_after(&self, in_seq: InSeq) -> impl Iterator<Item = (InSeq, &Entry<B>, bool)> {
        let kept = self.kept.iter().flat_map(|kept| &kept.entries);
        let kept = kept.map(|(number, entry)| (*number, entry, true));
        let waiting = self.entries.iter().map(|(number, entry)| (*number, entry, false));
        let mut all: Vec<_> = kept.chain(waiting).filter(|(number, ..)| *number > in_seq).collect();
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter()
    }

    /// Everything that is held, to move its bodies elsewhere.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry<B>> {
        let kept = self.kept.iter_mut().flat_map(|kept| &mut kept.entries);
        kept.chain(&mut self.entries).map(|(_, entry)| entry)
    }

    /// The entry with this number, if it is held, to move its body elsewhere.
    pub fn get_mut(&mut self, in_seq: InSeq) -> Option<&mut Entry<B>> {
        let entries = match position(&self.entries, in_seq) {
            Some(_) => &mut self.entries,
            None => &mut self.kept.as_mut()?.entries,
        };
        let index = position(entries, in_seq)?;
        entries.get_mut(index).map(|(_, entry)| entry)
    }

    /// Whether this one is held and was dealt with before an older one.
    pub fn was_answered_early(&self, in_seq: InSeq) -> bool {
        let kept = self.kept.as_ref().filter(|_| in_seq > self.covered());
        kept.is_some_and(|kept| position(&kept.entries, in_seq).is_some())
    }

    /// Bytes of entries that are dealt with and kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes)
    }

    /// How many of them there are.
    pub fn kept(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.entries.len())
    }

    /// Lets go of so many bytes of them, or of all there are, oldest first.
    pub fn shed_kept(&mut self, bytes: usize) {
        let Some(kept) = &mut self.kept else { return };
        let enough = kept.bytes.saturating_sub(bytes);
        while kept.bytes > enough && !kept.entries.is_empty() {
            kept.drop_oldest();
        }
        if kept.entries.is_empty() {
            self.kept = None;
        }
    }

    /// Whether nothing is held, neither waiting nor dealt with.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.kept.is_none()
    }

    /// Whether [`Inbox::trim`] would let go of something.
    pub fn has_outlived(&self, bounds: &LogBounds, now: Timestamp) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.exceeds(bounds, now))
    }

    /// Lets go of entries that are dealt with and over the bounds or older than the retention, oldest
    /// first.
    pub fn trim(&mut self, bounds: &LogBounds, now: Timestamp) {
        let Some(kept) = &mut self.kept else { return };
        while kept.exceeds(bounds, now) {
            kept.drop_oldest();
        }
        if kept.entries.is_empty() {
            self.kept = None;
        }
    }

    /// Lets go of everything that is dealt with.
    pub fn forget_kept(&mut self) {
        self.kept = None;
    }

    /// Notes that everything up to `in_seq` is dealt with, as far as it was ever entered. Covering only grows.
    pub fn cover(&mut self, in_seq: InSeq) {
        while self.covered() < in_seq {
            let Some((number, entry)) = self.entries.pop_front() else { break };
            self.bytes -= entry.size as usize;
            self.keep(number, entry);
        }
        self.shrink_if_empty();
    }

    /// Notes that this one alone is dealt with, if it still waits.
    pub fn answer(&mut self, in_seq: InSeq) {
        let index = position(&self.entries, in_seq);
        if let Some((number, entry)) = index.and_then(|index| self.entries.remove(index)) {
            self.bytes -= entry.size as usize;
            self.keep(number, entry);
        }
        self.shrink_if_empty();
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

fn position<B>(entries: &VecDeque<(InSeq, Entry<B>)>, in_seq: InSeq) -> Option<usize> {
    entries.binary_search_by_key(&in_seq, |(number, _)| *number).ok()
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

    fn all(inbox: &Inbox<u32>) -> Vec<(u64, bool)> {
        inbox.all_after(InSeq::ZERO).map(|(n, _, done)| (n.get(), done)).collect()
    }

    #[test]
    fn what_is_dealt_with_can_be_read_until_it_is_over_the_bounds() {
        let mut inbox = Inbox::default();
        for size in 1..=5 {
            inbox.push(entry(size));
        }
        inbox.answer(InSeq::new(4));
        assert!(inbox.was_answered_early(InSeq::new(4)));
        inbox.cover(InSeq::new(2));
        assert_eq!(all(&inbox), [(1, true), (2, true), (3, false), (4, true), (5, false)]);
        let bounds = LogBounds { events: 2, ..LogBounds::default() };
        assert!(inbox.has_outlived(&bounds, Timestamp::default()));
        inbox.trim(&bounds, Timestamp::default());
        assert_eq!(all(&inbox), [(2, true), (3, false), (4, true), (5, false)]);
        let bounds = LogBounds { bytes: 5, ..LogBounds::default() };
        inbox.trim(&bounds, Timestamp::default());
        assert_eq!((all(&inbox)[0], inbox.kept_bytes()), ((3, false), 4));
        let bounds = LogBounds::default();
        inbox.trim(&bounds, Timestamp::default() + bounds.retention);
        assert_eq!(all(&inbox), [(3, false), (5, false)], "what waits is never trimmed");
        assert!(inbox.kept_bytes() == 0 && !inbox.is_empty());
    }

    #[test]
    fn only_so_many_are_kept_whatever_the_bounds() {
        let mut inbox = Inbox::default();
        for _ in 0..2 * KEPT_ENTRIES {
            let in_seq = inbox.push(entry(1));
            inbox.cover(in_seq);
        }
        assert_eq!((all(&inbox).len(), inbox.kept_bytes()), (KEPT_ENTRIES, KEPT_ENTRIES));
    }
}
