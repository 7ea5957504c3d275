//! The database file: its tables, its settings, and how it is known again.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rejoin_core::{Principal, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::OpenError;
use super::witness::StoreId;
use super::{limits, wal_vfs};
use crate::forgotten::SealNote;

/// Tells a database of Rejoin from any other: "RJIN".
const APPLICATION_ID: u32 = 0x524a_494e;

/// The version of the format. It changes with the tables, the rows' records or the journal's. Version 2
/// added the journal's records `Forgotten` and `Trimmed`; files of version 1 are read as they are.
pub(super) const VERSION: u32 = 2;

/// The columns beside `record`, and the table `audit`, are for people who open the file.
const TABLES: &str = "
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        record BLOB NOT NULL
    ) STRICT;
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        session_id TEXT,
        principal TEXT NOT NULL,
        address TEXT,
        transport TEXT NOT NULL,
        action TEXT NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    CREATE INDEX audit_by_session ON audit (session_id, id) WHERE session_id IS NOT NULL;
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The files of a store.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) database: PathBuf,
    pub(super) wal: PathBuf,
    pub(super) mark: PathBuf,
    pub(super) runs: PathBuf,
    pub(super) lock: PathBuf,
}

impl Files {
    /// The files in a directory.
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            database: directory.join("rejoin.db"),
            wal: directory.join("rejoin.db-wal"),
            mark: directory.join("commits.mark"),
            runs: directory.join("runs.mark"),
            lock: directory.join("lock"),
        }
    }

    /// All of them, and the one that SQLite's connections share.
    pub(super) fn all(&self) -> impl Iterator<Item = PathBuf> {
        let Self { directory, database, wal, mark, runs, lock } = self;
        let shared = directory.join("rejoin.db-shm");
        let next_run = super::runs::file_of_next(runs);
        let files = [database, wal, &shared, mark, runs, &next_run, lock].map(PathBuf::clone);
        files.into_iter()
    }
}

/// What is found where the database should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseFound {
    /// Nothing, or a file in which nothing was ever committed.
    Nothing,
    /// A database of ours.
    Database,
}

/// Looks at the file without opening it as a database: opening a foreign one could change it.
pub(super) fn look(files: &Files) -> Result<DatabaseFound, OpenError> {
    let mut front = Vec::new();
    match File::open(&files.database) {
        Ok(file) => file.take(100).read_to_end(&mut front),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DatabaseFound::Nothing),
        Err(error) => Err(error),
    }
    .map_err(|error| OpenError::of_io(error, &files.directory))?;
    if front.is_empty() || files.database.with_extension("db-journal").exists() {
        return Ok(DatabaseFound::Nothing); // the making of it was cut short and is rolled back by SQLite
    }
    let file = files.database.clone();
    let number_at = |at: usize| {
        let bytes = front.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes)
    };
    if !front.starts_with(b"SQLite format 3\0") || number_at(68) != Some(APPLICATION_ID) {
        return Err(OpenError::Foreign { file });
    }
    match number_at(60) {
        Some(1..=VERSION) => Ok(DatabaseFound::Database),
        Some(0) | None => Err(OpenError::Foreign { file }),
        Some(found) => Err(OpenError::Newer { file, found, supported: VERSION }),
    }
}

/// Opens a connection for the writer.
pub(super) fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    wal_vfs::register()?;
    let db = Connection::open_with_flags_and_vfs(file, flags, wal_vfs::NAME)?;
    // Files that turn out to be damaged must stay as they were found.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.pragma_update(None, "cache_size", -limits::CACHE_KIB)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.set_prepared_statement_cache_capacity(32);
    Ok(db)
}

/// Opens a connection for a reader.
pub(super) fn connect_reader(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.pragma_update(None, "query_only", true)?;
    db.pragma_update(None, "cache_size", -1024)?;
    Ok(db)
}

/// Makes a database with what `fill` puts in, in one transaction of the rollback journal: after a
/// crash there is either a whole database or an empty file.
pub(super) fn make<T, E: From<rusqlite::Error>>(
    db: &Connection,
    store: StoreId,
    fill: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    db.pragma_update(None, "page_size", limits::PAGE_BYTES)?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    db.execute_batch("BEGIN EXCLUSIVE")?;
    db.execute_batch(TABLES)?;
    db.execute("INSERT INTO meta (name, value) VALUES ('store', ?1)", [&store[..]])?;
    db.pragma_update(None, "application_id", APPLICATION_ID)?;
    db.pragma_update(None, "user_version", VERSION)?;
    let filled = fill()?;
    db.execute_batch("COMMIT")?;
    Ok(filled)
}

/// Adds a row to the journal.
pub(super) fn put_journal_row(db: &Connection, number: u64, body: &[u8]) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO journal (id, body) VALUES (?1, ?2)")?;
    insert.execute((number as i64, body))?;
    Ok(())
}

/// Deletes the rows of the journal up to this one.
pub(super) fn delete_journal_rows(db: &Connection, up_to: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM journal WHERE id <= ?1")?.execute([up_to as i64])?;
    Ok(())
}

/// Switches to the write-ahead log, for good.
pub(super) fn use_wal(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        let mode: String = row.get(0)?;
        debug_assert_eq!(mode, "wal");
        Ok(())
    })
}

/// Says that the file has records of this version, so that no older Rejoin takes them for damage.
pub(super) fn use_this_version(db: &Connection) -> rusqlite::Result<()> {
    let found: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found == VERSION { Ok(()) } else { db.pragma_update(None, "user_version", VERSION) }
}

/// How many bytes a page of the database has.
pub(super) fn page_bytes(db: &Connection) -> rusqlite::Result<u64> {
    let bytes: i64 = db.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(bytes.max(1) as u64)
}

/// How many pages the write-ahead log holds.
pub(super) fn wal_pages(db: &Connection) -> rusqlite::Result<u64> {
    let pages: i64 = db.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1))?;
    Ok(pages.max(0) as u64)
}

/// Which store the database is.
pub(super) fn store_id(db: &Connection) -> rusqlite::Result<StoreId> {
    db.query_row("SELECT value FROM meta WHERE name = 'store'", [], |row| row.get(0))
}

/// The name of the note of all principals that have none of their own, in the table `meta`.
const SEALS_OF_OTHERS: &str = "forgotten seals";

/// What the names of the other notes begin with, before a principal.
const SEALS_OF: &str = "forgotten seals of ";

/// Notes which seals are refused if their session is not known.
pub(super) fn forget_seals(db: &Connection, note: &SealNote) -> rusqlite::Result<()> {
    match note {
        SealNote::Of(principal, at) => put_note(db, Some(principal), *at),
        SealNote::OfOthers(principal, at) => {
            put_note(db, None, *at)?;
            let mut delete = db.prepare_cached("DELETE FROM meta WHERE name = ?1")?;
            delete.execute([name_of_note(Some(principal))])?;
            Ok(())
        }
    }
}

/// What was noted so: of each principal, or of all others.
pub(super) fn forgotten_seals(
    db: &Connection,
) -> rusqlite::Result<Vec<(Option<Principal>, Timestamp)>> {
    let mut select =
        db.prepare("SELECT name, value FROM meta WHERE name = ?1 OR name LIKE ?2 || '%'")?;
    let rows = select.query_map([SEALS_OF_OTHERS, SEALS_OF], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 8]>(1)?))
    })?;
    let read = |(name, at): (String, [u8; 8])| {
        let at = Timestamp::from_millis(u64::from_be_bytes(at));
        (name.strip_prefix(SEALS_OF).map(Principal::new), at)
    };
    rows.map(|row| row.map(read)).collect()
}

/// Takes the notes of a damaged database over, as far as they can be read.
pub(super) fn copy_forgotten_seals(from: &Connection, to: &Connection) -> rusqlite::Result<()> {
    let notes = match forgotten_seals(from) {
        Ok(notes) => notes,
        Err(error) => {
            tracing::error!("which seals are refused is lost: {error}");
            return Ok(());
        }
    };
    notes.iter().try_for_each(|(principal, at)| put_note(to, principal.as_ref(), *at))
}

fn put_note(db: &Connection, of: Option<&Principal>, at: Timestamp) -> rusqlite::Result<()> {
    let mut put = db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    put.execute((name_of_note(of), &at.as_millis().to_be_bytes()[..]))?;
    Ok(())
}

fn name_of_note(principal: Option<&Principal>) -> String {
    principal.map_or_else(|| SEALS_OF_OTHERS.to_owned(), |of| format!("{SEALS_OF}{of}"))
}
