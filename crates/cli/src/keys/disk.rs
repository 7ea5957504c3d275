//! The key file in the file system: nobody but its owner may read it, and whoever reads it finds it
//! whole, whatever happens while it is written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::file::KeyFile;
use crate::stamp::Stamp;

/// The largest key file that is read: thousands of keys.
const MAX_BYTES: u64 = 1024 * 1024;

/// What stood in the key file at `path`, and how the file looked; nothing if there is none.
pub(super) fn read(path: &Path) -> Result<Option<(KeyFile, Stamp)>> {
    let about = || format!("key file {}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(about),
    };
    let metadata = file.metadata().with_context(about)?;
    let mode = metadata.permissions().mode() & 0o777;
    ensure!(
        mode & 0o077 == 0,
        "key file {} can be read or changed by others (mode {mode:03o}); run `chmod 600` on it",
        path.display()
    );
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    ensure!(
        owner == own || owner == 0,
        "key file {} belongs to user {owner}, and this server runs as {own}",
        path.display()
    );
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(about)?;
    let keys = KeyFile::parse(&text).with_context(about)?;
    Ok(Some((keys, Stamp::from(&metadata))))
}

/// Changes the key file at `path` while no other process does. `change` gets what is there and gives
/// what shall be, or nothing to leave it.
pub(super) fn change<T>(
    path: &Path,
    change: impl FnOnce(Option<KeyFile>) -> Result<(Option<KeyFile>, T)>,
) -> Result<T> {
    // Through a link, so that the file behind it changes and not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = directory_of(path);
    let about = || format!("directory {}", directory.display());
    let held = File::open(directory).with_context(about)?;
    held.lock().with_context(about)?; // given back when it is closed
    let (changed, outcome) = change(read(path)?.map(|(keys, _)| keys))?;
    if let Some(keys) = changed {
        replace(path, &keys.to_string())
            .and_then(|()| held.sync_all())
            .with_context(|| format!("key file {} can't be written", path.display()))?;
    }
    Ok(outcome)
}

/// Makes the directory that is to hold keys, for its owner alone.
pub(super) fn make_directory(directory: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("directory {} can't be made", directory.display()))
}

/// Puts a new file in the place of the old one. A crash leaves one or the other, and perhaps a
/// temporary file that the next writer overwrites.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary_for(path)?;
    // One that is left over could have been made for everybody to read: it goes first.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

fn temporary_for(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    name.push(".new");
    Ok(path.with_file_name(name))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The keys at `path`, which have to be there.
pub(super) fn read_existing(path: &Path) -> Result<(KeyFile, Stamp)> {
    match read(path)? {
        Some(found) => Ok(found),
        None => bail!(
            "key file {} is not there; `rejoin keys rotate` with the same settings makes it",
            path.display()
        ),
    }
}
