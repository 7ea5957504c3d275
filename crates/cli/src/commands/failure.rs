//! What goes wrong for a command: one sentence that a person can act on, and an exit code.

use std::process::ExitCode;

use hyper::StatusCode;
use rejoin_core::SessionId;

use crate::{FAILED, WRONG_SETTINGS, complain};

/// Why a command did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Whoever read the output has enough. That is no error.
    #[error("the output was closed")]
    OutputClosed,
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// No process has that port open.
    #[error("nothing listens on {url}; start it with `rejoin`")]
    NothingListens {
        /// The server's address.
        url: String,
    },
    /// There is no way to the server.
    #[error("{url} can't be reached: {why}")]
    Unreachable {
        /// The server's address.
        url: String,
        /// As far as is known.
        why: String,
    },
    /// The connection ended before the answer did.
    #[error("the connection to {url} broke before the answer was there; try again")]
    Broken {
        /// The server's address.
        url: String,
    },
    /// The server wants to know who is asking.
    #[error(
        "{url} wants to know who is asking: set REJOIN_API_KEY, or name a file with --key-file"
    )]
    KeyMissing {
        /// The server's address.
        url: String,
    },
    /// The server does not know the key.
    #[error("{url} does not accept the API key from {source_name}")]
    KeyRefused {
        /// The server's address.
        url: String,
        /// Where the key is from.
        source_name: String,
    },
    /// There is no such session, or it is somebody else's, which looks the same.
    #[error("there is no session {0}; `rejoin sessions --all` lists those there are")]
    NotFound(SessionId),
    /// Several sessions have ids that begin like that.
    #[error("several sessions begin with {prefix}: {candidates}")]
    Ambiguous {
        /// What was given.
        prefix: SessionId,
        /// The first of them.
        candidates: String,
    },
    /// The session has ended.
    #[error(
        "session {0} has ended: nothing more happens in it; `rejoin show {0}` shows its record"
    )]
    Ended(SessionId),
    /// Another answer that is no success.
    #[error("{url} answered {}: {detail}", .status.as_u16())]
    Answer {
        /// The server's address.
        url: String,
        /// The status.
        status: StatusCode,
        /// As the server put it.
        detail: String,
    },
    /// What answered is no server of ours, or a later one.
    #[error("{url} does not answer like a Rejoin server: {why}")]
    Strange {
        /// The server's address.
        url: String,
        /// What is strange.
        why: String,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Whether the same may work a little later, without anybody doing anything but starting a server.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NothingListens { .. } | Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Answer { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::OutputClosed
            | Self::Usage(_)
            | Self::KeyMissing { .. }
            | Self::KeyRefused { .. }
            | Self::NotFound(_)
            | Self::Ambiguous { .. }
            | Self::Ended(_)
            | Self::Strange { .. }
            | Self::Other(_) => false,
        }
    }

    /// Says it on standard error, and gives the exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        if *self == Self::OutputClosed {
            return ExitCode::SUCCESS;
        }
        complain(&self.to_string());
        ExitCode::from(if matches!(self, Self::Usage(_)) { WRONG_SETTINGS } else { FAILED })
    }
}
