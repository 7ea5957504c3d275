//! The audit trail: one record for every attempt to get at a session, with its true reason.

use rejoin_core::SessionId;
use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::state::{AttachRefused, RenewRefused, TokenFault};

/// One attempt and how it ended. It never holds a token, a key or a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Who tried what, and from where.
    pub attempt: Attempt,
    /// How it ended.
    pub reason: Reason,
}

impl AuditRecord {
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
        attempt.map(|attempt| Self { attempt: attempt.clone(), reason })
    }

    /// About how many bytes it takes where it is shown.
    pub fn shown_bytes(&self) -> usize {
        let Attempt { at: _, session_id, principal, address, transport, action } = &self.attempt;
        let id = session_id.as_ref().map_or(0, |id| id.as_str().len());
        let address = address.as_ref().map_or(0, |address| address.len());
        256 + id + principal.as_str().len() + address + transport.len() + action.len()
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
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Only those of this session.
    pub session_id: Option<SessionId>,
    /// Only those older than this place, which an earlier page named.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// At most so many bytes, as [`AuditRecord::shown_bytes`] counts them, unless the first record has more.
    pub max_bytes: usize,
}

/// None at all, however large.
impl Default for AuditQuery {
    fn default() -> Self {
        Self { session_id: None, before: None, limit: 0, max_bytes: usize::MAX }
    }
}

/// Audit records, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
    /// The place to read on from, if there is more.
    pub next: Option<u64>,
}

impl AuditPage {
    /// The page that a query asks for, of the records that it may have in their order, each with its place. No more
    /// are read than one beyond the page, which says that there is more.
    pub(crate) fn fill<E>(
        query: &AuditQuery,
        records: impl IntoIterator<Item = Result<(u64, AuditRecord), E>>,
    ) -> Result<Self, E> {
        let (mut page, mut last, mut bytes) = (Self::default(), None, 0_usize);
        for read in records {
            let (place, record) = read?;
            bytes = bytes.saturating_add(record.shown_bytes());
            let too_large = bytes > query.max_bytes && !page.records.is_empty();
            if page.records.len() >= query.limit || too_large {
                page.next = last;
                break;
            }
            last = Some(place);
            page.records.push(record);
        }
        Ok(page)
    }
}
