//! The file `lock`: one process at a time may have a directory open.

use std::fs::{File, TryLockError};

use super::error::OpenError;
use super::private;
use super::schema::Files;

/// The right to use a directory, as long as this lives.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Takes it, or says who is in the way.
    pub(super) fn take(files: &Files) -> Result<Self, OpenError> {
        let lock = private::options().truncate(false).write(true).open(&files.lock);
        let lock = lock.map_err(|error| OpenError::of_io(error, &files.directory))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self(lock)),
            Err(TryLockError::WouldBlock) => {
                Err(OpenError::Locked { directory: files.directory.clone() })
            }
            Err(TryLockError::Error(error)) => Err(OpenError::of_io(error, &files.directory)),
        }
    }
}

impl Drop for DirectoryLock {
    /// Closing the file would not do: a process that was forked this moment has it open as well until
    /// it runs its own program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
