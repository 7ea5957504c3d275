//! The statement that adds a row to the journal. It is SQLite's own and not rusqlite's, which copies a blob
//! before it hands it over: a row can be a megabyte, and is written with every commit.
#![expect(unsafe_code, reason = "SQLite's own functions take pointers")]

use std::ptr;

use rusqlite::{Connection, ffi};

const SQL: &std::ffi::CStr = c"INSERT INTO journal (id, body) VALUES (?1, ?2)";

/// The prepared statement. It must be dropped before its connection.
#[derive(Debug)]
pub(super) struct InsertRow(*mut ffi::sqlite3_stmt);

// SAFETY: it is used by whoever has the connection beside it, one thread at a time.
unsafe impl Send for InsertRow {}

impl InsertRow {
    /// For a database that has the table.
    pub(super) fn new(db: &Connection) -> rusqlite::Result<Self> {
        let mut statement = ptr::null_mut();
        let flags = ffi::SQLITE_PREPARE_PERSISTENT;
        // SAFETY: the connection is open, and SQL ends with a zero.
        ok(unsafe {
            let (sql, rest) = (SQL.as_ptr(), ptr::null_mut());
            ffi::sqlite3_prepare_v3(db.handle(), sql, -1, flags, &raw mut statement, rest)
        })?;
        Ok(Self(statement))
    }

    /// Adds a row.
    pub(super) fn put(&mut self, number: u64, body: &[u8]) -> rusqlite::Result<()> {
        let (bytes, length) = (body.as_ptr().cast(), body.len() as u64);
        // SAFETY: the statement lives as long as this, and has two parameters. SQLite looks at the body
        // until the binding is cleared, which is before it can go.
        let stepped = unsafe {
            ok(ffi::sqlite3_bind_int64(self.0, 1, number as i64))?;
            ok(ffi::sqlite3_bind_blob64(self.0, 2, bytes, length, ffi::SQLITE_STATIC()))?;
            let stepped = ffi::sqlite3_step(self.0);
            ffi::sqlite3_reset(self.0);
            ffi::sqlite3_clear_bindings(self.0);
            stepped
        };
        match stepped {
            ffi::SQLITE_DONE => Ok(()),
            code => ok(code),
        }
    }
}

impl Drop for InsertRow {
    fn drop(&mut self) {
        // SAFETY: it was prepared, and is not used any more.
        unsafe { ffi::sqlite3_finalize(self.0) };
    }
}

fn ok(code: i32) -> rusqlite::Result<()> {
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}
