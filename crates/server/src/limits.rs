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
