//! Every bound of the client that is not the protocol's, in one place. What can be set by people is a
//! default here and a method of the [`Builder`](crate::Builder).

use std::time::Duration;

/// How far the client reads ahead of its application, in items …
pub(crate) const WINDOW_ITEMS: usize = 256;

/// … and in bytes; a larger single event goes alone.
pub(crate) const WINDOW_BYTES: usize = 1024 * 1024;

/// How long the server is told that the client lives while its application takes nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How long opening a socket may take, authentication by frame included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest frame that is read: a state of the default size, opened, in one frame with its seal.
pub(crate) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// The socket's own buffers; the libraries' defaults of 128 KiB are for servers of video.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 4 * 1024;

/// A socket that has not taken what was written for this long is dead.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last frames of a socket that we close may take.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// Frames that are read while the answer to `user.authenticate` is awaited.
pub(crate) const FRAMES_BEFORE_AUTHENTICATED: usize = 16;

/// Messages of the application that wait for the driver; beyond that their senders wait.
pub(crate) const COMMANDS: usize = 64;

/// The longest a server can make a client wait by naming a time.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest number that is read as a seq: what every JSON library can tell apart from its
/// neighbours. It leaves room to count on from it.
pub(crate) const MAX_SEQ: u64 = (1 << 53) - 1;
