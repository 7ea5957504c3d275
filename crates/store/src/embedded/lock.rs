//! The file `lock`: one process at a time may have a directory open.

use std::fs::{File, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::error::OpenError;
use super::private;
use super::schema::Files;

/// How long it is waited for somebody else to go: a process that was killed while it started a child
/// leaves the lock to that child until the child runs its own program.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The right to use a directory, as long as this lives.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Takes it, or says who is in the way.
    pub(super) fn take(files: &Files) -> Result<Self, OpenError> {
        let lock = private::options().truncate(false).write(true).open(&files.lock);
        let lock = lock.map_err(|error| OpenError::of_io(error, &files.directory))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self(lock)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(LOOK_AGAIN),
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::Locked { directory: files.directory.clone() });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(OpenError::of_io(error, &files.directory));
                }
            }
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
