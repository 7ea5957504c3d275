//! Whether the store takes anything new. It does not while the disk has less free space than its reserve, nor
//! while the writer can't make a commit for want of space or of the database's lock. Reading and what makes
//! sessions smaller go on; what is refused has changed nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::limits;

/// See the module.
#[derive(Debug)]
pub(super) struct DiskSpace {
    directory: PathBuf,
    reserve: u64,
    since: Instant,
    /// When the disk is looked at next, in milliseconds after `since`.
    look_at: AtomicU64,
    /// Whether the disk had less than the reserve when it was looked at.
    low: AtomicBool,
    /// Whether the writer waits to make a commit.
    stalled: AtomicBool,
}

impl DiskSpace {
    /// On the disk of this directory. No reserve means that the disk is not looked at.
    pub(super) fn new(directory: &Path, reserve: u64) -> Self {
        Self {
            directory: directory.to_path_buf(),
            reserve,
            since: Instant::now(),
            look_at: AtomicU64::new(0),
            low: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
        }
    }

    /// Whether something new may be added.
    pub(super) fn is_enough(&self) -> bool {
        if self.stalled.load(Relaxed) {
            return false;
        }
        self.look();
        !self.low.load(Relaxed)
    }

    /// The writer waits, or goes on.
    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Relaxed);
    }

    /// Looks at the disk, unless that was done a moment ago.
    fn look(&self) {
        let now = self.since.elapsed().as_millis() as u64;
        if self.reserve == 0 || now < self.look_at.load(Relaxed) {
            return;
        }
        let next = now + limits::LOOK_AT_DISK.as_millis() as u64;
        self.look_at.store(next, Relaxed);
        // A disk that can't be asked is taken to have room: a commit finds out.
        let low = free_space(&self.directory).is_some_and(|disk| disk.is_below(self.reserve));
        if self.low.swap(low, Relaxed) != low {
            self.tell(low);
        }
    }

    fn tell(&self, low: bool) {
        let (directory, reserve) = (self.directory.display(), self.reserve);
        if low {
            tracing::warn!(%directory, reserve, "disk space below reserve: writes rejected");
        } else {
            tracing::info!(%directory, reserve, "disk space above reserve: writes accepted");
        }
    }
}

/// A disk, as far as it matters here.
#[derive(Clone, Copy, Debug)]
struct Disk {
    free: u64,
    size: u64,
}

impl Disk {
    /// Of a small disk only a part is kept in reserve.
    fn is_below(self, reserve: u64) -> bool {
        self.free < reserve.min(self.size / limits::RESERVED_PART)
    }
}

fn free_space(directory: &Path) -> Option<Disk> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(Disk { free: disk.f_bavail * disk.f_frsize, size: disk.f_blocks * disk.f_frsize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_small_disk_only_a_part_is_kept_in_reserve() {
        let mib = 1024 * 1024;
        let disk = |free, size| Disk { free: free * mib, size: size * mib };
        assert!(disk(63, 10_000).is_below(64 * mib) && !disk(64, 10_000).is_below(64 * mib));
        assert!(disk(2, 48).is_below(64 * mib) && !disk(3, 48).is_below(64 * mib));
        assert!(!disk(0, 48).is_below(0));
    }
}
