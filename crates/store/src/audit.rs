//! The audit trail: one record for every attempt to get at a session, with its true reason.

use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::state::{AttachRefused, RenewRefused, TokenFault};
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
    /// The record of an attempt that ended like this.
    pub fn of(attempt: Attempt, reason: Reason) -> Self {
        let Attempt { at, session_id, principal, address, transport, action } = attempt;
        Self { at, session_id, principal, address, transport, action, reason }
    }

    /// The record that a store writes in the commit of the change itself: the attempt worked, or it revoked the tokens. A
    /// refusal that changes nothing is for the caller to write down.
    pub fn of_change<T, R: RevokesTokens>(
        attempt: Option<&Attempt>,
        outcome: &Result<T, R>,
    ) -> Option<Self> {
        let reason = match outcome {
            Ok(_) => Reason::Reconnected,
            Err(refused) if refused.revokes_tokens() => Reason::TokenReused,
            Err(_) => return None,
        };
        attempt.map(|attempt| Self::of(attempt.clone(), reason))
    }

    /// Whether the attempt worked.
    pub fn success(&self) -> bool {
        matches!(self.reason, Reason::Reconnected | Reason::AdminAccess)
    }
}

/// A refusal that may have changed its session: a token that was used twice revokes all others.
pub trait RevokesTokens {
    /// Whether it did.
    fn revokes_tokens(&self) -> bool;
}

impl RevokesTokens for AttachRefused {
    fn revokes_tokens(&self) -> bool {
        *self == Self::Token(TokenFault::Reused)
    }
}

impl RevokesTokens for RenewRefused {
    fn revokes_tokens(&self) -> bool {
        *self == Self::Token(TokenFault::Reused)
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
