//! Copies a store to another directory while a server uses it.
//!
//! The pages of the database are copied in one transaction, so all of them are of one moment, and the server goes on
//! writing: as long as the copy takes, its write-ahead log can't begin anew and grows instead. The copy is flushed as it
//! grows: if it were flushed at the end, the server's own flushes would wait for all of it.
//!
//! The mark of the copy is of the commit that the copy ends with, not of the one that the server has come to. The copy
//! says that it is one, and so whoever opens it begins new epochs: the numbers after it are given out a second time.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error::{Fault, OpenError};
use super::schema::{self, DatabaseFound, Files};
use super::witness::{StoreId, Testimony, Witness};
use super::{birth, limits, private, recover, salvage};

/// Copies the store in `from` into the directory `to`, which is made if need be and must not hold a store, with the
/// other files beside it, such as signing keys. Everything is for the owner alone, and durable when this returns.
pub fn backup(from: &Path, to: &Path) -> Result<(), OpenError> {
    let (source, copy) = (Files::in_directory(from), Files::in_directory(to));
    if schema::look(&source)? == DatabaseFound::Nothing {
        return Err(OpenError::Nothing { directory: from.to_path_buf() });
    }
    let of_io = |error| OpenError::of_io(error, to);
    private::make_directory(to).map_err(of_io)?;
    if copy.all().any(|file| file.exists()) {
        return Err(of_io(io::Error::other("there is a store in it already")));
    }
    let of_source = |error| OpenError::of_sqlite(&error, &source.database, from);
    let of_copy = |error| OpenError::of_sqlite(&error, &copy.database, to);

    let db = schema::connect_reader(&source.database).map_err(of_source)?;
    db.execute_batch("BEGIN").map_err(of_source)?;
    let testimony = testimony_of(&db).map_err(of_source)?;
    private::make_file(&copy.database).map_err(of_io)?;
    let into = connect_copy(&copy.database).map_err(of_copy)?;
    copy_pages(&db, into, &copy.database)
        .map_err(|stopped| OpenError::of_fault(stopped, &copy.database, to))?;
    drop(db); // the server's log may begin anew

    Witness::open(&copy.mark, testimony).map_err(of_io)?;
    copy_other_files(&source, to).map_err(of_io)?;
    salvage::sync_directory(to).map_err(of_io)
}

/// Which store it is and how far it has come. Of one too damaged to say, the copy says nothing else than it does.
fn testimony_of(db: &Connection) -> rusqlite::Result<Testimony> {
    let store: StoreId = schema::store_id(db)?;
    let number = recover::newest_header(db)?.map_or(0, |newest| newest.number);
    Ok(Testimony { store, number })
}

/// A connection to the file that becomes the copy. It is flushed here and has no journal: a copy that is cut short is
/// made again.
fn connect_copy(file: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.pragma_update(None, "synchronous", "OFF")?;
    db.pragma_update(None, "journal_mode", "OFF")?;
    Ok(db)
}

fn copy_pages(db: &Connection, mut into: Connection, path: &Path) -> Result<(), Fault> {
    let file = File::open(path).map_err(Fault::File)?;
    let copying = Backup::new(db, &mut into)?;
    loop {
        let step = copying.step(limits::BACKUP_PAGES)?;
        file.sync_data().map_err(Fault::File)?;
        if step == StepResult::Done {
            break;
        }
        if step != StepResult::More {
            return Err(Fault::File(io::Error::other(format!("the copy is {step:?}"))));
        }
    }
    drop(copying);
    // A single file, that can be looked into where nothing can be written.
    into.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    birth::note_backup(&into)?;
    into.close().map_err(|(_, error)| error)?;
    file.sync_all().map_err(Fault::File)
}

/// Copies what else is in the directory. A server may replace these files or add to them meanwhile: keys are replaced
/// as a whole, and lines that are cut short are left out by those who read them.
fn copy_other_files(source: &Files, to: &Path) -> io::Result<()> {
    let own: Vec<_> = source.all().filter(|file| *file != source.runs).collect();
    for found in fs::read_dir(&source.directory)? {
        let found = found?;
        let name = found.file_name();
        let is_database = name.to_string_lossy().starts_with("rejoin.db"); // and what was kept of damaged ones
        if is_database || own.contains(&found.path()) || !found.metadata()?.is_file() {
            continue;
        }
        let mut from = match File::open(found.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let mut into = private::options().write(true).truncate(true).open(to.join(name))?;
        io::copy(&mut from, &mut into)?;
        into.sync_all()?;
    }
    Ok(())
}
