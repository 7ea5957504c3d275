//! Bounds of what callers can make the server hold or send, in one place. Bounds of the protocol itself
//! are in [`rejoin_core::limits`].

/// Bytes that a client may say of itself when it creates a session: they stand in every record of every
/// list.
pub(crate) const CLIENT_BYTES: usize = 16 * 1024;

/// Bytes of records in one page of a list, unless the first record alone is larger. A page that reaches
/// this bound ends early and says where to go on.
pub(crate) const LIST_BYTES: usize = 1024 * 1024;

/// Bytes of the parameters of an MCP `initialize`: they are kept for as long as the session, to introduce
/// the client to another server.
pub(crate) const HANDSHAKE_BYTES: usize = 64 * 1024;

/// Bytes of a JSON-RPC id or a progress token of a client, as it is written: it is kept for as long as its request is
/// under way, outside of what is counted for the caller, and stands in every answer and report.
pub(crate) const RPC_ID_BYTES: usize = 1024;

/// Bytes of the parameters of `logging/setLevel`, which are kept like the handshake.
pub(crate) const LEVEL_BYTES: usize = 1024;

/// Subscriptions of one MCP session …
pub(crate) const SUBSCRIPTIONS: usize = 1_000;

/// … and bytes of their parameters in all: they are made again for another server, and are stored
/// together whenever one changes.
pub(crate) const SUBSCRIPTION_BYTES: usize = 256 * 1024;

/// Sessions of `/sse` whose stream broke that are remembered, so that a client that does not name its session
/// can have it again; each for a minute. Beyond that such a client gets a new one.
pub(crate) const SSE_LEFT: usize = 1_000;

/// Calls of stateless MCP clients that wait, after their stream broke, for the same call to come again; what breaks then is
/// cancelled at once …
pub(crate) const BROKEN_CALLS: usize = 10_000;

/// … those of one principal …
pub(crate) const BROKEN_CALLS_OF_PRINCIPAL: usize = BROKEN_CALLS / 4;

/// … and equal ones of one client.
pub(crate) const EQUAL_BROKEN_CALLS: usize = 1_000;

/// Bytes of the file of timelines. There are two of them at most.
pub(crate) const TIMELINE_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes of what dead agents wrote to standard error, in the timelines of all sessions together; the oldest moments go.
pub(crate) const TIMELINE_STDERR_BYTES: usize = 8 * 1024 * 1024;

/// Lines of standard error that are kept of a child …
pub(crate) const LAST_STDERR_LINES: usize = 20;

/// … and bytes of them in all.
pub(crate) const LAST_STDERR_BYTES: usize = 4 * 1024;

/// Lines of an agent that are no event, and of an MCP server that are no message, that are logged in a minute …
pub(crate) const STRAY_LINES_A_MINUTE: u32 = 10;

/// … and bytes that are logged of each.
pub(crate) const STRAY_BYTES: usize = 400;

/// Bytes of the file of samples: more than those of an hour take. There are two of them at most.
pub(crate) const SAMPLES_FILE_BYTES: u64 = 1024 * 1024;

/// Failed attempts at one session that one principal may make in a minute.
pub(crate) const SESSION_FAILURES_A_MINUTE: u32 = 10;

/// Successful attempts at one session in a minute: a flapping network is no attack.
pub(crate) const SESSION_SUCCESSES_A_MINUTE: u32 = 60;

/// Failed attempts that one principal may make from one address in a minute.
pub(crate) const CALLER_FAILURES_A_MINUTE: u32 = 30;

/// Audit records in a minute of one kind of access that an administrator has to one session of another principal: who looks
/// at it all the time leaves one record a minute.
pub(crate) const ADMIN_RECORDS_A_MINUTE: u32 = 1;

/// Audit records in a minute of credentials that were rejected from one address …
pub(crate) const REJECTED_CREDENTIALS_A_MINUTE: u32 = 30;

/// … and from all addresses together.
pub(crate) const REJECTED_CREDENTIALS_IN_ALL_A_MINUTE: u32 = 300;

/// Bounds of a store that is opened without settings (`embed.rs`); the binary's defaults are the same.
#[cfg(feature = "embedded")]
pub(crate) mod embed {
    use std::time::Duration;

    /// Bytes kept for all sessions together.
    pub(crate) const MAX_BUFFERED_BYTES: u64 = 1024 * 1024 * 1024;

    /// How much of them is in memory.
    pub(crate) const MEMORY_BYTES: u64 = 256 * 1024 * 1024;

    /// Free bytes of the disk below which nothing new is taken.
    pub(crate) const DISK_RESERVE: u64 = 64 * 1024 * 1024;

    /// Records of the audit trail.
    pub(crate) const AUDIT_MAX: usize = 100_000;

    /// How long sessions that the last process left behind are kept.
    pub(crate) const KEEP_FOR: Duration = Duration::from_secs(24 * 60 * 60);
}

/// Publications of one agent, of any kind, that may be on their way to the store; while there are so many nothing more is
/// heard from it.
pub(crate) const SAYINGS_ON_THEIR_WAY: usize = 64;
