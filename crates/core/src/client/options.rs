//! What people can set of a client. The bounds they can't set are in `limits.rs`.

use crate::limits;

/// What people can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Whether a new session is created when the old one is gone and can't be restored.
    pub create_when_lost: bool,
    /// Messages that may be on their way at the same time. With one, they reach the agent in order
    /// whatever happens; with more, one that the server has no room for may be overtaken by those
    /// sent right after it.
    pub messages_in_flight: usize,
    /// Messages kept for sending; beyond that they are given up at once.
    pub max_unaccepted: usize,
    /// Bytes of messages kept for sending; a larger single message is kept alone.
    pub max_unaccepted_bytes: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            create_when_lost: true,
            messages_in_flight: 1,
            max_unaccepted: limits::WAITING_ENTRIES,
            max_unaccepted_bytes: 4 * 1024 * 1024,
        }
    }
}
