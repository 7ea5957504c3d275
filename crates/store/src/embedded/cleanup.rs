//! Keeps the journal small. Rows go from the oldest on, and only when nothing in them is needed:
//!
//! - a row that no piece is in any more is dead. Dead rows at the front are deleted together;
//! - what a deleted row said about the numbering of a session is said again in a note;
//! - if the journal grows beyond its bound all the same, because some session has been parked for
//!   long, the oldest rows are searched for survivors, and these are written again in the newest row.
//!   From its commit on they are found there, and the old row is dead.
//!
//! All of it happens in portions that ride on commits which are made anyway.

use std::collections::VecDeque;
use std::sync::Arc;

use rejoin_core::log::Remembered;
use rusqlite::{Connection, OptionalExtension};

use super::apply::Tables;
use super::batch::{Batch, Move, Moved};
use super::error::Fault;
use super::journal::{self, Head, Key, Record};
use super::limits;
use super::piece::{Ledger, Piece, Row};
use super::read::Readers;
use super::slot::{Session, Slot};

/// What a note takes in the journal.
const NOTE_BYTES: u64 = 56;

/// The rows of the journal, oldest first.
#[derive(Debug)]
pub(super) struct Journal {
    rows: VecDeque<JournalRow>,
    ledger: Arc<Ledger>,
    /// Bytes of the file that the rows take.
    stored: u64,
    /// How many sessions are named in [`JournalRow::unnoted`].
    unnoted: u64,
    /// Rows up to this one have been searched for survivors.
    searched: u64,
    /// Bytes of the file that searched rows take.
    searched_stored: u64,
}

/// What is remembered of a row.
#[derive(Debug)]
pub(super) struct JournalRow {
    pub(super) row: Arc<Row>,
    /// Bytes of the file that it takes.
    pub(super) stored: u64,
    /// Whether message ids are in it: they have no piece, so it must be searched before it goes.
    pub(super) has_ids: bool,
    /// Sessions about which it is the oldest to say something that no note says. Some may have got
    /// their note, or ended, since.
    pub(super) unnoted: Vec<Key>,
}

impl Journal {
    /// The journal with these rows.
    pub(super) fn new(rows: VecDeque<JournalRow>, ledger: &Arc<Ledger>) -> Self {
        let stored = rows.iter().map(|row| row.stored).sum();
        let unnoted = rows.iter().map(|row| row.unnoted.len() as u64).sum();
        let ledger = Arc::clone(ledger);
        Self { rows, ledger, stored, unnoted, searched: 0, searched_stored: 0 }
    }

    /// The oldest row there is; `newest` if there is none.
    pub(super) fn first(&self, newest: u64) -> u64 {
        self.rows.front().map_or(newest, |oldest| oldest.row.number())
    }

    /// A row was committed.
    pub(super) fn push(&mut self, row: JournalRow) {
        self.stored += row.stored;
        self.unnoted += row.unnoted.len() as u64;
        self.rows.push_back(row);
    }

    /// Whether there is enough to do for a commit of its own.
    pub(super) fn wants_commit(&self) -> bool {
        let (rows, bytes) = self.dead_front();
        let enough = rows >= limits::DELETE_ROWS || bytes >= limits::DELETE_BYTES;
        enough || (self.over_bound(0) && self.next_to_search().is_some())
    }

    /// Takes dead rows off the front, if there are enough, and makes the notes that this calls for.
    /// Says up to which number rows are to be deleted with this commit.
    pub(super) fn drop_dead_rows(&mut self, tables: &Tables, batch: &mut Batch) -> Option<u64> {
        let (rows, bytes) = self.dead_front();
        if rows < limits::DELETE_ROWS && bytes < limits::DELETE_BYTES {
            return None;
        }
        let mut last = None;
        for gone in self.rows.drain(..rows) {
            let number = gone.row.number();
            self.stored -= gone.stored;
            self.unnoted -= gone.unnoted.len() as u64;
            if number <= self.searched {
                self.searched_stored -= gone.stored;
            }
            for key in gone.unnoted {
                if let Some(slot) = tables.by_key.get(&key) {
                    note_if_needed(&mut slot.lock(), number, batch);
                }
            }
            last = Some(number);
        }
        last
    }

    /// Searches the oldest rows for survivors and writes them again in the batch, if the journal is
    /// over its bound.
    pub(super) fn evacuate(
        &mut self,
        readers: &Readers,
        tables: &Tables,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let own = batch.records.len() as u64;
        let budget = limits::EVACUATE_BYTES + 4 * own;
        let (mut spent, mut rows) = (0, 0);
        while spent < budget && rows < limits::EVACUATE_ROWS && self.over_bound(own) {
            let Some(index) = self.next_to_search() else { break };
            let next = &self.rows[index];
            if next.row.live_bytes() > 0 || next.has_ids {
                readers.read(|db| search(next.row.number(), db, tables, batch))?;
                spent += next.stored;
            }
            rows += 1;
            self.searched = next.row.number();
            self.searched_stored += next.stored;
        }
        Ok(())
    }

    /// Whether the journal, without the rows that go anyway, is larger than its contents justify.
    fn over_bound(&self, more: u64) -> bool {
        let needed = self.ledger.live_bytes() + self.unnoted * NOTE_BYTES;
        let bound = needed + needed / 2 + limits::JOURNAL_SLACK_BYTES;
        self.stored - self.searched_stored + more > bound
    }

    fn next_to_search(&self) -> Option<usize> {
        let first = self.rows.front()?.row.number();
        let index = (self.searched + 1).saturating_sub(first) as usize;
        // The newest row stays: it says what there is.
        (index + 1 < self.rows.len()).then_some(index)
    }

    /// How many rows at the front are dead, and their bytes, as far as one commit may delete them.
    fn dead_front(&self) -> (usize, u64) {
        let (mut rows, mut bytes) = (0, 0);
        for front in self.rows.iter().take(self.rows.len().saturating_sub(1)) {
            let searched = front.row.number() <= self.searched;
            let dead = front.row.live_bytes() == 0 && (searched || !front.has_ids);
            let enough =
                rows >= limits::DELETE_ROWS_AT_ONCE || bytes >= limits::DELETE_BYTES_AT_ONCE;
            if !dead || enough {
                break;
            }
            rows += 1;
            bytes += front.stored;
        }
        (rows, bytes)
    }
}

/// Makes a note of a session if this row, which goes, was the oldest to say something about it.
fn note_if_needed(session: &mut Session, row: u64, batch: &mut Batch) {
    if session.unnoted_from.is_some_and(|from| from.get() == row) {
        note(session, batch);
    }
}

/// Makes a note of a session.
pub(super) fn note(session: &mut Session, batch: &mut Batch) {
    let vitals = &session.state.vitals;
    let head = Head::Note {
        key: session.key,
        numbers: session.numbers(),
        last_activity: vitals.last_activity,
        expires_at: vitals.expires_at,
    };
    batch.records.put(&head, &[]);
    say_what_is_trimmed(session, batch);
    // All that older rows said is said here.
    session.unnoted_from = None;
    session.unsaved = false;
    batch.says_something_of(session);
}

/// Writes down which results have gone, if some have since that was written last. Without it they would
/// come back when the store is opened, and take the room of events that were held.
pub(super) fn say_what_is_trimmed(session: &mut Session, batch: &mut Batch) {
    if let Some((first, oldest)) = session.trimmed_since_said() {
        batch.records.put(&Head::Trimmed { key: session.key, first, oldest }, &[]);
    }
}

/// Writes what is still needed of a row again.
pub(super) fn search(
    number: u64,
    db: &Connection,
    tables: &Tables,
    batch: &mut Batch,
) -> Result<(), Fault> {
    let mut select = db.prepare_cached("SELECT body FROM journal WHERE id = ?1")?;
    let body: Option<Vec<u8>> = select.query_row([number as i64], |row| row.get(0)).optional()?;
    let body = body.ok_or(Fault::RowMissing(number))?;
    let damaged = |what| Fault::Row { number, what };
    let (_, mut records) = journal::read_row(number, &body).map_err(damaged)?;
    while let Some(record) = records.next().map_err(damaged)? {
        let Some(slot) = tables.by_key.get(&record.head.key()) else { continue };
        Survivor { slot, row: number, record }.write_again(&mut slot.lock(), batch);
    }
    Ok(())
}

/// A record of an old row whose session still exists.
struct Survivor<'a> {
    slot: &'a Arc<Slot>,
    row: u64,
    record: Record<'a>,
}

impl Survivor<'_> {
    fn write_again(&self, session: &mut Session, batch: &mut Batch) {
        match self.record.head {
            Head::Event { seq, .. } => {
                let held = session.state.out.get(seq).map(|event| &event.body);
                if let Some(body) = held.filter(|body| body.row_number() == self.row) {
                    let to = body.moved_to(&batch.row, batch.records.put_again(self.record.bytes));
                    self.moved(Moved::Event(seq), to, batch);
                }
            }
            Head::Snapshot { .. } => {
                let held = session.state.snapshot.as_ref().map(|snapshot| &snapshot.body);
                if let Some(body) = held.filter(|body| body.row_number() == self.row) {
                    let to = body.moved_to(&batch.row, batch.records.put_again(self.record.bytes));
                    self.moved(Moved::Snapshot, to, batch);
                }
            }
            Head::Entry { key, in_seq, at, kind, size, digest, .. } => {
                let message = digest.map(|digest| Remembered { digest, in_seq, at });
                let message = message.filter(|message| remembers(session, message));
                let waits = session.state.inbox.get_mut(in_seq).map(|entry| &entry.body);
                if let Some(body) = waits.filter(|body| body.row_number() == self.row) {
                    let digest = message.map(|message| message.digest);
                    let head = Head::Entry { key, in_seq, at, kind, size, digest, deadline: None };
                    let to = body.moved_to(&batch.row, batch.records.put(&head, self.record.body));
                    self.moved(Moved::Entry(in_seq), to, batch);
                    if session.state.inbox.was_answered_early(in_seq) {
                        batch.records.put(&Head::Answered { key, in_seq }, &[]);
                    }
                    batch.has_ids |= digest.is_some();
                } else if let Some(message) = message {
                    batch.records.put(&Head::Seen { key, message }, &[]);
                    batch.has_ids = true;
                }
            }
            Head::Seen { message, .. } => {
                if remembers(session, &message) {
                    batch.records.put_again(self.record.bytes);
                    batch.has_ids = true;
                }
            }
            Head::SeenKey { publication, .. } => {
                let known = session.state.seen_keys.find(&publication.digest);
                if known == Some(&publication) {
                    batch.records.put_again(self.record.bytes);
                    batch.has_ids = true;
                }
            }
            // What these say is said by a note when the row goes.
            Head::Cover { .. } | Head::Note { .. } => {}
            // Its entry was in this row or an older one. If it was written again, so was this.
            Head::Answered { .. } => {}
            // What they speak of was in this row or an older one, and was not written again.
            Head::Forgotten { .. } | Head::Trimmed { .. } => {}
        }
    }

    fn moved(&self, what: Moved, to: Piece, batch: &mut Batch) {
        let slot = Arc::clone(self.slot);
        batch.aftermath.moves.push(Move { slot, what, from: self.row, to });
    }
}

fn remembers(session: &Session, message: &Remembered) -> bool {
    session.state.seen.find(&message.digest) == Some(message)
}

impl Move {
    /// From now on the body is found in its new row; unless it is needed no more.
    pub(super) fn take_effect(self) {
        let Self { slot, what, from, to } = self;
        let session = &mut *slot.lock();
        let body = match what {
            Moved::Event(seq) => session.state.out.get_mut(seq).map(|event| &mut event.body),
            Moved::Entry(in_seq) => {
                session.state.inbox.get_mut(in_seq).map(|entry| &mut entry.body)
            }
            Moved::Snapshot => session.state.snapshot.as_mut().map(|snapshot| &mut snapshot.body),
        };
        if let Some(body) = body.filter(|body| body.row_number() == from) {
            *body = to;
        }
    }
}

/// Bytes of the file that a row with a body of this length takes: whole overflow pages, and its
/// share of a leaf, of which it may waste some.
pub(super) fn stored_bytes(length: usize) -> u64 {
    let page = u64::from(limits::PAGE_BYTES);
    let usable = page - 12;
    let (largest_local, smallest_local) = (page - 35, usable * 32 / 255 - 23);
    let length = length as u64;
    let local = if length <= largest_local {
        length
    } else {
        let rest = smallest_local + (length - smallest_local) % (page - 4);
        if rest <= largest_local { rest } else { smallest_local }
    };
    let overflow_pages = (length - local).div_ceil(page - 4);
    let cells_per_leaf = (usable / (local + 16)).max(1);
    overflow_pages * page + page / cells_per_leaf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_at_least_its_length_and_at_most_a_page_more_than_twice_that() {
        for length in (56..5_000).chain([100_000, 1 << 20, 16 << 20]) {
            let stored = stored_bytes(length);
            assert!(stored >= length as u64, "{length} bytes in {stored}");
            assert!(stored <= 2 * length as u64 + 4096, "{length} bytes in {stored}");
        }
    }
}
