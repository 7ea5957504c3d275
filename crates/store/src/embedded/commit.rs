//! What one commit writes, as plain data, and the database that it is written to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rejoin_core::Timestamp;
use rejoin_core::record::About;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::audit::Trail;
use super::error::Fault;
use super::insert_row::InsertRow;
use super::journal::{Key, Records};
use super::limits;
use super::witness::Witness;
use super::{rows, schema};
use crate::audit::AuditRecord;
use crate::forgotten::SealNote;

/// All that one commit writes.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) number: u64,
    /// How many requests it answers.
    pub(super) requests: usize,
    /// The body of its journal row, sealed.
    pub(super) records: Records,
    /// Journal rows up to this one go.
    pub(super) delete_up_to: Option<u64>,
    /// Rows of sessions that go.
    pub(super) deleted: Vec<Key>,
    /// Rows of sessions that come, or change.
    pub(super) rows: Vec<SessionRow>,
    /// For the audit trail.
    pub(super) audit: Vec<AuditRecord>,
    /// See [`super::batch::Batch::forgotten_seals`].
    pub(super) forgotten_seals: Vec<SealNote>,
    /// Set by the database: whether there is enough to tidy up for a commit that nobody asked for.
    pub(super) left_untidy: bool,
}

/// A session's row.
#[derive(Debug)]
pub(super) struct SessionRow {
    pub(super) key: Key,
    pub(super) about: Arc<About>,
    pub(super) status: &'static str,
    pub(super) expires_at: Timestamp,
    pub(super) record: Vec<u8>,
}

/// The open database, with its witness.
#[derive(Debug)]
pub(super) struct Database {
    /// Before the connection: it must end first.
    journal: InsertRow,
    db: Connection,
    witness: Witness,
    trail: Trail,
    page_bytes: u64,
    /// How many pages the write-ahead log holds; SQLite says so after each commit.
    wal_pages: Arc<AtomicU64>,
    /// Whether there are more free pages than should be kept.
    too_many_free_pages: bool,
    /// Whether the file becomes shorter with the next checkpoint.
    shrink_file: bool,
    /// When a checkpoint is tried again that could not be made.
    not_before: Option<Instant>,
}

impl Database {
    /// The database on this connection.
    pub(super) fn new(
        mut db: Connection,
        witness: Witness,
        audit_max: u64,
    ) -> rusqlite::Result<Self> {
        let page_bytes = schema::page_bytes(&db)?;
        // From here on no other program is waited for: a commit is tried again, a checkpoint put off.
        db.busy_timeout(Duration::ZERO)?;
        let wal_pages = Arc::new(AtomicU64::new(schema::wal_pages(&db)?));
        let told = Arc::clone(&wal_pages);
        db.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            told.store(pages.unsigned_abs().into(), Relaxed);
            Ok(())
        }))?;
        Ok(Self {
            journal: InsertRow::new(&db)?,
            db,
            witness,
            trail: Trail::new(audit_max),
            page_bytes,
            wal_pages,
            too_many_free_pages: false,
            shrink_file: false,
            not_before: None,
        })
    }

    /// Makes a commit durable. If that fails, nothing of it is written, and the same may be tried again.
    pub(super) fn make(&mut self, commit: &mut Commit) -> Result<(), Fault> {
        let made = self.write(commit);
        if made.is_err() && !self.db.is_autocommit() {
            self.db.execute_batch("ROLLBACK")?;
        }
        made
    }

    /// Has a commit witnessed that was made.
    pub(super) fn witness(&mut self, number: u64) -> Result<(), Fault> {
        self.witness.note(number).map_err(Fault::Witness)
    }

    fn write(&mut self, commit: &mut Commit) -> Result<(), Fault> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // Rows go before they come: a restore hands a key on, and an id may come again.
        for key in &commit.deleted {
            rows::delete(&self.db, *key)?;
        }
        for row in &commit.rows {
            rows::put(&self.db, row)?;
        }
        self.trail.put(&self.db, &commit.audit)?;
        for note in &commit.forgotten_seals {
            schema::forget_seals(&self.db, note)?;
        }
        if let Some(number) = commit.delete_up_to {
            schema::delete_journal_rows(&self.db, number)?;
            self.too_many_free_pages |= self.free_bytes()? > limits::FREE_BYTES;
        }
        if self.too_many_free_pages {
            self.vacuum()?;
        }
        self.journal.put(commit.number, commit.records.sealed())?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        commit.left_untidy = self.too_many_free_pages;
        Ok(())
    }

    /// Copies the write-ahead log into the database once it is long enough. Nobody is waited for: a
    /// reader that is just using it, another program that has the database locked and a disk without
    /// space put this off for a while.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), Fault> {
        let wal_bytes = self.wal_pages.load(Relaxed) * self.page_bytes;
        let due = wal_bytes >= limits::WAL_BYTES || self.shrink_file;
        if !due || self.not_before.is_some_and(|then| Instant::now() < then) {
            return Ok(());
        }
        match self.checkpoint("RESTART") {
            Ok(true) => {
                self.wal_pages.store(0, Relaxed);
                self.shrink_file = false;
                self.not_before = None;
            }
            Ok(false) => self.not_before = Some(Instant::now() + limits::CHECKPOINT_AGAIN),
            Err(fault) if fault.is_passing() => {
                tracing::warn!(error = %fault, "checkpoint put off");
                self.not_before = Some(Instant::now() + limits::CHECKPOINT_AGAIN);
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Leaves everything in a single file.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        match self.checkpoint("TRUNCATE") {
            Err(fault) if !fault.is_passing() => Err(fault),
            Ok(_) | Err(_) => Ok(()), // the write-ahead log stays beside it
        }
    }

    fn checkpoint(&self, mode: &str) -> Result<bool, Fault> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let busy: i64 = self.db.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        Ok(busy == 0)
    }

    /// Gives some free pages back to the file system.
    fn vacuum(&mut self) -> Result<(), Fault> {
        let before = self.free_bytes()?;
        let sql = format!("PRAGMA incremental_vacuum({})", limits::VACUUM_PAGES);
        let mut vacuum = self.db.prepare_cached(&sql)?;
        let mut steps = vacuum.query([])?;
        while steps.next()?.is_some() {}
        drop(steps);
        drop(vacuum);
        let left = self.free_bytes()?;
        self.too_many_free_pages = left < before && left > limits::FREE_BYTES / 2;
        if !self.too_many_free_pages {
            self.shrink_file = true;
        }
        Ok(())
    }

    fn free_bytes(&self) -> rusqlite::Result<u64> {
        let mut count = self.db.prepare_cached("PRAGMA freelist_count")?;
        let pages: i64 = count.query_row([], |row| row.get(0))?;
        Ok(pages as u64 * self.page_bytes)
    }
}
