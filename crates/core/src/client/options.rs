//! What people can set, and the bounds of a client that they can't.

use std::time::Duration;

use crate::limits;

/// An ack goes out after this many events …
pub(super) const ACK_EVENTS: u64 = 100;

/// … or this long after the first event that no ack covers.
pub(super) const ACK_DELAY: Duration = Duration::from_secs(1);

/// Upper bounds of the waits between attempts, until a server says otherwise.
pub(super) const BACKOFF: [Duration; 7] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Steps of a server's own list that are looked at.
pub(super) const BACKOFF_STEPS: usize = 64;

/// Refusals in a row after which a client stops, until a server says otherwise.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// How often heartbeats come, until a server says otherwise.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Nothing received for this many heartbeat intervals: the connection is dead.
pub(super) const SILENT_INTERVALS: u32 = 2;

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
