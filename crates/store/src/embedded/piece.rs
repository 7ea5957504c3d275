//! Where a body is: in a record of a journal row for certain, and in memory if it is recent.
//!
//! A [`Piece`] counts itself in its row as long as it exists, also while a reader holds a copy. That
//! is all the bookkeeping there is: a row that no piece counts in is dead and may be deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use rejoin_core::log::Weight;

use crate::contract::Body;

/// What a body in memory costs besides its bytes: the counters of the `Arc` and the allocator's.
const HOT_OVERHEAD: u64 = 32;

/// What a record takes that keeps a message id.
const ID_BYTES: u64 = 56;

/// The sums over all pieces of a store.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    live: AtomicU64,
    hot: AtomicU64,
    ids: AtomicU64,
}

impl Ledger {
    /// Bytes of records that some piece points to, or that keep a message id.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed) + self.ids.load(Relaxed) * ID_BYTES
    }

    /// Pieces point to so many bytes more.
    pub(super) fn add(&self, bytes: u64) {
        self.live.fetch_add(bytes, Relaxed);
    }

    /// Bytes of bodies in memory.
    pub(super) fn hot_bytes(&self) -> u64 {
        self.hot.load(Relaxed)
    }

    /// A session remembers `now` message ids instead of `was`.
    pub(super) fn change_ids(&self, was: usize, now: usize) {
        self.ids.fetch_add(now as u64, Relaxed);
        self.ids.fetch_sub(was as u64, Relaxed);
    }
}

/// An event in a journal row: how long its record is, and what it counts against the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) len: u32,
    pub(super) weight: Weight,
}

/// A journal row, as far as the pieces in it must know it.
#[derive(Debug)]
pub(super) struct Row {
    number: u64,
    /// Whether it is committed.
    durable: AtomicBool,
    live: AtomicU64,
    ledger: Arc<Ledger>,
    /// The events in it, if it was there when the store was opened: logs that are packed still share
    /// them.
    marks: Box<[Mark]>,
}

impl Row {
    /// The row that will have this running number, with no piece in it yet.
    pub(super) fn new(number: u64, ledger: &Arc<Ledger>) -> Arc<Self> {
        let (durable, live, ledger) = (false.into(), 0.into(), Arc::clone(ledger));
        Arc::new(Self { number, durable, live, ledger, marks: Box::default() })
    }

    /// A row that is there, having these events in it.
    pub(super) fn with_marks(number: u64, ledger: &Arc<Ledger>, marks: Vec<Mark>) -> Arc<Self> {
        let (durable, live, ledger) = (true.into(), 0.into(), Arc::clone(ledger));
        Arc::new(Self { number, durable, live, ledger, marks: marks.into() })
    }

    /// Its commit has returned: from now on readers may see what is in it.
    pub(super) fn set_durable(&self) {
        self.durable.store(true, Release);
    }

    /// The events in it, if it was there when the store was opened.
    pub(super) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Its running number, which is its id in the database.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of its records that some piece points to.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Somebody points to so many bytes more.
    pub(super) fn add(&self, bytes: u64) {
        self.add_here(bytes);
        self.ledger.add(bytes);
    }

    /// The same, if the caller tells the ledger: threads that tell it of each session's bytes would
    /// wait for each other.
    pub(super) fn add_here(&self, bytes: u64) {
        self.live.fetch_add(bytes, Relaxed);
    }

    /// Somebody points to so many bytes less.
    pub(super) fn subtract(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Relaxed);
        self.ledger.live.fetch_sub(bytes, Relaxed);
    }
}

/// Where a record lies in its row's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first byte.
    pub(super) start: u32,
    /// How many bytes it has.
    pub(super) len: u32,
}

/// Where a piece is before it has been written.
const NOWHERE: Place = Place { start: 0, len: 0 };

/// The body of an event, an entry or a snapshot.
#[derive(Debug)]
pub(super) struct Piece {
    row: Arc<Row>,
    place: Place,
    hot: Option<Body>,
}

impl Piece {
    /// A body that is in memory, and in the record at `place` once its row is committed.
    pub(super) fn hot(row: &Arc<Row>, place: Place, body: Body) -> Self {
        row.ledger.hot.fetch_add(hot_cost(&body), Relaxed);
        row.add(u64::from(place.len));
        Self { row: Arc::clone(row), place, hot: Some(body) }
    }

    /// A body that will be in this row; [`Piece::put_at`] says where.
    pub(super) fn unwritten(row: &Arc<Row>, body: Body) -> Self {
        Self::hot(row, NOWHERE, body)
    }

    /// Whether it still has to be written.
    pub(super) fn is_unwritten(&self) -> bool {
        self.place == NOWHERE
    }

    /// A body that is in the record at `place` alone.
    pub(super) fn cold(row: &Arc<Row>, place: Place) -> Self {
        row.add(u64::from(place.len));
        Self { row: Arc::clone(row), place, hot: None }
    }

    /// Whether the row it is in is committed.
    pub(super) fn is_durable(&self) -> bool {
        self.row.durable.load(Acquire)
    }

    /// The number of the row it is in.
    pub(super) fn row_number(&self) -> u64 {
        self.row.number
    }

    /// Where it is in the row.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The body, if it is in memory.
    pub(super) fn body(&self) -> Option<&Body> {
        self.hot.as_ref()
    }

    /// Leaves memory.
    pub(super) fn cool(&mut self) {
        if let Some(body) = self.hot.take() {
            self.row.ledger.hot.fetch_sub(hot_cost(&body), Relaxed);
        }
    }

    /// Says where it is, once that is known.
    pub(super) fn put_at(&mut self, place: Place) {
        self.row.add(u64::from(place.len));
        self.row.subtract(u64::from(self.place.len));
        self.place = place;
    }

    /// The same body, written again at `place` of another row.
    pub(super) fn moved_to(&self, row: &Arc<Row>, place: Place) -> Self {
        match &self.hot {
            Some(body) => Self::hot(row, place, Arc::clone(body)),
            None => Self::cold(row, place),
        }
    }
}

impl Clone for Piece {
    fn clone(&self) -> Self {
        self.moved_to(&self.row, self.place)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.cool();
        self.row.subtract(u64::from(self.place.len));
    }
}

fn hot_cost(body: &Body) -> u64 {
    body.len() as u64 + HOT_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_dead_when_its_last_piece_is_gone() {
        let ledger = Arc::new(Ledger::default());
        let row = Row::new(1, &ledger);
        let piece = Piece::hot(&row, Place { start: 0, len: 40 }, Arc::from(&[0; 30][..]));
        let copy = piece.clone();
        assert_eq!((row.live_bytes(), ledger.live_bytes(), ledger.hot_bytes()), (80, 80, 124));
        drop(piece);
        assert_eq!((row.live_bytes(), ledger.hot_bytes()), (40, 62));
        drop(copy);
        assert_eq!((row.live_bytes(), ledger.live_bytes(), ledger.hot_bytes()), (0, 0, 0));
    }

    #[test]
    fn a_piece_that_leaves_memory_stays_in_its_row() {
        let ledger = Arc::new(Ledger::default());
        let row = Row::new(1, &ledger);
        let mut piece = Piece::hot(&row, Place { start: 0, len: 40 }, Arc::from(&[0; 30][..]));
        piece.cool();
        piece.cool();
        assert_eq!((row.live_bytes(), ledger.hot_bytes()), (40, 0));
        assert!(piece.body().is_none());
    }
}
