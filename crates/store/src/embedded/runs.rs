//! `runs.mark`: when each of the last processes that had the store open was last known to be alive, so
//! that a later one can tell since when the clients have been away that were attached to it.
//!
//! The file has a line for each run, oldest first: the number of the first commit it could make, and the
//! time of its last sign of life. The line of the run that goes on is overwritten in place and never
//! flushed. Only figures for people depend on what is in it: a line that can't be read is left out. Each run has a file of
//! its own, which takes the place of the last one: by when that was made `birth.rs` tells a copy.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rejoin_core::Timestamp;

use super::{limits, private};

/// One process on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunLine {
    /// The first commit it could make.
    from: u64,
    last_alive: Timestamp,
}

impl RunLine {
    fn write(self) -> String {
        format!("{:020} {:020}\n", self.from, self.last_alive.as_millis())
    }

    fn read(line: &str) -> Option<Self> {
        let (from, millis) = line.split_once(' ')?;
        let last_alive = Timestamp::from_millis(millis.parse().ok()?);
        Some(Self { from: from.parse().ok()?, last_alive })
    }
}

/// The runs before this one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<RunLine>);

impl Runs {
    /// What the file at `path` says; nothing if it can't be read.
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        Self(text.lines().filter_map(RunLine::read).collect())
    }

    /// When the process that made this commit was last known to be alive.
    pub(super) fn last_alive(&self, commit: u64) -> Option<Timestamp> {
        let of_it = self.0.iter().rev().find(|run| run.from <= commit)?;
        Some(of_it.last_alive)
    }
}

/// The run that goes on.
#[derive(Debug)]
pub(super) struct CurrentRun {
    file: File,
    path: PathBuf,
    from: u64,
    at: u64,
}

impl CurrentRun {
    /// Begins a run whose first commit will be `from`, in a file beside the one of the last run. Drops runs that made
    /// no commit, and runs whose commits the store no longer has.
    pub(super) fn begin(path: &Path, from: u64, now: Timestamp) -> io::Result<Self> {
        let Runs(mut lines) = Runs::read(path);
        lines.retain(|run| run.from < from);
        lines.drain(..lines.len().saturating_sub(limits::RUNS_KEPT - 1));
        let mut text = String::new();
        lines.into_iter().for_each(|run| text += &run.write());
        let at = text.len() as u64;
        text += &RunLine { from, last_alive: now }.write();
        let new = file_of_next(path);
        let file = private::options().write(true).truncate(true).open(&new)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_all()?;
        Ok(Self { file, path: path.to_path_buf(), from, at })
    }

    /// Puts its file in the place of the one of the last run. Until then a note of either is right.
    pub(super) fn replace_last(&self) -> io::Result<()> {
        fs::rename(file_of_next(&self.path), &self.path)
    }

    /// Notes that the process is alive.
    pub(super) fn is_alive(&self, now: Timestamp) -> io::Result<()> {
        let line = RunLine { from: self.from, last_alive: now };
        self.file.write_all_at(line.write().as_bytes(), self.at)
    }
}

/// The file of a run that has not taken the place of the last one yet.
pub(super) fn file_of_next(path: &Path) -> PathBuf {
    path.with_extension("mark.new")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path, from: u64, now: Timestamp) -> CurrentRun {
        let run = CurrentRun::begin(path, from, now).unwrap();
        run.replace_last().unwrap();
        run
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn each_commit_belongs_to_the_run_that_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.mark");
        assert_eq!(Runs::read(&path).last_alive(1), None);
        begin(&path, 2, at(10)).is_alive(at(15)).unwrap();
        begin(&path, 7, at(20)).is_alive(at(25)).unwrap();
        // Killed again before it had committed anything.
        begin(&path, 9, at(30)).is_alive(at(35)).unwrap();
        begin(&path, 9, at(40));
        let runs = Runs::read(&path);
        let known = [1, 2, 6, 7, 8, 9].map(|commit| runs.last_alive(commit));
        let [first, second] = [Some(at(15)), Some(at(25))];
        assert_eq!(known, [None, first, first, second, second, Some(at(40))]);
    }

    #[test]
    fn a_backup_put_back_forgets_the_runs_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.mark");
        for from in [2, 50, 90] {
            begin(&path, from, at(from));
        }
        begin(&path, 60, at(100));
        let runs = Runs::read(&path);
        assert_eq!([40, 55, 95].map(|c| runs.last_alive(c)), [at(2), at(50), at(100)].map(Some));
    }

    #[test]
    fn the_file_stays_small_and_what_is_damaged_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.mark");
        for from in 1..=200 {
            begin(&path, from, at(from));
        }
        let runs = Runs::read(&path);
        assert_eq!((runs.0.len(), runs.last_alive(199)), (limits::RUNS_KEPT, Some(at(199))));
        let text = fs::read_to_string(&path).unwrap().replacen("00000000000000000199 ", "199", 1);
        fs::write(&path, text).unwrap();
        assert_eq!(Runs::read(&path).last_alive(199), Some(at(198)));
    }
}
