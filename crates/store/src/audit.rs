//! The audit trail: one record for every attempt to get at a session, with its true reason.

use rejoin_core::codes::Reason;
use rejoin_core::{Principal, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

/// One attempt and how it ended. It never holds a token, a key or a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
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
    /// How it ended.
    pub reason: Reason,
}

impl AuditRecord {
    /// Whether the attempt worked.
    pub fn success(&self) -> bool {
        self.reason == Reason::Reconnected
    }
}

/// Which audit records to read.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only those of this session.
    pub session_id: Option<SessionId>,
    /// Only those older than this place, which an earlier page named.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// Audit records, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
    /// The place to read on from, if there is more.
    pub next: Option<u64>,
}
