//! Makes the write-ahead log durable again, before anything is built on it.
//!
//! After a flush that failed, the process before this one has stopped; but what it had written may still be in
//! the kernel's cache, which marks pages clean whose writing failed. A later flush then succeeds without
//! writing them, and a power failure takes them away from under all that was acknowledged since. So they
//! are written once more, and flushed, before they are read.
//!
//! The database itself needs none of this: what a checkpoint copied is in the log until the database was
//! flushed, and is copied again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read and written at once.
const STEP: usize = 64 * 1024;

/// Writes what a file holds to where it is, and flushes it. A file that is not there holds nothing.
pub(super) fn write_again(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut buffer, mut at) = (vec![0; STEP], 0);
    loop {
        let length = read_some(&file, &mut buffer, at)?;
        let bytes = &buffer[..length];
        if bytes.is_empty() {
            return file.sync_all();
        }
        // The log's file is filled up with zeros, which hold nothing.
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, at)?;
        }
        at += length as u64;
    }
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_again(&path).unwrap();
        assert!(!path.exists());
        let bytes: Vec<u8> = (0..3 * STEP + 17).map(|at| (at / 1000) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        write_again(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
