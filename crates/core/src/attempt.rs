//! An attempt to get at a session: who tried what, and from where. A change that uses a reconnect token carries it, so that
//! the store can write its audit record in the same commit as the use.

use crate::ids::{Principal, SessionId};
use crate::time::Timestamp;

/// One attempt, before its outcome is known. It never holds a token, a key or a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// The session that was named, whether it exists or not.
    pub session_id: Option<SessionId>,
    /// Who tried.
    pub principal: Principal,
    /// From where.
    pub address: Option<Box<str>>,
    /// Over what: `websocket`, `http`, `mcp`, …
    pub transport: Box<str>,
    /// What was tried: `reconnect`, `restore`, …
    pub action: Box<str>,
}
