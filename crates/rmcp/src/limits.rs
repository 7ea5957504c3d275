//! Every bound of this crate, in one place.

use std::time::Duration;

/// Messages of a client that may wait for its session's handler.
pub(crate) const WAITING_MESSAGES: usize = 64;

/// Messages of a handler that are stored in one commit.
pub(crate) const SAID_AT_ONCE: usize = 64;

/// How long a session may take to begin.
pub(crate) const INITIALIZING: Duration = Duration::from_secs(60);

/// How often a request is run again that the server died over.
pub(crate) const MOST_RERUNS: u8 = 2;

/// Requests of a session that are looked at when its server comes back; more can't have been under way.
pub(crate) const REQUESTS_LEFT: usize = rejoin::core::limits::WAITING_ENTRIES;

/// How long the events of a stream are kept after its answer, by [`crate::DurableEventStore`].
pub(crate) const RESULT_RETENTION: Duration = Duration::from_secs(60 * 60);

/// When a client should try again that was refused because the store takes nothing.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whoever's stream was taken over should not come back for it: the two would fight.
pub(crate) const STAY_AWAY: Duration = Duration::from_secs(60 * 60);
