//! Opening a store: from a directory to a running writer.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, panic};

use rejoin_core::identity::StoreIdentity;
use rejoin_core::limits::LogBounds;
use rejoin_core::state::Recovery;
use rusqlite::Connection;

use super::assemble::Assembly;
use super::batch::Batch;
use super::birth;
use super::cleanup::Journal;
use super::commit::Database;
use super::desk::{Desk, Papers};
use super::disk_space::DiskSpace;
use super::error::{Damage, OpenError};
use super::journal::{Header, Records};
use super::limits;
use super::lock::DirectoryLock;
use super::parallel;
use super::piece::Ledger;
use super::private;
use super::recover::{self, Content};
use super::runs::{CurrentRun, Runs};
use super::salvage::{self, Salvage};
use super::schema::{self, DatabaseFound, Files};
use super::shared::Shared;
use super::spill::Spill;
use super::take_over::{TakeOver, Taken};
use super::witness::{StoreId, Testimony, Witness};
use super::write_again::write_again;
use super::writer::Writer;
use crate::account::{Bounds, Counted};
use crate::contract::{Parked, Unavailable};
use crate::forgotten::SealNote;

/// Fills a slice with random bytes.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// How to open a store.
pub struct Options {
    /// Where its files are. Made if need be.
    pub directory: PathBuf,
    /// What one session's out log keeps.
    pub bounds: LogBounds,
    /// What all sessions together may hold. Beyond it the events of those that need theirs least give way,
    /// and what would add to the rest is refused.
    pub max_buffered_bytes: u64,
    /// The same for the sessions of one principal.
    pub max_bytes_per_principal: u64,
    /// How many audit records are kept.
    pub audit_max: usize,
    /// How much memory the bodies of events, entries and snapshots may take in all. Beyond that they
    /// are read from the file when they are needed.
    pub memory_bytes: u64,
    /// Free bytes of the disk below which nothing new is taken, but never more than a sixteenth of the
    /// disk. Zero: as long as the disk takes it.
    pub disk_reserve: u64,
    /// Whether a database file that is a copy counts as [`Damage::PutBack`].
    pub notice_copies: bool,
    /// Whether what is whole of a damaged store is opened, however much is lost. Without it only the last few commits
    /// may be missing, as they are after a power failure on a disk that does not keep its promises; a store that lost
    /// more is refused and left as it is.
    pub accept_data_loss: bool,
    /// What becomes of the sessions that the last process left behind.
    pub recovery: Recovery,
    /// Where the names of new epochs come from.
    pub random: Random,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, bounds, max_buffered_bytes, audit_max, memory_bytes, .. } = self;
        let max_bytes_per_principal = &self.max_bytes_per_principal;
        let Self { disk_reserve, notice_copies, accept_data_loss, recovery, .. } = self;
        f.debug_struct("Options")
            .field("directory", directory)
            .field("bounds", bounds)
            .field("max_buffered_bytes", max_buffered_bytes)
            .field("max_bytes_per_principal", max_bytes_per_principal)
            .field("audit_max", audit_max)
            .field("memory_bytes", memory_bytes)
            .field("disk_reserve", disk_reserve)
            .field("notice_copies", notice_copies)
            .field("accept_data_loss", accept_data_loss)
            .field("recovery", recovery)
            .finish_non_exhaustive()
    }
}

/// What was found when a store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Sessions, ended ones included.
    pub sessions: usize,
    /// Events in their out logs.
    pub events: usize,
    /// Sessions that were attached when the last process ended, and are parked now.
    pub parked: Vec<Parked>,
    /// What was durable once and is gone; nothing, if all is well.
    pub damage: Vec<Damage>,
    /// Sessions that have begun a new epoch because of that.
    pub new_epochs: usize,
    /// Where the damaged database is kept.
    pub kept: Option<PathBuf>,
}

/// What an open store consists of, and what was found.
type Opened = (Arc<Shared>, Arc<Desk>, JoinHandle<()>, OpenReport);

/// See [`super::EmbeddedStore::open`].
pub(super) fn open(mut options: Options) -> Result<Opened, OpenError> {
    let files = Files::in_directory(&options.directory);
    let of_io = |error| OpenError::of_io(error, &files.directory);
    private::make_directory(&files.directory).map_err(of_io)?;
    let lock = DirectoryLock::take(&files)?;
    files.all().try_for_each(|file| private::shut(&file)).map_err(of_io)?;
    let mut report = OpenReport::default();
    if let Some(kept) = salvage::install(&files).map_err(of_io)? {
        report.damage.push(Damage::SalvagedBefore);
        report.kept = Some(kept);
    }

    let ledger = Arc::new(Ledger::default());
    let (db, content) = loop {
        let wal = wal_bytes(&files).map_err(of_io)?;
        let read = read_or_make(&files, &mut options, &ledger);
        let (db, content, witness) = read.map_err(|error| refuse(&files, wal, error))?;
        if content.damage.is_empty() {
            break (db, content);
        }
        let answered = answer_damage(&files, &mut options, &db, content, witness, &mut report);
        if let Err(error) = answered {
            drop(db);
            return Err(refuse(&files, wal, error));
        }
        db.close().map_err(|(_, error)| of_sqlite(&files)(error))?;
        report.kept = salvage::install(&files).map_err(of_io)?;
    };
    let store = content.store.unwrap_or_default();
    let testimony = Testimony { store, number: content.newest.number };
    let witness = Witness::open(&files.mark, testimony).map_err(of_io)?;
    let Content { sessions, entries, mut rows, newest, .. } = content;
    let identity = StoreIdentity::new(store);
    let max =
        Bounds { all: options.max_buffered_bytes, of_principal: options.max_bytes_per_principal };
    let disk_space = DiskSpace::new(&files.directory, options.disk_reserve);
    birth::settle(&db, &files).map_err(of_io)?;
    let run = CurrentRun::begin(&files.runs, newest.number + 1, options.recovery.now);
    let run = run.map_err(of_io)?;
    salvage::sync_directory(&files.directory).map_err(of_io)?; // it is there before it is noted
    let (bounds, ledger_too) = (options.bounds, Arc::clone(&ledger));
    let shared = Shared::new(identity, files.clone(), run, bounds, max, disk_space, ledger_too);
    for Taken { about, counted, .. } in &sessions {
        shared.accounts.count(&about.principal, &about.id, Counted::default(), *counted);
        shared.measurements.holds(0, counted.held_bytes());
    }
    remember_seals(&db, &shared).map_err(of_sqlite(&files))?;
    let assembly = Assembly { newest, rows: &mut rows, ledger: &ledger, index: &shared.index };
    let (tables, unwritten) = assembly.put_in_place(sessions, entries, &mut report);
    schema::use_this_version(&db).map_err(of_sqlite(&files))?;
    birth::note(&db, &files).map_err(of_sqlite(&files))?;
    shared.run.replace_last().map_err(of_io)?;
    let database = Database::new(db, witness, options.audit_max as u64);
    let database = database.map_err(of_sqlite(&files))?;

    let desk = Desk::new(Papers {
        shared: Arc::clone(&shared),
        tables,
        journal: Journal::new(rows, &ledger),
        batch: Batch::new(newest.number + 1, &ledger),
        spare: Records::default(),
        under_way: false,
        put_off: VecDeque::new(),
        backlog: VecDeque::new(),
        unwritten,
        closing: Vec::new(),
        abandoned: false,
        ledger: Arc::clone(&ledger),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        desk: Arc::clone(&desk),
        database,
        lock,
        spill: Spill::new(options.memory_bytes, &ledger),
        under_way: None,
        sleepers: None,
        untidy: false,
        expected: 0,
    };
    let thread = start(writer, &shared).map_err(of_io)?;
    Ok((shared, desk, thread, report))
}

/// Reads which seals are refused. A file that an older version left may have more notes than are kept.
fn remember_seals(db: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    let mut folded = Vec::new();
    for (principal, at) in schema::forgotten_seals(db)? {
        match principal {
            Some(principal) => folded.extend(shared.accounts.forget_seals(&principal, at)),
            None => shared.accounts.forget_seals_of_others(at),
        }
    }
    folded.retain(|note| matches!(note, SealNote::OfOthers(..)));
    if folded.is_empty() {
        return Ok(());
    }
    let transaction = db.unchecked_transaction()?;
    folded.iter().try_for_each(|note| schema::forget_seals(db, note))?;
    transaction.commit()
}

fn of_sqlite(files: &Files) -> impl Fn(rusqlite::Error) -> OpenError + '_ {
    |error| OpenError::of_sqlite(&error, &files.database, &files.directory)
}

/// The database that is there with what is in it and what the witness says, or a new one.
fn read_or_make(
    files: &Files,
    options: &mut Options,
    ledger: &Arc<Ledger>,
) -> Result<(Connection, Content, Option<Testimony>), OpenError> {
    let found = schema::look(files)?;
    let of_io = |error| OpenError::of_io(error, &files.directory);
    match found {
        // What may not be durable must not be found next time.
        DatabaseFound::Nothing => make(files, &mut options.random)
            .inspect_err(|_| drop(fs::remove_file(&files.database)))?,
        DatabaseFound::Database => write_again(&files.wal).map_err(of_io)?,
    }
    let db = schema::connect(&files.database).map_err(of_sqlite(files))?;
    schema::use_wal(&db).map_err(of_sqlite(files))?;
    let witness = Witness::read(&files.mark);
    let witness = witness.map_err(|error| OpenError::of_io(error, &files.directory))?;
    let runs = Runs::read(&files.runs);
    let take_over = TakeOver { bounds: &options.bounds, recovery: &options.recovery, runs: &runs };
    // Both take a while, one of the disk, the other of the processors.
    let (grown, content) = parallel::both(
        || grow_wal(files),
        || recover::read(&db, recover::readers_of(&files.database), witness, take_over, ledger),
    );
    grown.map_err(|error| OpenError::of_io(error, &files.directory))?;
    let mut content = content.map_err(of_sqlite(files))?;
    if content.damage.is_empty() && birth::is_backup(&db).map_err(of_sqlite(files))? {
        content.damage.push(Damage::PutBack);
    } else if options.notice_copies && content.damage.is_empty() {
        content.damage.extend(birth::compare(&db, files).map_err(of_sqlite(files))?);
    }
    Ok((db, content, witness))
}

fn new_store_id(random: &mut dyn FnMut(&mut [u8])) -> StoreId {
    let mut store = StoreId::default();
    random(&mut store);
    store
}

/// Makes a new database with an empty first row, and before it the witness: a database without one
/// would look as if it had lost it.
fn make(files: &Files, random: &mut dyn FnMut(&mut [u8])) -> Result<(), OpenError> {
    let store = new_store_id(random);
    let of_io = |error| OpenError::of_io(error, &files.directory);
    Witness::open(&files.mark, Testimony { store, number: 0 }).map_err(of_io)?;
    private::make_file(&files.database).map_err(of_io)?;
    let db = schema::connect(&files.database).map_err(of_sqlite(files))?;
    let header = Header { number: 1, first: 1, ..Header::default() };
    let first_row = || schema::put_journal_row(&db, 1, Records::default().seal(&header));
    schema::make(&db, store, first_row).map_err(of_sqlite(files))?;
    db.close().map_err(|(_, error)| of_sqlite(files)(error))?;
    salvage::sync_directory(&files.directory).map_err(of_io)
}

/// Says what is wrong and writes what is whole into a new database.
fn answer_damage(
    files: &Files,
    options: &mut Options,
    db: &Connection,
    content: Content,
    witness: Option<Testimony>,
    report: &mut OpenReport,
) -> Result<(), OpenError> {
    for damage in &content.damage {
        let directory = files.directory.display();
        if *damage == Damage::PutBack {
            tracing::warn!(%directory, "{damage}"); // somebody meant to
        } else {
            tracing::error!(%directory, "{damage}");
        }
    }
    if report.new_epochs > 0 || report.damage.len() > 1 {
        let what = format!("what was salvaged of it is damaged again: {:?}", content.damage);
        return Err(OpenError::Unusable { file: files.database.clone(), what });
    }
    if !options.accept_data_loss && !content.damage.iter().all(Damage::is_small) {
        return Err(OpenError::DataLoss {
            file: files.database.clone(),
            sessions: content.sessions.len(),
            events: content.sessions.iter().map(|taken| taken.events).sum(),
            damage: content.damage,
        });
    }
    report.damage.clone_from(&content.damage);
    // Those will not be found attached again.
    report.parked = content.sessions.iter().filter_map(Taken::parked).collect();
    let store = content.store.or(witness.map(|witness| witness.store));
    let store = store.unwrap_or_else(|| new_store_id(&mut options.random));
    let last = content.newest.number.max(witness.map_or(0, |witness| witness.number));
    let audit_max = options.audit_max as u64;
    let salvage = Salvage { files, damaged: db, store, number: last + 1, audit_max };
    let salvaged = salvage
        .write(content, &mut options.random)
        .map_err(|fault| OpenError::of_fault(fault, &files.database, &files.directory))?;
    report.new_epochs = salvaged.new_epochs;
    let testimony = Testimony { store, number: salvaged.newest };
    Witness::open(&files.mark, testimony)
        .map(drop)
        .map_err(|error| OpenError::of_io(error, &files.directory))
}

/// Fills the write-ahead log up with zeros behind all that is in it, which SQLite takes for its end, so
/// that commits overwrite it in place: a flush of a file that does not grow is half as dear. It is done
/// in small steps: the kernel caches what is written at once as one piece (a large folio), and goes
/// through all blocks of a piece at each write of a page into it, which makes these twice as dear.
fn grow_wal(files: &Files) -> io::Result<()> {
    let wanted = limits::WAL_FILE_BYTES;
    let mut wal = private::options().append(true).open(&files.wal)?;
    let mut length = wal.metadata()?.len();
    let zeros = [0; 64 * 1024];
    while length < wanted {
        let step = zeros.len().min((wanted - length) as usize);
        wal.write_all(&zeros[..step])?;
        length += step as u64;
    }
    wal.sync_all()
}

/// How long the write-ahead log is, if there is one.
fn wal_bytes(files: &Files) -> io::Result<Option<u64>> {
    match fs::metadata(&files.wal) {
        Ok(about) => Ok(Some(about.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes back that the write-ahead log was grown, and says why the store is not opened: whoever looks at it next, or
/// makes a copy before accepting a loss, finds the files that were there.
fn refuse(files: &Files, wal: Option<u64>, error: OpenError) -> OpenError {
    let shrunk = match wal {
        Some(bytes) => {
            File::options().write(true).open(&files.wal).and_then(|file| file.set_len(bytes))
        }
        None => match fs::remove_file(&files.wal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
    };
    match shrunk {
        Ok(()) => error,
        Err(error) => OpenError::of_io(error, &files.directory),
    }
}

fn start(writer: Writer, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let (shared, desk) = (Arc::clone(shared), Arc::clone(&writer.desk));
    let run = move || {
        // A panic would be a fault of ours. It must not leave callers waiting for ever.
        let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| writer.run()));
        if ended.is_err() {
            let why = "its writer has panicked; nothing that was acknowledged is lost";
            shared.fail(&Unavailable(why.into()));
        }
        desk.lock().abandon();
    };
    thread::Builder::new().name("rejoin-store".into()).spawn(run)
}
