//! A test on a small disk: a file system in memory, mounted in a namespace of its own by running the test again under
//! `unshare`. So neither root nor cleaning up is needed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOUNTED: &str = "REJOIN_TEST_MOUNTED";

/// Runs an ignored test of this file again, with a file system of its own for all its temporary files.
pub(crate) fn run_mounted(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(MOUNTED, directory.path())
        .env("TMPDIR", directory.path())
        .status()
        .expect("these tests need `unshare` of util-linux");
    assert!(status.success(), "{test}: {status}");
}

/// A small disk, which holds all temporary files.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Of this size, as `mount` spells it.
    pub(crate) fn mount(size: &str) -> Self {
        let directory = PathBuf::from(std::env::var(MOUNTED).expect("run by the test beside it"));
        let how = format!("size={size}");
        let mount = ["-t", "tmpfs", "-o", &how, "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(&directory).status().unwrap();
        assert!(mounted.success());
        Self(directory)
    }

    /// Takes all space that there is.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        for bytes in [64 * 1024, 1024, 1] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    /// Gives it back.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        Path::join(&self.0, "filler")
    }
}
