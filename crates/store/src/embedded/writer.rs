//! The one thread that writes. It takes what has come, applies it to the state in memory, commits,
//! and only then lets anybody know:
//!
//! ```text
//! take → apply → commit → witness → publish → answer → (spill, checkpoint) → take …
//! ```
//!
//! It waits for nothing but the next request and the disk. It ends when the store is closed or
//! dropped, or when a commit fails; then nothing is acknowledged any more.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use rejoin_core::limits::LogBounds;
use rejoin_core::log::Trimmed;
use rusqlite::Connection;

use super::apply::Tables;
use super::batch::Batch;
use super::cleanup::{self, Journal, JournalRow};
use super::error::Fault;
use super::index::IndexChange;
use super::journal::Header;
use super::limits;
use super::piece::Ledger;
use super::request::{Reply, Request};
use super::shared::Shared;
use super::slot::{Slot, Trace};
use super::spill::Spill;
use super::witness::Witness;
use super::{audit, rows, schema};
use crate::contract::Unavailable;

/// All that the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) db: Connection,
    pub(super) witness: Witness,
    /// Held as long as the thread lives: no other process may open the directory.
    pub(super) lock: File,
    pub(super) bounds: LogBounds,
    pub(super) audit_max: u64,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tables: Tables,
    pub(super) journal: Journal,
    pub(super) spill: Spill,
    pub(super) batch: Batch,
    /// Sessions that opening alone has changed; their rows are written by and by.
    pub(super) unwritten: Vec<Arc<Slot>>,
    /// Who asked to close.
    pub(super) closing: Vec<Reply<(), Unavailable>>,
    /// About how many bytes the write-ahead log holds.
    pub(super) wal_bytes: u64,
    /// Whether the database has more free pages than it should keep.
    pub(super) too_many_free_pages: bool,
}

impl Writer {
    /// Works until the store is closed or dropped, or a commit fails.
    pub(super) fn run(mut self) {
        let mut backlog = VecDeque::new();
        loop {
            let patience = self.wants_commit().then_some(limits::PATIENCE);
            if backlog.is_empty() && !self.shared.queue.take(&mut backlog, patience) {
                return; // the store was dropped
            }
            let idle = backlog.is_empty();
            self.apply_batch(&mut backlog);
            if let Err(fault) = self.finish_batch(idle) {
                return self.fail(&fault);
            }
            if !self.closing.is_empty() {
                return self.close();
            }
        }
    }

    fn apply_batch(&mut self, backlog: &mut VecDeque<Request>) {
        while !self.batch.is_full()
            && self.closing.is_empty()
            && let Some(request) = backlog.pop_front()
        {
            self.apply(request);
        }
    }

    fn finish_batch(&mut self, clean_up: bool) -> Result<(), Fault> {
        if clean_up || self.batch.must_commit() {
            self.commit()?;
        }
        self.publish();
        self.spill.keep_to_bound();
        self.checkpoint_if_due()
    }

    /// Whether there is enough to tidy up for a commit that nobody asked for.
    fn wants_commit(&self) -> bool {
        self.too_many_free_pages || self.journal.wants_commit()
    }

    /// Makes the batch durable.
    fn commit(&mut self) -> Result<(), Fault> {
        let number = self.batch.number();
        let delete_up_to = self.journal.drop_dead_rows(&self.tables, &mut self.batch);
        self.journal.evacuate(&self.db, &self.tables, &mut self.batch)?;
        self.write_rows_of_opening();

        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.write_traces()?;
        audit::put(&self.db, &self.batch.audit, self.audit_max)?;
        if let Some(number) = delete_up_to {
            let mut delete = self.db.prepare_cached("DELETE FROM journal WHERE id <= ?1")?;
            delete.execute([number as i64])?;
        }
        if self.too_many_free_pages {
            self.vacuum()?;
        }
        let header = Header {
            number,
            first: self.journal.first(number),
            next_key: self.tables.next_key,
            sessions: self.tables.rows,
            sessions_sum: self.tables.rows_sum,
        };
        let body = self.batch.records.seal(&header);
        let stored = cleanup::stored_bytes(body.len());
        schema::put_journal_row(&self.db, number, body)?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        self.witness.note(number).map_err(Fault::Witness)?;

        self.wal_bytes += stored + self.other_pages() * u64::from(limits::PAGE_BYTES);
        self.journal.push(JournalRow {
            row: Arc::clone(&self.batch.row),
            stored,
            has_ids: self.batch.has_ids,
            unnoted: std::mem::take(&mut self.batch.unnoted),
        });
        Ok(())
    }

    /// Pages that a commit writes besides those of the journal row's body, at a guess.
    fn other_pages(&self) -> u64 {
        3 + 2 * (self.batch.traced.len() + self.batch.deleted.len()) as u64
            + self.batch.audit.len() as u64 / 8
    }

    /// Writes session rows and notes. Rows go before they come: a restore hands a key on.
    fn write_traces(&mut self) -> Result<(), Fault> {
        let number = self.batch.number();
        for key in &self.batch.deleted {
            rows::delete(&self.db, *key)?;
        }
        let mut record = Vec::new();
        for slot in std::mem::take(&mut self.batch.traced) {
            let session = &mut *slot.lock();
            match session.pending.as_ref().map(|pending| pending.trace) {
                Some(Trace::Row) => {
                    let sum = rows::encode(session, number, &mut record);
                    rows::put(&self.db, session, &record)?;
                    self.tables.put_row(session, sum);
                    session.unnoted_from = None;
                    session.unsaved = false;
                }
                Some(Trace::Note) => cleanup::note(session, &mut self.batch),
                Some(Trace::Nothing) | None => {}
            }
        }
        Ok(())
    }

    fn write_rows_of_opening(&mut self) {
        let some = self.unwritten.len().saturating_sub(limits::LAZY_ROWS);
        for slot in self.unwritten.drain(some..) {
            let session = &mut *slot.lock();
            if session.row_sum.is_some() {
                self.batch.touch(&slot, session, super::slot::Takes::Nothing);
                self.batch.leave(&slot, session, Trace::Row);
            }
        }
    }

    fn vacuum(&mut self) -> Result<(), Fault> {
        let before = self.free_pages()?;
        let sql = format!("PRAGMA incremental_vacuum({})", limits::VACUUM_PAGES);
        let mut vacuum = self.db.prepare_cached(&sql)?;
        let mut steps = vacuum.query([])?;
        while steps.next()?.is_some() {}
        drop(steps);
        drop(vacuum);
        let left = self.free_pages()?;
        self.too_many_free_pages = left < before && left > limits::FREE_PAGES / 2;
        Ok(())
    }

    fn free_pages(&self) -> Result<u64, Fault> {
        let pages: i64 =
            self.db.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
        Ok(pages as u64)
    }

    /// Lets readers see what was committed, and callers know.
    fn publish(&mut self) {
        for moved in std::mem::take(&mut self.batch.moves) {
            moved.take_effect();
        }
        let mut changes = std::mem::take(&mut self.batch.index_changes);
        for slot in self.batch.touched.drain(..) {
            let session = &mut *slot.lock();
            let Some(pending) = session.pending.take() else { continue };
            if let Some(now) = pending.settle_at {
                let trimmed = session.state.settle(&self.bounds, now);
                session.unsaved |= trimmed != Trimmed::default();
            }
            if pending.reschedule {
                let due = session.state.record().due_at();
                if due != session.due {
                    let id = session.state.about.id.clone();
                    let was = std::mem::replace(&mut session.due, due);
                    changes.push(IndexChange::Reschedule(id, was, due));
                }
            }
            self.spill.note(&slot, session);
        }
        if !changes.is_empty() {
            self.shared.index.apply(changes);
        }
        for answer in self.batch.answers.drain(..) {
            answer.give(Ok(()));
        }
        let next = self.journal.newest() + 1;
        self.batch.next(next, &self.ledger);
    }

    /// Copies the write-ahead log into the database once it is long enough. A reader that is just
    /// using it puts this off to the next commit.
    fn checkpoint_if_due(&mut self) -> Result<(), Fault> {
        if self.wal_bytes < limits::WAL_BYTES {
            return Ok(());
        }
        if self.checkpoint("RESTART")? {
            self.wal_bytes = 0;
        }
        self.too_many_free_pages |= self.free_pages()? > limits::FREE_PAGES;
        Ok(())
    }

    fn checkpoint(&self, mode: &str) -> Result<bool, Fault> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let busy: i64 = self.db.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        Ok(busy == 0)
    }

    /// Nothing is acknowledged from here on. What readers see stays as of the last commit.
    fn fail(mut self, fault: &Fault) {
        let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
        self.shared.fail(&why);
        for answer in self.batch.answers.drain(..) {
            answer.give(Err(why.clone()));
        }
    }

    /// Writes what was put off, and leaves a single file behind.
    fn close(mut self) {
        let outcome = self.write_all_that_was_put_off();
        if let Err(fault) = &outcome {
            let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
            self.shared.fail(&why);
        }
        let Self { shared, db, lock, closing, .. } = self;
        let closed = shared.close();
        drop(db);
        drop(lock);
        for reply in closing {
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(_) => Err(closed.clone()),
            };
            let _ = reply.send(answer);
        }
    }

    fn write_all_that_was_put_off(&mut self) -> Result<(), Fault> {
        while !self.unwritten.is_empty() {
            self.finish_batch(true)?;
        }
        for slot in self.tables.by_key.values() {
            let session = &mut *slot.lock();
            if session.unsaved {
                cleanup::note(session, &mut self.batch);
            }
        }
        self.finish_batch(false)?;
        self.checkpoint("TRUNCATE")?;
        Ok(())
    }
}
