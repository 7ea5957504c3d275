//! Looks through a store without changing it: every checksum, every running number, and SQLite's own check of its file.
//!
//! A server may have the directory open meanwhile. All that is looked at is of one moment, as it is read in one
//! transaction; as long as that lasts, the server's write-ahead log can't begin anew and grows instead, which makes
//! nobody wait.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::limits::LogBounds;
use rejoin_core::state::Recovery;
use rusqlite::Connection;

use super::birth;
use super::error::{Damage, OpenError, in_one_line, is_corruption};
use super::limits;
use super::piece::Ledger;
use super::recover::{self, Content};
use super::runs::Runs;
use super::scan::ScanWith;
use super::schema::{self, DatabaseFound, Files};
use super::take_over::TakeOver;
use super::witness::Witness;

/// What was found in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Sessions, ended ones included.
    pub sessions: usize,
    /// Sessions that go on.
    pub active: usize,
    /// Events in their out logs.
    pub events: usize,
    /// The number of the newest commit.
    pub newest_commit: u64,
    /// Whether it is a backup, or another copy: a server that opens it begins new epochs.
    pub is_copy: bool,
    /// What was durable once and is gone; nothing, if all is well.
    pub damage: Vec<Damage>,
}

/// Looks through the store in a directory. Fails if there is none, or none that can be read at all.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), rejoin_store::embedded::OpenError> {
/// use rejoin_store::embedded::{OpenError, verify};
///
/// let nothing = verify("no/such/directory".as_ref());
/// assert!(matches!(nothing, Err(OpenError::Nothing { .. })));
/// # Ok(())
/// # }
/// ```
pub fn verify(directory: &Path) -> Result<Verification, OpenError> {
    let files = Files::in_directory(directory);
    let of_sqlite =
        |error: rusqlite::Error| OpenError::of_sqlite(&error, &files.database, &files.directory);
    if schema::look(&files)? == DatabaseFound::Nothing {
        return Err(OpenError::Nothing { directory: directory.to_path_buf() });
    }
    // Before the database: a commit is witnessed after it was made, so what is read later has it.
    let witness = Witness::read(&files.mark).map_err(|error| OpenError::of_io(error, directory))?;
    let db = schema::connect_reader(&files.database).map_err(of_sqlite)?;
    db.execute_batch("BEGIN").map_err(of_sqlite)?;
    let recovery = Recovery {
        now: Timestamp::from_millis(0), // so that nothing is too old
        keep_for: Duration::ZERO,
        longest: Duration::ZERO,
    };
    let (bounds, runs) = (UNBOUNDED, Runs::default());
    let take_over = TakeOver { bounds: &bounds, recovery: &recovery, runs: &runs };
    let ledger = Arc::new(Ledger::default());
    let content = recover::read(&db, ScanWith::One(&db), witness, take_over, &ledger);
    let Content { sessions, newest, mut damage, .. } = content.map_err(of_sqlite)?;
    damage.extend(check_file(&db).map_err(of_sqlite)?);
    let is_copy = birth::is_backup(&db).map_err(of_sqlite)?
        || birth::compare(&db, &files).map_err(of_sqlite)?.is_some();
    Ok(Verification {
        sessions: sessions.len(),
        active: sessions.iter().filter(|taken| taken.is_active).count(),
        events: sessions.iter().map(|taken| taken.events).sum(),
        newest_commit: newest.number,
        is_copy,
        damage,
    })
}

/// What is held is counted, whatever the settings of a server would make of it.
const UNBOUNDED: LogBounds = LogBounds {
    events: usize::MAX,
    bytes: usize::MAX,
    retention: Duration::MAX,
    result_retention: Duration::MAX,
};

/// What SQLite finds wrong with its file: indexes that do not fit their tables, pages that belong to nothing.
fn check_file(db: &Connection) -> rusqlite::Result<Vec<Damage>> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let mut check = db.prepare(&format!("PRAGMA integrity_check({})", limits::FAULTS_TOLD))?;
        let lines = check.query_map([], |row| row.get::<_, String>(0))?;
        lines.collect()
    };
    let lines = match read() {
        Err(error) if is_corruption(&error) => vec![in_one_line(&error)],
        lines => lines?,
    };
    let wrong = lines.iter().flat_map(|text| text.lines()).filter(|line| *line != "ok");
    Ok(wrong.map(|line| Damage::File { what: line.to_owned() }).collect())
}
