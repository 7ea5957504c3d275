//! An out log as opening leaves it: where its events are, in a few bytes each and without a body.
//!
//! Most sessions of a store that is opened are not asked for soon. Their logs stay packed until
//! somebody looks at them; then [`PackedLog::unpack`] makes them what they are everywhere else. A
//! packed log counts in its journal rows as its pieces would.

use std::sync::Arc;

use rejoin_core::limits::LogBounds;
use rejoin_core::log::{Held, OutLog};
use rejoin_core::{Seq, Timestamp};

use super::piece::{Mark, Piece, Place, Row};
use super::scan::Events;

/// Events of one session that lie side by side in a journal row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) row: &'a Arc<Row>,
    pub(super) events: Events,
}

impl<'a> Run<'a> {
    fn first(&self) -> Seq {
        self.events.first
    }

    /// The seq after its last event.
    fn end(&self) -> Seq {
        self.first().plus(u64::from(self.events.count))
    }

    /// Whether its first event is a result.
    fn is_result(&self) -> bool {
        marks(self.row, &self.events)[0].weight.is_result()
    }

    /// The same events, one at a time.
    fn singly(self) -> impl Iterator<Item = Run<'a>> {
        let Self { row, mut events } = self;
        let count = std::mem::replace(&mut events.count, 1);
        (0..count).map(move |_| {
            let single = Run { row, events };
            events.first = events.first.next();
            events.start += marks(row, &single.events)[0].len;
            events.mark += 1;
            single
        })
    }
}

/// As [`Run`], for as long as it is needed.
#[derive(Debug)]
struct Stretch {
    row: Arc<Row>,
    events: Events,
}

impl Stretch {
    fn of(run: &Run<'_>) -> Self {
        Self { row: Arc::clone(run.row), events: run.events }
    }

    fn marks(&self) -> &[Mark] {
        marks(&self.row, &self.events)
    }

    fn bytes(&self) -> u64 {
        self.marks().iter().map(|mark| u64::from(mark.len)).sum()
    }
}

fn marks<'a>(row: &'a Row, events: &Events) -> &'a [Mark] {
    &row.marks()[events.mark as usize..][..events.count as usize]
}

/// The newest events of a session that follow each other without a hole, and results from before
/// them. Never empty: most are one stretch, which is here and not behind another pointer.
#[derive(Debug)]
pub(super) struct PackedLog {
    oldest: Stretch,
    newer: Vec<Stretch>,
    /// Each is one event.
    kept: Box<[Stretch]>,
}

impl PackedLog {
    /// The log that these runs make up, in the order in which they were written, as far as it is
    /// needed from `oldest` on. Nothing if `head` is beyond it: what it lacks was trimmed; if it was
    /// lost, the rows that are missing have told. Results from `first` on are part of it as long as they
    /// are in the journal. Says how many bytes of the rows it needs; of those the caller must tell the
    /// ledger.
    pub(super) fn of(runs: &[Run<'_>], first: Seq, oldest: Seq, head: Seq) -> Option<(Self, u64)> {
        let in_order = runs.windows(2).all(|pair| pair[0].end() == pair[1].first());
        let is_needed = runs.first().is_none_or(|run| run.first() >= oldest);
        let (sorted, kept);
        let (kept, runs) = if in_order && is_needed {
            (&[][..], runs)
        } else {
            (kept, sorted) = newest_without_hole(runs, first, oldest);
            (&kept[..], &sorted[..])
        };
        let (oldest, newer) = runs.split_first()?;
        let end = newer.last().unwrap_or(oldest).end();
        (head < end).then(|| Self::pack(kept, oldest, newer))
    }

    fn pack(kept: &[Run<'_>], oldest: &Run<'_>, newer: &[Run<'_>]) -> (Self, u64) {
        let (oldest, newer) = (Stretch::of(oldest), newer.iter().map(Stretch::of).collect());
        let packed = Self { oldest, newer, kept: kept.iter().map(Stretch::of).collect() };
        let mut needed = 0;
        for stretch in packed.all() {
            let bytes = stretch.bytes();
            stretch.row.add_here(bytes);
            needed += bytes;
        }
        (packed, needed)
    }

    fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        std::iter::once(&self.oldest).chain(&self.newer)
    }

    /// The same, and the results from before.
    fn all(&self) -> impl Iterator<Item = &Stretch> {
        self.kept.iter().chain(self.stretches())
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.all().map(|stretch| stretch.events.count as usize).sum()
    }

    /// How many bytes they count.
    pub(super) fn bytes(&self) -> usize {
        self.all().flat_map(Stretch::marks).map(|mark| mark.weight.bytes()).sum()
    }

    /// Whether the first is settled, everything up to `settled` being so, and has outlived the
    /// retention.
    pub(super) fn has_outlived(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        let first = self.kept.first().unwrap_or(&self.oldest).events;
        first.first <= settled && now.since(first.at) >= bounds.retention
    }

    /// The seq of the last one.
    pub(super) fn head(&self) -> Seq {
        let newest = self.newer.last().unwrap_or(&self.oldest).events;
        newest.first.plus(u64::from(newest.count) - 1)
    }

    fn first(&self) -> Seq {
        self.oldest.events.first
    }

    /// Whether [`OutLog::trim`] would take something away, if everything up to `settled` is acked or
    /// covered by a state.
    pub(super) fn is_over(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        let over = self.len() > bounds.events || self.bytes() > bounds.bytes;
        over || self.has_outlived(bounds, settled, now)
    }

    /// The log itself. Everything up to `acked` is.
    pub(super) fn unpack(self, acked: Seq) -> OutLog<Piece> {
        let mut out = OutLog::starting_after(self.first().previous(), acked);
        out.reserve(self.len());
        for stretch in self.stretches() {
            let (at, mut start) = (stretch.events.at, stretch.events.start);
            for Mark { len, weight } in stretch.marks() {
                let body = Piece::cold(&stretch.row, Place { start, len: *len });
                out.push(Held { at, weight: *weight, body });
                start += len;
            }
        }
        for stretch in &self.kept {
            let (Events { first, at, start, .. }, Mark { len, weight }) =
                (stretch.events, stretch.marks()[0]);
            let body = Piece::cold(&stretch.row, Place { start, len });
            out.keep(first, Held { at, weight, body });
        }
        out
    }
}

impl Drop for PackedLog {
    fn drop(&mut self) {
        for stretch in self.all() {
            stretch.row.subtract(stretch.bytes());
        }
    }
}

/// The events up to the highest seq that follow each other without a hole, from `oldest` on, and before
/// them the results from `first` on. Of two with the same seq, the one written later counts: the row
/// of the other will go.
fn newest_without_hole<'a>(
    runs: &[Run<'a>],
    first: Seq,
    oldest: Seq,
) -> (Vec<Run<'a>>, Vec<Run<'a>>) {
    let mut events: Vec<Run<'a>> = runs.iter().flat_map(|run| run.singly()).collect();
    events.reverse();
    events.sort_by_key(Run::first); // stable: of two, the one written later is first
    events.dedup_by_key(|event| event.first());
    let follows = |pair: &[Run<'_>]| pair[0].end() == pair[1].first();
    let from = events.windows(2).rposition(|pair| !follows(pair)).map_or(0, |hole| hole + 1);
    let needed = events[from..].partition_point(|event| event.first() < oldest);
    let newest = events.split_off(from + needed);
    events.retain(|event| event.first() >= first && event.is_result());
    (events, newest)
}

#[cfg(test)]
mod tests {
    use rejoin_core::log::Weight;

    use super::super::piece::Ledger;
    use super::*;

    const MARK: Mark = Mark { len: 40, weight: Weight::passing(20) };

    fn row(number: u64) -> Arc<Row> {
        Row::with_marks(number, &Arc::new(Ledger::default()), vec![MARK; 4])
    }

    fn run(row: &Arc<Row>, first: u64, count: u32) -> Run<'_> {
        let (first, at) = (Seq::new(first), Timestamp::from_millis(row.number()));
        Run { row, events: Events { first, at, start: 56, mark: 0, count } }
    }

    fn pack(runs: &[Run<'_>], oldest: u64, head: u64) -> Option<PackedLog> {
        let (packed, bytes) = PackedLog::of(runs, Seq::ZERO, Seq::new(oldest), Seq::new(head))?;
        assert_eq!(bytes, 40 * packed.len() as u64);
        Some(packed)
    }

    /// Each event's seq and the row it is in.
    fn unpacked(packed: Option<PackedLog>) -> Vec<(u64, u64)> {
        let out = packed.map(|packed| packed.unpack(Seq::ZERO)).unwrap_or_default();
        out.after(Seq::ZERO).map(|(seq, held)| (seq.get(), held.body.row_number())).collect()
    }

    #[test]
    fn a_log_unpacks_to_what_was_packed_and_counts_in_its_rows_all_the_time() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 1, 2), run(&two, 3, 1)];
        let packed = pack(&runs, 0, 3).unwrap();
        assert_eq!((packed.len(), packed.head()), (3, Seq::new(3)));
        assert_eq!((one.live_bytes(), two.live_bytes()), (80, 40));
        let out = packed.unpack(Seq::new(1));
        assert_eq!((one.live_bytes(), two.live_bytes()), (80, 40));
        assert_eq!((out.acked(), out.oldest(), out.bytes()), (Seq::new(1), Seq::new(1), 60));
        assert_eq!(out.get(Seq::new(2)).unwrap().body.place(), Place { start: 96, len: 40 });
        drop(out);
        assert_eq!((one.live_bytes(), two.live_bytes()), (0, 0));
        drop(pack(&runs, 0, 0));
        assert_eq!((one.live_bytes(), two.live_bytes()), (0, 0));
    }

    #[test]
    fn what_was_written_again_counts_where_it_was_written_last() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 1, 4), run(&two, 2, 2)];
        let packed = pack(&runs, 0, 0);
        assert_eq!(one.live_bytes(), 80);
        assert_eq!(unpacked(packed), [(1, 1), (2, 2), (3, 2), (4, 1)]);
    }

    #[test]
    fn events_before_a_hole_or_the_oldest_are_not_held_nor_any_if_the_head_is_further_on() {
        let (one, two) = (row(1), row(2));
        let runs = [run(&one, 7, 2), run(&two, 4, 2), run(&two, 6, 1)];
        assert_eq!(unpacked(pack(&runs[..2], 0, 0)), [(7, 1), (8, 1)]);
        let all = pack(&runs, 5, 8);
        assert_eq!(unpacked(all), [(5, 2), (6, 2), (7, 1), (8, 1)]);
        assert!(pack(&runs, 0, 9).is_none());
        assert!(pack(&runs, 9, 0).is_none());
        assert!(pack(&[], 0, 0).is_none());
    }

    #[test]
    fn results_from_before_a_hole_or_the_oldest_are_kept() {
        let ledger = Arc::new(Ledger::default());
        let result = Mark { len: 50, weight: Weight::result(20) };
        let one = Row::with_marks(1, &ledger, vec![result, MARK, result, MARK]);
        let two = row(2);
        let runs = [run(&one, 1, 4), run(&two, 7, 2)];
        let (packed, bytes) = PackedLog::of(&runs, Seq::ZERO, Seq::new(8), Seq::ZERO).unwrap();
        assert_eq!((packed.len(), packed.bytes(), packed.head()), (3, 60, Seq::new(8)));
        assert_eq!((bytes, one.live_bytes()), (140, 100));
        let out = packed.unpack(Seq::ZERO);
        let kept: Vec<_> =
            out.kept_after(Seq::ZERO).map(|(seq, held)| (seq.get(), held.body.place())).collect();
        let place = |start| Place { start, len: 50 };
        assert_eq!(kept, [(1, place(56)), (3, place(56 + 90))]);
        assert_eq!((out.oldest(), out.len()), (Seq::new(8), 3));
        drop(out);
        assert_eq!(one.live_bytes(), 0);
    }
}
