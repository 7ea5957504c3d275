//! How many files may be open: as many as the system allows for this process, and for children what it was
//! before, because some programs break when they have more than 1024.

/// Raises the soft limit of open files to the hard one, for this process alone. Gives the limit in force.
#[cfg(unix)]
pub fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            let _ = BEFORE.set(before);
            raised.current
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of open files can't be raised");
            before.current
        }
    };
    limit.unwrap_or(u64::MAX)
}

#[cfg(unix)]
static BEFORE: std::sync::OnceLock<rustix::process::Rlimit> = std::sync::OnceLock::new();

/// The limit that a child is to have, if it is another one.
#[cfg(unix)]
pub(super) fn of_children() -> Option<rustix::process::Rlimit> {
    BEFORE.get().copied()
}

/// There is no such limit here.
#[cfg(not(unix))]
pub fn raise_file_limit() -> u64 {
    u64::MAX
}
