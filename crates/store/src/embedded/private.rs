//! Nobody but its owner may look into a store: it holds what people said to their agents, and what
//! tokens are known by.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Makes a directory, if it is not there. One that somebody else made keeps the mode they gave it.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// How to open a file, or make it for the owner alone.
pub(super) fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(FILE);
    options
}

/// Makes an empty file, if there is none. SQLite would make it for everybody to read; what it makes
/// beside a database gets the database's mode.
pub(super) fn make_file(path: &Path) -> io::Result<()> {
    options().append(true).open(path).map(drop)
}

/// Takes away what others may do with a file, if it is there.
pub(super) fn shut(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & 0o777 == FILE {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(FILE))
}
