//! A file of lines for what people look at after a restart: the timeline of sessions and the samples of the
//! overview. Nothing is decided by it, so it is never flushed, and the server goes on without it.
//!
//! A line is one JSON value. When the file is full it takes the place of the one before it, and another is
//! begun: what is kept on disk has a bound.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Where lines go; nowhere, if the server keeps no files.
#[derive(Debug, Default)]
pub(crate) struct History(Option<HistoryFile>);

#[derive(Debug)]
struct HistoryFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    /// Whether the last line could not be written: said once, not for each.
    failing: bool,
}

impl History {
    /// Opens the file at `path`, of up to `max_bytes`, and reads what it and the one before it say, oldest
    /// first. Lines that can't be read are left out.
    pub(crate) fn open<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> (Self, Vec<T>) {
        let lines = [before(path), path.to_owned()].iter().flat_map(|path| read(path)).collect();
        match HistoryFile::open(path, max_bytes) {
            Ok(file) => (Self(Some(file)), lines),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "history is not kept");
                (Self(None), lines)
            }
        }
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: &impl Serialize) {
        let Some(file) = &mut self.0 else { return };
        let added = file.add(line);
        if let Err(error) = &added
            && !file.failing
        {
            tracing::warn!(path = %file.path.display(), %error, "history is not written");
        }
        file.failing = added.is_err();
    }
}

impl HistoryFile {
    fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut file = File::options().create(true).append(true).mode(0o600).open(path)?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 {
            file.write_all(b"\n")?; // the last line may have been cut off
            bytes += 1;
        }
        Ok(Self { path: path.to_owned(), file, bytes, max_bytes, failing: false })
    }

    fn add(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if self.bytes + text.len() as u64 > self.max_bytes {
            fs::rename(&self.path, before(&self.path))?;
            *self = Self::open(&self.path, self.max_bytes)?;
        }
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// The file before the one at `path`.
fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read(path).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_outlive_the_process_and_a_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let (mut history, none) = History::open::<u32>(&path, 1_000);
        assert!(none.is_empty());
        history.add(&1);
        history.add(&2);
        let mut text = fs::read(&path).unwrap();
        text.extend(b"{\"cut");
        fs::write(&path, text).unwrap();
        let (mut history, lines) = History::open::<u32>(&path, 1_000);
        assert_eq!(lines, [1, 2]);
        history.add(&3);
        assert_eq!(History::open::<u32>(&path, 1_000).1, [1, 2, 3]);
    }

    #[test]
    fn the_oldest_lines_go_and_the_files_stay_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let (mut history, _) = History::open::<u32>(&path, 100);
        (1_000..2_000).for_each(|number| history.add(&number));
        let (_, lines) = History::open::<u32>(&path, 100);
        assert_eq!(lines.last(), Some(&1_999));
        assert!((20..=40).contains(&lines.len()), "{} lines", lines.len());
        assert!(lines.is_sorted());
        let bytes: u64 =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= 201, "{bytes} bytes");
    }

    #[test]
    fn a_server_without_files_or_with_a_bad_directory_goes_on() {
        History::default().add(&1);
        let (mut history, lines) = History::open::<u32>(Path::new("/nowhere/at/all"), 100);
        history.add(&1);
        assert!(lines.is_empty());
    }
}
