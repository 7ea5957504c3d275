//! When the database file was made, noted in the database itself: a file for which that is not so is a copy.
//!
//! A backup of the whole directory that was put back, database and witness together, looks like any other store: it is
//! whole, and only older than what clients have seen. The numbers of events that came after the copy was made are given
//! out again, and a client of the time before would take new events for those that it has. So the sessions of a copy
//! begin a new epoch. No tool can set the time at which a file was made; a file system that does not know it is not
//! asked. A file that is overwritten in place keeps it, and so does one that is renamed or moved within its file system.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rusqlite::{Connection, OptionalExtension as _};

use super::error::{Damage, is_corruption};

/// Under what name it is noted in the table `meta`.
const BORN: &str = "born";

/// Under what name a backup that Rejoin made says so, also where the file system does not know when files were made.
const BACKUP: &str = "backup";

/// Whether the file says that it is a backup.
pub(super) fn is_backup(db: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT 1 FROM meta WHERE name = ?1";
    match db.query_row(select, [BACKUP], |_| Ok(())).optional() {
        Err(error) if is_corruption(&error) => Ok(false),
        found => Ok(found?.is_some()),
    }
}

/// Notes that the file is a backup. Opening it writes another database, which does not say so.
pub(super) fn note_backup(db: &Connection) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, x'01')";
    db.execute(put, [BACKUP]).map(drop)
}

/// Whether the file is another than the one that the note in it is of.
pub(super) fn compare(db: &Connection, file: &Path) -> rusqlite::Result<Option<Damage>> {
    let noted = match noted(db) {
        Err(error) if is_corruption(&error) => None,
        noted => noted?,
    };
    let another = noted.zip(birth_of(file)).is_some_and(|(noted, born)| noted != born);
    Ok(another.then_some(Damage::PutBack))
}

/// Notes when the file was made.
pub(super) fn note(db: &Connection, file: &Path) -> rusqlite::Result<()> {
    let Some(born) = birth_of(file).filter(|born| noted(db).ok().flatten() != Some(*born)) else {
        return Ok(());
    };
    let put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
    db.execute(put, (BORN, &born[..])).map(drop)
}

fn noted(db: &Connection) -> rusqlite::Result<Option<Birth>> {
    let select = "SELECT value FROM meta WHERE name = ?1";
    db.query_row(select, [BORN], |row| row.get(0)).optional()
}

/// Nanoseconds since the epoch of Unix.
type Birth = [u8; 16];

fn birth_of(file: &Path) -> Option<Birth> {
    let born = fs::metadata(file).ok()?.created().ok()?;
    Some(born.duration_since(UNIX_EPOCH).ok()?.as_nanos().to_be_bytes())
}
