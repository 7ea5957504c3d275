//! When the database file was made, noted in the database itself: a file for which that is not so is a copy.
//!
//! A backup of the whole directory that was put back, database and witness together, looks like any other store: it is
//! whole, and only older than what clients have seen. The numbers of events that came after the copy was made are given
//! out again, and a client of the time before would take new events for those that it has. So the sessions of a copy
//! begin a new epoch. No tool can set the time at which a file was made; a file system that does not know it is not
//! asked. A file that is overwritten in place keeps it, and so does one that is renamed or moved within its file system.
//!
//! So the database also has a note of when the file of the last run was made, which each run makes anew. A backup that is
//! copied over the files in place brings a note of an earlier run's file, while the file there is that of a later one. What
//! is left is a copy that was made since the store was last opened: its note is still right.

use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rusqlite::{Connection, OptionalExtension as _};

use super::error::{Damage, is_corruption};
use super::runs::file_of_next;
use super::schema::Files;

/// Under what name it is noted in the table `meta`.
const BORN: &str = "born";

/// Under what name it is noted when the file of the last run was made.
const RUN: &str = "run";

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

/// Whether the files are others than those that the notes in the database are of.
pub(super) fn compare(db: &Connection, files: &Files) -> rusqlite::Result<Option<Damage>> {
    let read = |name| match noted(db, name) {
        Err(error) if is_corruption(&error) => Ok(None),
        noted => noted,
    };
    let of_database = birth_of(&files.database).into_iter().collect();
    // The one beside it is that of a run that was cut short when it began.
    let of_runs = [files.runs.clone(), file_of_next(&files.runs)];
    let of_runs: Vec<Birth> = of_runs.iter().filter_map(|file| birth_of(file)).collect();
    let is_another = |noted: Option<Birth>, found: Vec<Birth>| {
        noted.is_some_and(|noted| !found.is_empty() && !found.contains(&noted))
    };
    let another = is_another(read(BORN)?, of_database) || is_another(read(RUN)?, of_runs);
    Ok(another.then_some(Damage::PutBack))
}

/// Puts the file of a run that was cut short when it began in its place if the note is of that, and away if it is not:
/// from then on the file in its place is the one that the note is of.
pub(super) fn settle(db: &Connection, files: &Files) -> io::Result<()> {
    let next = file_of_next(&files.runs);
    let Some(born) = birth_of(&next) else { return remove_if_any(&next) };
    match noted(db, RUN).ok().flatten() == Some(born) {
        true => fs::rename(&next, &files.runs),
        false => remove_if_any(&next),
    }
}

fn remove_if_any(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Notes when the database file was made, and the file of a run that begins, which is not in its place yet.
pub(super) fn note(db: &Connection, files: &Files) -> rusqlite::Result<()> {
    put(db, BORN, &files.database)?;
    put(db, RUN, &file_of_next(&files.runs))
}

fn put(db: &Connection, name: &str, file: &Path) -> rusqlite::Result<()> {
    let known = noted(db, name).ok().flatten();
    let Some(born) = birth_of(file).filter(|born| known != Some(*born)) else { return Ok(()) };
    let put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
    db.execute(put, (name, &born[..])).map(drop)
}

fn noted(db: &Connection, name: &str) -> rusqlite::Result<Option<Birth>> {
    let select = "SELECT value FROM meta WHERE name = ?1";
    db.query_row(select, [name], |row| row.get(0)).optional()
}

/// Nanoseconds since the epoch of Unix.
type Birth = [u8; 16];

fn birth_of(file: &Path) -> Option<Birth> {
    let born = fs::metadata(file).ok()?.created().ok()?;
    Some(born.duration_since(UNIX_EPOCH).ok()?.as_nanos().to_be_bytes())
}
