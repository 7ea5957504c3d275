//! An out log as opening leaves it: where its events are, in a few bytes each and without a body.
//!
//! Most sessions of a store that is opened are not asked for soon. Their logs stay packed until
//! somebody looks at them; then [`PackedLog::unpack`] makes them what they are everywhere else. A
//! packed log counts in its journal rows as its pieces would.

use std::sync::Arc;

use rejoin_core::limits::LogBounds;
use rejoin_core::log::{Held, OutLog};
use rejoin_core::{Seq, Timestamp};

use super::piece::{Piece, Place, Row};

/// One event: how long its record is, and what it counts against the bound in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) len: u32,
    pub(super) size: u32,
}

/// Events of one session whose records lie side by side in a journal row, and that came at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) row: &'a Arc<Row>,
    pub(super) first: Seq,
    pub(super) at: Timestamp,
    /// Where in the row the first record begins.
    pub(super) start: u32,
    pub(super) marks: &'a [Mark],
}

impl<'a> Run<'a> {
    /// The seq after its last event.
    fn end(&self) -> Seq {
        self.first.plus(self.marks.len() as u64)
    }

    /// The same events, one at a time.
    fn singly(self) -> impl Iterator<Item = Run<'a>> {
        let mut start = self.start;
        self.marks.chunks(1).enumerate().map(move |(index, marks)| {
            let single = Run { first: self.first.plus(index as u64), start, marks, ..self };
            start += marks[0].len;
            single
        })
    }
}

/// As [`Run`], its marks being the next `count` of the log's.
#[derive(Debug)]
struct Stretch {
    row: Arc<Row>,
    at: Timestamp,
    start: u32,
    count: u32,
}

/// The newest events of a session that follow each other without a hole. Never empty.
#[derive(Debug)]
pub(super) struct PackedLog {
    first: Seq,
    marks: Vec<Mark>,
    stretches: Vec<Stretch>,
}

impl PackedLog {
    /// The log that these runs make up, in the order in which they were written, as far as it is
    /// needed from `oldest` on. Nothing if `head` is beyond it: what it lacks was trimmed; if it was
    /// lost, the rows that are missing have told.
    pub(super) fn of(runs: &[Run<'_>], oldest: Seq, head: Seq) -> Option<Self> {
        let in_order = runs.windows(2).all(|pair| pair[0].end() == pair[1].first);
        let is_needed = runs.first().is_none_or(|run| run.first >= oldest);
        let sorted;
        let runs = if in_order && is_needed {
            runs
        } else {
            sorted = newest_without_hole(runs, oldest);
            &sorted
        };
        let end = runs.last()?.end();
        (head < end).then(|| Self::pack(runs))
    }

    fn pack(runs: &[Run<'_>]) -> Self {
        let mut marks = Vec::with_capacity(runs.iter().map(|run| run.marks.len()).sum());
        let mut stretches = Vec::with_capacity(runs.len());
        for run in runs {
            run.row.add(bytes(run.marks));
            marks.extend_from_slice(run.marks);
            let (row, count) = (Arc::clone(run.row), run.marks.len() as u32);
            stretches.push(Stretch { row, at: run.at, start: run.start, count });
        }
        Self { first: runs[0].first, marks, stretches }
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// How many bytes they count.
    pub(super) fn bytes(&self) -> usize {
        self.marks.iter().map(|mark| mark.size as usize).sum()
    }

    /// Whether the first is settled, everything up to `settled` being so, and has outlived the
    /// retention.
    pub(super) fn has_outlived(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        self.first <= settled && now.since(self.stretches[0].at) >= bounds.retention
    }

    /// The seq of the last one.
    pub(super) fn head(&self) -> Seq {
        self.first.plus(self.marks.len() as u64 - 1)
    }

    /// Whether [`OutLog::trim`] would take something away, if everything up to `settled` is acked or
    /// covered by a state.
    pub(super) fn is_over(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        let over = self.len() > bounds.events || self.bytes() > bounds.bytes;
        over || self.has_outlived(bounds, settled, now)
    }

    /// The log itself. Everything up to `acked` is.
    pub(super) fn unpack(mut self, acked: Seq) -> OutLog<Piece> {
        let mut out = OutLog::starting_after(self.first.previous(), acked);
        out.reserve(self.marks.len());
        let mut marks = self.marks.iter();
        for Stretch { row, at, mut start, count } in self.stretches.drain(..) {
            for Mark { len, size } in marks.by_ref().take(count as usize) {
                let body = Piece::counted(&row, Place { start, len: *len });
                out.push(Held { at, size: *size, body });
                start += len;
            }
        }
        out
    }
}

impl Drop for PackedLog {
    fn drop(&mut self) {
        let mut marks = &self.marks[..];
        for stretch in &self.stretches {
            let (own, rest) = marks.split_at(stretch.count as usize);
            stretch.row.subtract(bytes(own));
            marks = rest;
        }
    }
}

fn bytes(marks: &[Mark]) -> u64 {
    marks.iter().map(|mark| u64::from(mark.len)).sum()
}

/// The events up to the highest seq that follow each other without a hole. Of two with the same seq,
/// the one written later counts: the row of the other will go.
fn newest_without_hole<'a>(runs: &[Run<'a>], oldest: Seq) -> Vec<Run<'a>> {
    let mut events: Vec<Run<'a>> = runs.iter().flat_map(|run| run.singly()).collect();
    events.reverse();
    events.sort_by_key(|event| event.first); // stable: of two, the one written later is first
    events.dedup_by_key(|event| event.first);
    let follows = |pair: &[Run<'_>]| pair[0].end() == pair[1].first;
    let from = events.windows(2).rposition(|pair| !follows(pair)).map_or(0, |hole| hole + 1);
    events.drain(..from);
    events.retain(|event| event.first >= oldest);
    events
}

#[cfg(test)]
mod tests {
    use super::super::piece::Ledger;
    use super::*;

    const MARK: Mark = Mark { len: 40, size: 20 };

    fn row(number: u64) -> Arc<Row> {
        Row::new(number, &Arc::new(Ledger::default()))
    }

    fn run<'a>(row: &'a Arc<Row>, first: u64, marks: &'static [Mark]) -> Run<'a> {
        let (first, at) = (Seq::new(first), Timestamp::from_millis(row.number()));
        Run { row, first, at, start: 56, marks }
    }

    /// Each event's seq and the row it is in.
    fn unpacked(packed: Option<PackedLog>) -> Vec<(u64, u64)> {
        let out = packed.map(|packed| packed.unpack(Seq::ZERO)).unwrap_or_default();
        out.after(Seq::ZERO).map(|(seq, held)| (seq.get(), held.body.row_number())).collect()
    }

    #[test]
    fn a_log_unpacks_to_what_was_packed_and_counts_in_its_rows_all_the_time() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 1, &[MARK; 2]), run(&two, 3, &[MARK; 1])];
        let packed = PackedLog::of(&runs, Seq::ZERO, Seq::new(3)).unwrap();
        assert_eq!((packed.len(), packed.head()), (3, Seq::new(3)));
        assert_eq!((one.live_bytes(), two.live_bytes()), (80, 40));
        let out = packed.unpack(Seq::new(1));
        assert_eq!((one.live_bytes(), two.live_bytes()), (80, 40));
        assert_eq!((out.acked(), out.oldest(), out.bytes()), (Seq::new(1), Seq::new(1), 60));
        assert_eq!(out.get(Seq::new(2)).unwrap().body.place(), Place { start: 96, len: 40 });
        drop(out);
        assert_eq!((one.live_bytes(), two.live_bytes()), (0, 0));
        drop(PackedLog::of(&runs, Seq::ZERO, Seq::ZERO));
        assert_eq!((one.live_bytes(), two.live_bytes()), (0, 0));
    }

    #[test]
    fn what_was_written_again_counts_where_it_was_written_last() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 1, &[MARK; 4]), run(&two, 2, &[MARK; 2])];
        let packed = PackedLog::of(&runs, Seq::ZERO, Seq::ZERO);
        assert_eq!(one.live_bytes(), 80);
        assert_eq!(unpacked(packed), [(1, 1), (2, 2), (3, 2), (4, 1)]);
    }

    #[test]
    fn events_before_a_hole_or_the_oldest_are_not_held_nor_any_if_the_head_is_further_on() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 7, &[MARK; 2]), run(&two, 4, &[MARK; 2]), run(&two, 6, &[MARK; 1])];
        assert_eq!(unpacked(PackedLog::of(&runs[..2], Seq::ZERO, Seq::ZERO)), [(7, 1), (8, 1)]);
        let all = PackedLog::of(&runs, Seq::new(5), Seq::new(8));
        assert_eq!(unpacked(all), [(5, 2), (6, 2), (7, 1), (8, 1)]);
        assert!(PackedLog::of(&runs, Seq::ZERO, Seq::new(9)).is_none());
        assert!(PackedLog::of(&runs, Seq::new(9), Seq::ZERO).is_none());
        assert!(PackedLog::of(&[], Seq::ZERO, Seq::ZERO).is_none());
    }
}
