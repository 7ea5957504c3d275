//! Answers damage: everything that can be proved to be whole is written into a new database, the
//! sessions that may have lost something begin a new epoch, and the damaged files are kept.
//!
//! The new file takes the old one's place in steps, each of which can be the last before a crash:
//!
//! 1. `rejoin.db.salvaging` is filled. If it is there at the next start, it is made again.
//! 2. It is renamed to `rejoin.db.salvaged`: from here on the salvage counts.
//! 3. `rejoin.db` and its write-ahead log become `rejoin.db.damaged-1`, or the next free number.
//! 4. `rejoin.db.salvaged` becomes `rejoin.db`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rejoin_core::record::Status;
use rejoin_core::state::SessionState;
use rejoin_core::{Epoch, LogId};
use rusqlite::Connection;

use super::apply::Tables;
use super::audit;
use super::batch::Batch;
use super::cleanup;
use super::error::{Damage, Fault};
use super::journal::Header;
use super::limits;
use super::piece::{Ledger, Piece};
use super::private;
use super::recover::Content;
use super::rows;
use super::schema::{self, Files};
use super::take_over::Taken;
use super::witness::StoreId;
use crate::audit::{AuditQuery, AuditRecord};

/// What a salvage writes, and under which names.
#[derive(Debug)]
pub(super) struct Salvage<'a> {
    pub(super) files: &'a Files,
    pub(super) damaged: &'a Connection,
    pub(super) store: StoreId,
    /// The first running number that was never used.
    pub(super) number: u64,
    pub(super) audit_max: u64,
}

/// What a salvage did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Salvaged {
    /// The newest row of the new database.
    pub(super) newest: u64,
    /// How many sessions have begun a new epoch.
    pub(super) new_epochs: usize,
}

impl Salvage<'_> {
    /// Fills the new database and renames it to say that it is complete.
    pub(super) fn write(
        &self,
        content: Content,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Salvaged, Fault> {
        let ledger = Arc::new(Ledger::default());
        let lost = content.damage.iter().any(|damage| !matches!(damage, Damage::Session { .. }));
        let mut tables = Tables { next_key: content.newest.next_key, ..Tables::default() };
        let mut new_epochs = 0;
        for Taken { key, slots: [slot, _], .. } in content.sessions {
            let session = &mut *slot.lock();
            session.row_sum.take(); // nothing is written of it yet
            session.unnoted_from = None;
            if lost && session.state.vitals.status == Status::Active {
                begin_epoch(&mut session.state, random);
                new_epochs += 1;
            }
            tables.next_key = tables.next_key.max(key.0 + 1);
            tables.by_key.insert(key, Arc::clone(&slot));
        }

        let path = self.files.salvaging();
        remove_if_there(&path).map_err(Fault::File)?;
        private::make_file(&path).map_err(Fault::File)?;
        let db = schema::connect(&path)?;
        let newest = schema::make(&db, self.store, || -> Result<u64, Fault> {
            write_sessions(&db, &mut tables, self.number)?;
            audit::Trail::new(self.audit_max).put(&db, &self.readable_audit())?;
            schema::copy_forgotten_seals(self.damaged, &db)?;
            let whole_rows = content.rows.iter().map(|row| row.row.number());
            self.write_journal(whole_rows, &db, &tables, &ledger)
        })?;
        db.close().map_err(|(_, error)| error)?;
        fs::rename(path, self.files.salvaged()).map_err(Fault::File)?;
        sync_directory(&self.files.directory).map_err(Fault::File)?;
        Ok(Salvaged { newest, new_epochs })
    }

    /// Writes what is still needed of every whole row.
    fn write_journal(
        &self,
        whole_rows: impl Iterator<Item = u64>,
        db: &Connection,
        tables: &Tables,
        ledger: &Arc<Ledger>,
    ) -> Result<u64, Fault> {
        let mut batch = Batch::new(self.number, ledger);
        for number in whole_rows {
            cleanup::search(number, self.damaged, tables, &mut batch)?;
            if batch.records.len() >= limits::BATCH_BYTES {
                self.write_row(&mut batch, db, tables)?;
                batch = Batch::new(batch.number() + 1, ledger);
            }
        }
        self.write_row(&mut batch, db, tables)?;
        Ok(batch.number())
    }

    fn write_row(&self, batch: &mut Batch, db: &Connection, tables: &Tables) -> Result<(), Fault> {
        let header = Header {
            number: batch.number(),
            first: self.number,
            next_key: tables.next_key,
            sessions: tables.rows,
            sessions_sum: tables.rows_sum,
        };
        let body = batch.records.seal(&header);
        schema::put_journal_row(db, header.number, body)?;
        for moved in std::mem::take(&mut batch.aftermath.moves) {
            moved.take_effect();
        }
        Ok(())
    }

    /// The audit trail, as far as it can be read; oldest first.
    fn readable_audit(&self) -> Vec<AuditRecord> {
        let limit = usize::try_from(self.audit_max).unwrap_or(usize::MAX - 1);
        let query = AuditQuery { limit, ..AuditQuery::default() };
        match audit::read(self.damaged, &query) {
            Ok(page) => page.records.into_iter().rev().collect(),
            Err(error) => {
                tracing::error!("the audit trail is lost: {error}");
                Vec::new()
            }
        }
    }
}

fn write_sessions(db: &Connection, tables: &mut Tables, as_of: u64) -> rusqlite::Result<()> {
    for slot in tables.by_key.values().cloned().collect::<Vec<_>>() {
        let session = &mut *slot.lock();
        let (row, sum) = rows::encode(session, as_of);
        rows::put(db, &row)?;
        tables.put_row(session, sum);
    }
    Ok(())
}

fn begin_epoch(state: &mut SessionState<Piece>, random: &mut dyn FnMut(&mut [u8])) {
    let (mut epoch, mut log) = ([0; 6], [0; 8]);
    random(&mut epoch);
    random(&mut log);
    state.begin_epoch(Epoch::from_random(epoch), LogId::from_random(log));
}

/// Puts a complete salvage in the place of the damaged database, if there is one. No connection may
/// be open. Says where the damaged one is now.
pub(super) fn install(files: &Files) -> io::Result<Option<PathBuf>> {
    if !files.salvaged().exists() {
        return Ok(None);
    }
    let kept = files.first_free_name()?;
    for ending in ["-wal", ""] {
        let from = with_ending(&files.database, ending);
        if from.exists() {
            fs::rename(from, with_ending(&kept, ending))?;
        }
    }
    remove_if_there(&with_ending(&files.database, "-shm"))?;
    fs::rename(files.salvaged(), &files.database)?;
    sync_directory(&files.directory)?;
    Ok(Some(kept))
}

impl Files {
    fn salvaging(&self) -> PathBuf {
        with_ending(&self.database, ".salvaging")
    }

    fn salvaged(&self) -> PathBuf {
        with_ending(&self.database, ".salvaged")
    }

    /// Where a damaged database can be kept. One whose log alone was moved before a crash is joined
    /// by its database.
    fn first_free_name(&self) -> io::Result<PathBuf> {
        (1..1_000)
            .map(|number| with_ending(&self.database, &format!(".damaged-{number}")))
            .find(|path| !path.exists())
            .ok_or_else(|| io::Error::other("a thousand damaged databases are kept there already"))
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes renames durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
