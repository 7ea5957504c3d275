//! MCP sessions that survive: a server that stands before any MCP server.
//!
//! An MCP session is a session like any other. What its client sends are entries of the in log, what the
//! server behind sends are events of the out log, and a request is dealt with when its response is stored.
//! Streams (`web/mcp/`) read the out log; the [`Gateway`] is the agent that hands entries to the server
//! behind and publishes what that says.
//!
//! | file | concern |
//! |---|---|
//! | `message.rs` | JSON-RPC messages as they came |
//! | `members.rs` | the members of objects in them, each name once |
//! | `own_words.rs` | those of our own: errors, requests, notifications |
//! | `garbled.rs` | what servers say instead |
//! | `logged.rs` | how they stand in the two logs |
//! | `given.rs` | reconnect tokens in results |
//! | `hub.rs` | what the streams of a session share: presence, who reads which |
//! | `fetched.rs` | which answers a client has fetched |
//! | `gateway/` | between the logs and the server behind |
//! | `parts.rs` | all of this, for other transports |
//! | `upstream/` | the ways to reach a server: a child process, HTTP |

mod fetched;
mod garbled;
mod gateway;
pub(crate) mod given;
mod hub;
pub(crate) mod logged;
pub(crate) mod members;
pub(crate) mod message;
pub(crate) mod own_words;
pub mod parts;
mod upstream;

pub use gateway::Gateway;
pub(crate) use gateway::{Book, handshake_too_large, uses_token};
pub(crate) use hub::{Hub, Hubs, Present, Reading};

/// The newest revision of MCP with sessions.
pub(crate) const NEWEST_REVISION: &str = "2025-11-25";

/// The revision before Streamable HTTP.
pub(crate) const OLDEST_REVISION: &str = "2024-11-05";

/// The revision from which on a stream begins with an event that has an id and no data.
const PRIMED_FROM: &str = "2025-11-25";

/// The only revision that has batches.
pub(crate) const WITH_BATCHES: &str = "2025-03-26";

/// Revisions that are served; they are dates, so they sort.
pub(crate) const REVISIONS: [&str; 4] =
    [OLDEST_REVISION, WITH_BATCHES, "2025-06-18", NEWEST_REVISION];

/// Whether the streams of a session of this revision begin with an empty event. Clients of older ones choke
/// on it.
pub(crate) fn is_primed(revision: &str) -> bool {
    revision >= PRIMED_FROM
}
