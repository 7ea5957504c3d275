//! A file system for SQLite that is the system's own, but for two things: what SQLite writes to the
//! write-ahead log is gathered, and written in one piece when it is to be flushed; and on Linux that flush is
//! `fdatasync`.
//!
//! SQLite writes every page of a commit with two calls, 24 bytes and the page. For a large commit those
//! calls took more of the writer's time than everything else it does; gathered, a commit is one write
//! and one flush.
//!
//! Nobody can miss what is gathered: other connections look at a page of the log only when its commit is
//! in the index that they share, and with `synchronous = FULL` SQLite flushes before it says so. This
//! connection's own reads, and whatever else asks about the file, write out what is gathered first.
//!
//! SQLite flushes with `fsync` unless it is compiled with `HAVE_FDATASYNC`, which a crate cannot ask of its
//! dependency. The flush is therefore made here, and is the same in every program that the crate is built into.
#![expect(unsafe_code, reason = "SQLite takes a file system as a table of C functions")]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs::File;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;

use super::limits;

/// The name under which connections ask for it.
pub(super) const NAME: &CStr = c"rejoin-gathering";

/// The system's own, under its name on Unix.
const SYSTEM: &CStr = c"unix";

/// Makes it known to SQLite, once for the process.
pub(super) fn register() -> rusqlite::Result<()> {
    static REGISTERED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the vfs and its name live as long as the process. Its functions are the system's, which
    // take any vfs, but for `open`.
    let code = *REGISTERED.get_or_init(|| unsafe {
        let system = ffi::sqlite3_vfs_find(SYSTEM.as_ptr());
        if system.is_null() {
            return ffi::SQLITE_ERROR;
        }
        let mut vfs = *system;
        vfs.zName = NAME.as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.szOsFile += size_of::<Log>() as c_int;
        vfs.xOpen = Some(open);
        ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0)
    });
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// An open write-ahead log, as SQLite holds it. The system's file follows it in memory.
#[repr(C)]
struct Log {
    /// What SQLite knows of a file. It must come first.
    file: ffi::sqlite3_file,
    gathered: *mut WalWrite,
}

/// What is to be written, and where.
struct WalWrite {
    bytes: Vec<u8>,
    at: i64,
    /// The log once more, to flush it: SQLite does not give its own descriptor away. Closing a second descriptor
    /// of the database would drop SQLite's locks; the log is never locked.
    file: File,
}

impl WalWrite {
    fn new(file: File) -> Self {
        Self { bytes: Vec::new(), at: 0, file }
    }

    fn continues(&self, at: i64, bytes: usize) -> bool {
        self.at + self.bytes.len() as i64 == at
            && self.bytes.len() + bytes <= limits::WAL_WRITE_BYTES
    }
}

/// What can be done with a write-ahead log. It is never locked, mapped or shared: that is the database.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The system's file behind a log.
///
/// SAFETY: `log` must have been opened by [`open`].
unsafe fn behind(log: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: `szOsFile` has room for both.
    unsafe { log.byte_add(size_of::<Log>()) }
}

/// Calls a method of the system's file behind a log.
macro_rules! system {
    ($log:expr, $method:ident $(, $argument:expr)*) => {{
        let file = behind($log);
        match (*(*file).pMethods).$method {
            Some(method) => method(file $(, $argument)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// Writes out what is gathered. What could not be written is forgotten: its commit has failed.
///
/// SAFETY: `log` must have been opened by [`open`].
unsafe fn write_out(log: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite uses a file from one thread at a time, so this is the only reference.
    unsafe {
        let gathered = &mut *(*log.cast::<Log>()).gathered;
        if gathered.bytes.is_empty() {
            return ffi::SQLITE_OK;
        }
        let (bytes, length) = (gathered.bytes.as_ptr().cast(), gathered.bytes.len() as c_int);
        let code = system!(log, xWrite, bytes, length, gathered.at);
        gathered.bytes.clear();
        code
    }
}

/// The same, and then calls a method of the system's file.
macro_rules! write_out_and {
    ($log:expr, $method:ident $(, $argument:expr)*) => {
        // SAFETY: SQLite calls this with a file that `open` has opened, and with arguments as the
        // system's method wants them.
        unsafe {
            match write_out($log) {
                ffi::SQLITE_OK => system!($log, $method $(, $argument)*),
                code => code,
            }
        }
    };
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives `szOsFile` bytes for the file. Files other than the log are the system's
    // from the beginning, and need less.
    unsafe {
        let system = ffi::sqlite3_vfs_find(SYSTEM.as_ptr());
        let Some(open) = system.as_ref().and_then(|system| system.xOpen) else {
            return ffi::SQLITE_ERROR;
        };
        if flags & ffi::SQLITE_OPEN_WAL == 0 {
            return open(system, name, file, flags, out_flags);
        }
        let code = open(system, name, behind(file), flags, out_flags);
        if code != ffi::SQLITE_OK {
            (*file).pMethods = ptr::null(); // there is nothing to close
            return code;
        }
        let second = match open_again(file, name) {
            Ok(second) => second,
            Err(code) => {
                system!(file, xClose);
                (*file).pMethods = ptr::null();
                return code;
            }
        };
        let gathered = Box::into_raw(Box::new(WalWrite::new(second)));
        let known = ffi::sqlite3_file { pMethods: &raw const METHODS };
        file.cast::<Log>().write(Log { file: known, gathered });
        ffi::SQLITE_OK
    }
}

/// Opens a log a second time, for [`flush`], which flushes no directory. The system's own first flush does
/// that, so it is made here: a log that is new keeps its name.
///
/// SAFETY: the system's file behind `log` must be open, under `name`.
unsafe fn open_again(
    log: *mut ffi::sqlite3_file,
    name: ffi::sqlite3_filename,
) -> Result<File, c_int> {
    // SAFETY: as said above; SQLite's names of files end with a zero.
    unsafe {
        match system!(log, xSync, ffi::SQLITE_SYNC_NORMAL) {
            ffi::SQLITE_OK => {}
            code => return Err(code),
        }
        let path = OsStr::from_bytes(CStr::from_ptr(name).to_bytes());
        File::open(path).map_err(|_| ffi::SQLITE_CANTOPEN)
    }
}

unsafe extern "C" fn close(log: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: it was opened here, and SQLite closes it once.
    unsafe {
        let written = write_out(log);
        drop(Box::from_raw((*log.cast::<Log>()).gathered));
        match system!(log, xClose) {
            ffi::SQLITE_OK => written,
            code => code,
        }
    }
}

unsafe extern "C" fn write(
    log: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    // SAFETY: it was opened here; `bytes` has `length` bytes.
    unsafe {
        let more = std::slice::from_raw_parts(bytes.cast::<u8>(), length.unsigned_abs() as usize);
        if !(*(*log.cast::<Log>()).gathered).continues(at, more.len()) {
            let code = write_out(log);
            if code != ffi::SQLITE_OK {
                return code;
            }
        }
        let gathered = &mut *(*log.cast::<Log>()).gathered;
        if gathered.bytes.is_empty() {
            gathered.at = at;
        }
        gathered.bytes.extend_from_slice(more);
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn read(
    log: *mut ffi::sqlite3_file,
    to: *mut c_void,
    length: c_int,
    at: i64,
) -> c_int {
    write_out_and!(log, xRead, to, length, at)
}

unsafe extern "C" fn truncate(log: *mut ffi::sqlite3_file, size: i64) -> c_int {
    write_out_and!(log, xTruncate, size)
}

unsafe extern "C" fn sync(log: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite calls this with a file that `open` has opened.
    unsafe {
        match write_out(log) {
            ffi::SQLITE_OK => flush(log, flags),
            code => code,
        }
    }
}

/// Flushes the log's content, and its size if that has changed, but no times.
///
/// SAFETY: `log` must have been opened by [`open`].
#[cfg(target_os = "linux")]
unsafe fn flush(log: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: as in `write_out`.
    let file = unsafe { &(*(*log.cast::<Log>()).gathered).file };
    match file.sync_data() {
        Ok(()) => ffi::SQLITE_OK,
        Err(_) => ffi::SQLITE_IOERR_FSYNC, // SQLite takes the cause from `errno`
    }
}

/// Elsewhere SQLite knows best which call reaches the disk.
///
/// SAFETY: `log` must have been opened by [`open`].
#[cfg(not(target_os = "linux"))]
unsafe fn flush(log: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the same.
    unsafe { system!(log, xSync, flags) }
}

unsafe extern "C" fn file_size(log: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    write_out_and!(log, xFileSize, size)
}

unsafe extern "C" fn lock(log: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    write_out_and!(log, xLock, level)
}

unsafe extern "C" fn is_reserved(log: *mut ffi::sqlite3_file, reserved: *mut c_int) -> c_int {
    write_out_and!(log, xCheckReservedLock, reserved)
}

unsafe extern "C" fn control(
    log: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    write_out_and!(log, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(log: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as for the others; nothing is asked of the file's content.
    unsafe { system!(log, xSectorSize) }
}

unsafe extern "C" fn characteristics(log: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the same.
    unsafe { system!(log, xDeviceCharacteristics) }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::super::schema;

    /// More than is gathered, several times over.
    const MUCH: usize = 1_000_000;

    fn database() -> (TempDir, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let db = schema::connect(&directory.path().join("db")).unwrap();
        schema::use_wal(&db).unwrap();
        db.execute_batch("CREATE TABLE blobs (id INTEGER PRIMARY KEY, body BLOB)").unwrap();
        (directory, db)
    }

    fn put(db: &Connection, id: i64, length: usize) {
        db.execute("INSERT INTO blobs VALUES (?1, ?2)", (id, vec![id as u8; length])).unwrap();
    }

    #[track_caller]
    fn assert_holds(db: &Connection, wanted: &[(i64, usize)]) {
        let mut select = db.prepare("SELECT id, body FROM blobs ORDER BY id").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let held: Vec<(i64, Vec<u8>)> = rows.map(Result::unwrap).collect();
        assert_eq!(held.len(), wanted.len());
        for ((id, body), wanted) in held.iter().zip(wanted) {
            assert_eq!((*id, body.len()), *wanted);
            assert!(body.iter().all(|byte| *byte == *id as u8), "{id} is not as it was written");
        }
    }

    #[test]
    fn others_see_a_commit_whole_as_soon_as_it_is_made() {
        let (directory, db) = database();
        let reader = schema::connect_reader(&directory.path().join("db")).unwrap();
        let mut wanted = vec![];
        for (id, length) in [(1, 10), (2, MUCH), (3, 5_000), (4, 131_072), (5, 262_144)] {
            put(&db, id, length);
            wanted.push((id, length));
            assert_holds(&reader, &wanted);
        }
    }

    #[test]
    fn a_connection_reads_what_it_has_written_and_not_committed() {
        let (directory, db) = database();
        // With so few pages in memory they are written to the log, and read back, before the commit.
        db.pragma_update(None, "cache_size", 10).unwrap();
        put(&db, 1, 10);
        db.execute_batch("BEGIN").unwrap();
        put(&db, 2, MUCH);
        put(&db, 3, MUCH);
        assert_holds(&db, &[(1, 10), (2, MUCH), (3, MUCH)]);
        db.execute_batch("ROLLBACK").unwrap();
        put(&db, 4, 20_000);
        assert_holds(&db, &[(1, 10), (4, 20_000)]);
        let other = schema::connect_reader(&directory.path().join("db")).unwrap();
        assert_holds(&other, &[(1, 10), (4, 20_000)]);
    }

    #[test]
    fn a_log_that_begins_again_is_as_good_as_the_first() {
        let (directory, db) = database();
        for id in 1..=3 {
            put(&db, id, 50_000);
            let checkpoint = "PRAGMA wal_checkpoint(RESTART)";
            db.query_row(checkpoint, [], |row| row.get::<_, i64>(0)).unwrap();
        }
        put(&db, 4, 7);
        let copy = tempfile::tempdir().unwrap();
        for file in ["db", "db-wal"] {
            std::fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
        }
        // As after a crash: what was committed is in the files, not in what was gathered.
        let after = schema::connect(&copy.path().join("db")).unwrap();
        assert_holds(&after, &[(1, 50_000), (2, 50_000), (3, 50_000), (4, 7)]);
    }
}
