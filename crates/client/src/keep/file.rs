//! One session in one file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rejoin_core::client::Saved;

use super::Keep;

/// Keeps in a file of JSON that only its owner can read (mode 0600). It is written beside its place,
/// flushed to the disk and moved there, so that a crash leaves the old one or the new one. Two sessions
/// must not share a file.
#[derive(Clone, Debug)]
pub struct FileKeep {
    path: PathBuf,
}

impl FileKeep {
    /// Keeps in the file at `path`, whose directory must exist. The file need not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Beside the file, on the same disk, so that moving it is one step.
    fn beside(&self) -> PathBuf {
        let mut name = self.path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".new");
        self.path.with_file_name(name)
    }
}

impl Keep for FileKeep {
    fn load(&mut self) -> io::Result<Option<Saved>> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            // The error's own words may quote the file, and there are secrets in it.
            let (line, column) = (error.line(), error.column());
            let path = self.path.display();
            let sentence = format!("{path} is no saved session (line {line}, column {column})");
            io::Error::new(io::ErrorKind::InvalidData, sentence)
        })
    }

    fn save(&mut self, saved: &Saved) -> io::Result<()> {
        let beside = self.beside();
        // One that a crash left behind may have been somebody else's work: its mode is not trusted.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = create_private(&beside)?;
        file.write_all(&serde_json::to_vec(saved)?)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync_directory(&self.path)
    }
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Without this, a power cut may bring the old name back.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(()); // directories can't be opened elsewhere
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rejoin_core::client::Secret;
    use rejoin_core::{Epoch, Position, Seq, SessionId};

    fn saved(seq: u64) -> Saved {
        Saved {
            session_id: Some(SessionId::from_random([7; 16])),
            position: Some(Position { epoch: Epoch::from_text("e1"), seq: Seq::new(seq) }),
            token: Some(Secret::new("hunter2")),
            snapshot: None,
        }
    }

    #[test]
    fn what_was_saved_last_is_found_by_the_next_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        assert_eq!(FileKeep::new(&path).load().unwrap(), None);
        FileKeep::new(&path).save(&saved(1)).unwrap();
        FileKeep::new(&path).save(&saved(2)).unwrap();
        assert_eq!(FileKeep::new(&path).load().unwrap(), Some(saved(2)));
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_it_whatever_was_there_before() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        fs::write(&path, "{}").unwrap();
        fs::write(directory.path().join("session.new"), "left behind by a crash").unwrap();
        FileKeep::new(&path).save(&saved(1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_quotes_nothing_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        fs::write(&path, r#"{"token": "hunter2", "session_id": hunter3"#).unwrap();
        let error = FileKeep::new(&path).load().unwrap_err().to_string();
        assert!(error.contains("is no saved session") && !error.contains("hunter"), "{error}");
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        FileKeep::new(&path).save(&saved(1)).unwrap();
        fs::create_dir(directory.path().join("session.new")).unwrap();
        FileKeep::new(&path).save(&saved(2)).unwrap_err();
        assert_eq!(FileKeep::new(&path).load().unwrap(), Some(saved(1)));
    }
}
