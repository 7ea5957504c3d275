//! Bounds on connections, each with what would happen without it.

use std::time::Duration;

/// The fewest characters of an API key.
pub(crate) const MIN_KEY_CHARS: usize = 8;

/// An API key with fewer characters is warned of.
pub(crate) const WEAK_KEY_CHARS: usize = 16;

/// Connections that may wait in the kernel to be accepted, if the kernel allows as many. With 128, a
/// thousand clients that come back at once wait for TCP to retry.
pub(crate) const BACKLOG: u32 = 4096;

/// How long a client may take to agree on TLS keys.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a new connection may take to send the head of its first request.
pub(crate) const FIRST_HEAD: Duration = Duration::from_secs(10);

/// How long a connection may take, after a response, to send the head of its next request.
pub(crate) const NEXT_HEAD: Duration = Duration::from_secs(75);

/// The longest head of a request, and what is read from a socket at once. A client that never finishes its
/// head costs as much.
pub(crate) const HEAD_BYTES: usize = 32 * 1024;

/// How long the body of a request may bring no byte.
pub(crate) const BODY_PAUSE: Duration = Duration::from_secs(30);

/// How long the body of a request may take as a whole.
pub(crate) const WHOLE_BODY: Duration = Duration::from_secs(300);

/// Open files that are not for connections: the store, the log, telemetry, hooks, backends.
pub(crate) const OTHER_FILES: u64 = 256;

/// Open files that a child process takes here: its three pipes, and one while it starts.
pub(crate) const FILES_PER_CHILD: u64 = 4;

/// The fewest connections that are allowed, however few files may be open.
pub(crate) const FEWEST_CONNECTIONS: usize = 64;

/// Connections that were not accepted are logged at most this often.
pub(crate) const LOG_REFUSALS_EVERY: Duration = Duration::from_secs(10);
