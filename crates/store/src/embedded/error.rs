//! What can go wrong with the files, each as one sentence for the person who runs the server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rejoin_core::SessionId;
use rusqlite::ErrorCode;

use super::limits;

/// Why a store was not opened. Nothing was changed, and nothing that was acknowledged is lost.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or a file in it can't be made, read or written.
    #[error("the data directory {} can't be used: {source}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "the data directory {} is in use by another process; stop that one, or use another directory",
        .directory.display()
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// The file was made by a later version of Rejoin.
    #[error(
        "{} has format version {found}, and this version of Rejoin reads up to {supported}; use a newer Rejoin",
        .file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest that is understood.
        supported: u32,
    },
    /// The file is something else.
    #[error("{} is not a database of Rejoin; move it away, or use another directory", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file is a database of Rejoin, but not even what is whole in it can be found.
    #[error(
        "{} is damaged beyond use ({what}); restore a backup, or move the data directory away to start anew",
        .file.display()
    )]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is no store to look at.
    #[error("there is no store in {}", .directory.display())]
    Nothing {
        /// The directory.
        directory: PathBuf,
    },
    /// More is lost than [`Options::accept_data_loss`](super::Options::accept_data_loss) need be said for.
    #[error(
        "{} is damaged, and was left as it is: {}; what is whole are {sessions} sessions with {events} events; \
         restore a backup, or start once with --accept-data-loss to go on with these and lose the rest",
        .file.display(), in_a_row(.damage)
    )]
    DataLoss {
        /// The database.
        file: PathBuf,
        /// What was found.
        damage: Vec<Damage>,
        /// Sessions that are whole, or of which a part is.
        sessions: usize,
        /// Their events.
        events: usize,
    },
    /// The disk is full.
    #[error("{}", no_space(.directory))]
    Full {
        /// The directory.
        directory: PathBuf,
    },
}

/// Something that was durable once and is not there any more, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The witness knows of commits that the database does not have.
    #[error("commits {from} to {to} are lost: the database ends before them")]
    CommitsLost {
        /// The first of them.
        from: u64,
        /// The last that was acknowledged.
        to: u64,
    },
    /// The witness is missing or unreadable, or speaks of another database.
    #[error("commits.mark {what}, so nothing proves that the database has every commit")]
    NoWitness {
        /// Which of these.
        what: &'static str,
    },
    /// The database file is a copy, so it may be older than what clients have seen.
    #[error(
        "the database file is a copy, as of a backup that was put back: what came after it was made may be missing"
    )]
    PutBack,
    /// Journal rows are missing, unreadable or changed.
    #[error("{count} rows of the journal are missing or damaged, the first is {first}")]
    Journal {
        /// How many.
        count: u64,
        /// The first one.
        first: u64,
    },
    /// There is no journal to compare the sessions with.
    #[error("the journal is empty")]
    NoJournal,
    /// A session's row is damaged; the session is lost.
    #[error("session {} is damaged and lost", .id.as_ref().map_or("(id unreadable)", |id| id.as_str()))]
    Session {
        /// Its id, if that can still be read.
        id: Option<SessionId>,
    },
    /// The table of sessions is not what the last commit left.
    #[error(
        "the table of sessions has {found} whole rows of {expected}, or some in an older version"
    )]
    Sessions {
        /// Rows that are whole.
        found: u64,
        /// Rows there should be.
        expected: u64,
    },
    /// An earlier start has found damage and was cut short while answering it; that is done now.
    #[error("the database was found damaged before; what could be salvaged of it is in place now")]
    SalvagedBefore,
    /// The file is not as SQLite wants it. Only [`verify`](super::verify) looks for this.
    #[error("SQLite finds in its file: {what}")]
    File {
        /// What SQLite says.
        what: String,
    },
    /// A table could not be read to its end.
    #[error("the table {table} can't be read throughout: {what}")]
    Unreadable {
        /// Its name.
        table: &'static str,
        /// What SQLite says.
        what: String,
    },
}

impl Damage {
    /// Whether no more is gone than the last few commits, or it was somebody's decision to go on with less.
    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::CommitsLost { from, to } => to - from < limits::COMMITS_LOST_UNASKED,
            Self::PutBack | Self::SalvagedBefore => true,
            Self::NoWitness { .. }
            | Self::Journal { .. }
            | Self::NoJournal
            | Self::Session { .. }
            | Self::Sessions { .. }
            | Self::Unreadable { .. }
            | Self::File { .. } => false,
        }
    }
}

/// The first few of what may be thousands, in one sentence.
fn in_a_row(damage: &[Damage]) -> String {
    let told: Vec<String> =
        damage.iter().take(limits::FAULTS_TOLD).map(Damage::to_string).collect();
    let told = told.join("; ");
    match damage.len().saturating_sub(limits::FAULTS_TOLD) {
        0 => told,
        more => format!("{told}; and {more} more of the kind"),
    }
}

/// The sentence for a disk without space, wherever it is met.
pub(super) fn no_space(directory: &Path) -> String {
    format!(
        "no space left on the disk that holds {}; nothing that was acknowledged is lost",
        directory.display()
    )
}

/// Why the writer had to stop.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("commits.mark can't be written: {0}")]
    Witness(io::Error),
    #[error(transparent)]
    File(io::Error),
    #[error("row {number} of the journal is damaged: {what}")]
    Row { number: u64, what: super::journal::RowFault },
    #[error("row {0} of the journal is missing")]
    RowMissing(u64),
    #[error("a call has panicked; nothing that was acknowledged is lost")]
    Panicked,
}

impl Fault {
    /// Whether something that was written is not there any more, or not as it was.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sqlite(error) => is_corruption(error),
            Self::Row { .. } | Self::RowMissing(_) => true,
            Self::Witness(_) | Self::File(_) | Self::Panicked => false,
        }
    }

    /// Whether the same may work later without anybody doing anything about the store: there was no space,
    /// or another program had the database locked. What was to be written is not, nor is it lost.
    pub(super) fn is_passing(&self) -> bool {
        let locked = matches!(self, Self::Sqlite(error) if is_locked(error));
        locked || self.is_full()
    }

    /// Whether there was no space.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Sqlite(error) => is_full(error),
            Self::Witness(error) | Self::File(error) => error.kind() == io::ErrorKind::StorageFull,
            Self::Row { .. } | Self::RowMissing(_) | Self::Panicked => false,
        }
    }

    /// How long callers wait for something that this keeps from being done.
    pub(super) fn patience(&self) -> Duration {
        if self.is_full() { limits::WAIT_FOR_SPACE } else { limits::WAIT_FOR_LOCK }
    }

    /// As a sentence for the person who runs the server.
    pub(super) fn sentence(&self, directory: &Path) -> String {
        if self.is_full() {
            return no_space(directory);
        }
        format!("{} can't be written or read: {self}", directory.display())
    }
}

impl OpenError {
    /// For a failure of SQLite while opening.
    pub(super) fn of_sqlite(error: &rusqlite::Error, file: &Path, directory: &Path) -> Self {
        let (file, directory) = (file.to_path_buf(), directory.to_path_buf());
        match error.sqlite_error_code() {
            _ if is_full(error) => Self::Full { directory },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { directory },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                let source = io::Error::other(in_one_line(error));
                Self::Directory { directory, source }
            }
            _ => Self::Unusable { file, what: in_one_line(error) },
        }
    }

    /// For a failure while writing what could be salvaged.
    pub(super) fn of_fault(fault: Fault, file: &Path, directory: &Path) -> Self {
        match fault {
            Fault::Sqlite(error) => Self::of_sqlite(&error, file, directory),
            Fault::Witness(error) | Fault::File(error) => Self::of_io(error, directory),
            Fault::Row { .. } | Fault::RowMissing(_) | Fault::Panicked => {
                Self::Unusable { file: file.to_path_buf(), what: fault.to_string() }
            }
        }
    }

    /// For a failure of the operating system while opening.
    pub(super) fn of_io(source: io::Error, directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        if source.kind() == io::ErrorKind::StorageFull {
            return Self::Full { directory };
        }
        Self::Directory { directory, source }
    }
}

/// SQLite quotes what it does not understand, line breaks included.
pub(super) fn in_one_line(error: &rusqlite::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file that SQLite's connections share has no room to grow either.
fn is_full(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

fn is_locked(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether an error says that what is in the file makes no sense, as opposed to a file that can't be
/// got at.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, PermissionDenied,
        ReadOnly, SystemIoFailure,
    };
    !matches!(
        error.sqlite_error_code(),
        Some(
            CannotOpen
                | DatabaseBusy
                | DatabaseLocked
                | DiskFull
                | OutOfMemory
                | PermissionDenied
                | ReadOnly
                | SystemIoFailure
        )
    )
}
