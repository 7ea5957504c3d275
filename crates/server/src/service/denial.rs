//! Why something was not done for a caller, and what it is told about that. Every code, reason and
//! sentence is chosen here; the true reason goes to the audit trail.

use std::time::Duration;

use rejoin_core::codes::{ErrorCode, Reason};
use rejoin_core::record::Ending;
use rejoin_core::seal::{OpenError, SealError};
use rejoin_core::state::{
    AppendRefused, AttachRefused, EndRefused, EnterRefused, NoRoom, OverBound, RenewRefused,
    RestoreRefused, SessionOver, TokenFault,
};
use rejoin_core::token::TokenRefusal;
use rejoin_core::worker::PublishRefused;
use rejoin_store::{CreateRefused, Failure, Unavailable};

use super::busy;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// There is no such session, or it is somebody else's: the caller can't tell.
    NotFound,
    /// The session is over.
    Ended(Ending),
    /// A client is attached, and the later one does not win.
    AlreadyAttached,
    /// The token does not lead anywhere.
    Token(TokenProblem),
    /// The sealed state is no good.
    State(StateProblem),
    /// Too many attempts.
    RateLimited {
        /// When to try again.
        retry_after: Duration,
    },
    /// A bound of the server, the principal or the session is reached.
    Busy {
        /// Which, as a sentence.
        why: Box<str>,
        /// When to try again.
        retry_after: Duration,
    },
    /// The connection was replaced by a later one.
    Superseded,
    /// The request itself is wrong.
    Invalid(Box<str>),
    /// A part of the request is larger than it may be.
    TooLarge(Box<str>),
    /// The id can be none, or is taken.
    IdInvalid(Box<str>),
    /// The caller may not do that.
    Forbidden,
    /// The store does not work.
    Unavailable,
}

/// What is wrong with a reconnect token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenProblem {
    /// None of ours.
    Invalid,
    /// Past its expiry.
    Expired,
    /// Of another session.
    OtherSession,
    /// For another purpose.
    OtherPurpose,
    /// Not one that the session has.
    Unknown,
    /// Used before.
    Reused,
}

/// What is wrong with a sealed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateProblem {
    /// Changed, or another server's or principal's.
    NotAuthentic,
    /// Past its expiry.
    Expired,
    /// Its session was ended, or a newer one of its line has gone.
    Superseded,
    /// It does not fit into a seal.
    TooLarge,
}

impl Denial {
    /// The code on the wire.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound => ErrorCode::SessionNotFound,
            Self::Ended(Ending::Expired) => ErrorCode::SessionExpired,
            Self::Ended(Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp) => {
                ErrorCode::SessionClosed
            }
            Self::AlreadyAttached => ErrorCode::SessionAlreadyActive,
            Self::Token(TokenProblem::Expired) => ErrorCode::TokenExpired,
            Self::Token(TokenProblem::Reused) => ErrorCode::TokenReused,
            Self::Token(
                TokenProblem::Invalid
                | TokenProblem::OtherSession
                | TokenProblem::OtherPurpose
                | TokenProblem::Unknown,
            ) => ErrorCode::TokenInvalid,
            Self::State(StateProblem::NotAuthentic) => ErrorCode::StateVerificationFailed,
            Self::State(StateProblem::Expired) => ErrorCode::StateExpired,
            Self::State(StateProblem::Superseded) => ErrorCode::StateSuperseded,
            Self::State(StateProblem::TooLarge) => ErrorCode::StateTooLarge,
            Self::RateLimited { .. } => ErrorCode::RateLimited,
            Self::Busy { .. } => ErrorCode::ServerBusy,
            Self::Superseded => ErrorCode::SessionNotOwned,
            Self::Invalid(_) => ErrorCode::InvalidMessage,
            Self::TooLarge(_) => ErrorCode::MessageTooLarge,
            Self::IdInvalid(_) => ErrorCode::IdInvalid,
            Self::Forbidden => ErrorCode::Unauthorized,
            Self::Unavailable => ErrorCode::DatabaseUnavailable,
        }
    }

    /// The reason in the audit trail, and over HTTP.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotFound | Self::Forbidden | Self::IdInvalid(_) => Reason::SessionNotFound,
            Self::Ended(Ending::Expired) => Reason::SessionExpired,
            Self::Ended(Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp)
            | Self::Superseded
            | Self::State(StateProblem::Superseded) => Reason::SessionAlreadyDisconnected,
            Self::Token(problem) => match problem {
                TokenProblem::Invalid => Reason::InvalidToken,
                TokenProblem::Expired => Reason::TokenExpired,
                TokenProblem::OtherSession => Reason::SessionIdMismatch,
                TokenProblem::OtherPurpose => Reason::InvalidTokenPurpose,
                TokenProblem::Unknown => Reason::TokenMismatch,
                TokenProblem::Reused => Reason::TokenReused,
            },
            Self::State(StateProblem::NotAuthentic | StateProblem::TooLarge)
            | Self::Invalid(_)
            | Self::TooLarge(_) => Reason::InvalidToken,
            Self::State(StateProblem::Expired) => Reason::TokenExpired,
            Self::RateLimited { .. } => Reason::RateLimited,
            Self::Busy { .. } => Reason::ServerBusy,
            Self::AlreadyAttached => Reason::SessionAlreadyActive,
            Self::Unavailable => Reason::DatabaseUnavailable,
        }
    }

    /// A sentence that a person can act on.
    pub fn sentence(&self) -> String {
        match self {
            Self::NotFound => "Session not found; create a new one".into(),
            Self::Ended(Ending::Expired) => "Session expired, please create new session".into(),
            Self::Ended(Ending::Closed) => "Session was ended; create a new one".into(),
            Self::Ended(Ending::Restored { .. }) => {
                "Session goes on in another one that was restored from it".into()
            }
            Self::Ended(Ending::CleanedUp) => {
                "Session was cleaned up after its connection had gone; create a new one".into()
            }
            Self::AlreadyAttached => {
                "Another connection is attached to the session; bring a reconnect token, or wait"
                    .into()
            }
            Self::Token(TokenProblem::Expired) => "The reconnect token has expired".into(),
            Self::Token(TokenProblem::Reused) => {
                "The reconnect token was used before; all tokens of the session are revoked".into()
            }
            Self::Token(
                TokenProblem::Invalid
                | TokenProblem::OtherSession
                | TokenProblem::OtherPurpose
                | TokenProblem::Unknown,
            ) => "The reconnect token is not valid for this session".into(),
            Self::State(StateProblem::NotAuthentic) => {
                "Invalid or tampered state: signature mismatch; export it again".into()
            }
            Self::State(StateProblem::Expired) => "State snapshot is too old".into(),
            Self::State(StateProblem::Superseded) => {
                "The snapshot's session was ended, or went on without it; create a new session"
                    .into()
            }
            Self::State(StateProblem::TooLarge) => {
                "The state is larger than max_state_bytes".into()
            }
            Self::RateLimited { .. } => "Too many attempts; try again later".into(),
            Self::Busy { why, .. }
            | Self::Invalid(why)
            | Self::TooLarge(why)
            | Self::IdInvalid(why) => why.to_string(),
            Self::Superseded => "Another connection has taken the session over".into(),
            Self::Forbidden => "This credential does not allow that".into(),
            Self::Unavailable => {
                "The database does not answer, so it is not known whether this was done; \
                                  try again later"
                    .into()
            }
        }
    }

    /// When to try again, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Busy { retry_after, .. } => {
                Some(*retry_after)
            }
            Self::Unavailable => Some(RETRY_STORE),
            Self::AlreadyAttached => Some(RETRY_ATTACHED),
            Self::NotFound
            | Self::Ended(_)
            | Self::Token(_)
            | Self::State(_)
            | Self::Superseded
            | Self::Invalid(_)
            | Self::TooLarge(_)
            | Self::IdInvalid(_)
            | Self::Forbidden => None,
        }
    }
}

/// A store that failed needs somebody to look at it.
const RETRY_STORE: Duration = Duration::from_secs(5);

/// Whoever is attached may be a dead connection that is noticed soon.
const RETRY_ATTACHED: Duration = Duration::from_secs(5);

/// Somebody may have made room on the disk by then.
const RETRY_PAUSED: Duration = Duration::from_secs(5);

/// The agent may have caught up by then.
const RETRY_FULL: Duration = Duration::from_secs(1);

/// What is held goes as sessions end and agents catch up, which takes a while.
const RETRY_OVER_BOUND: Duration = Duration::from_secs(5);

impl Denial {
    /// The store takes nothing new for now. Nothing was changed.
    pub(crate) fn paused() -> Self {
        let why = "The server's disk is nearly full, so nothing new is taken; try again later";
        Self::Busy { why: why.into(), retry_after: RETRY_PAUSED }
    }
}

impl From<Unavailable> for Denial {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

impl<R: Into<Denial>> From<Failure<R>> for Denial {
    fn from(failure: Failure<R>) -> Self {
        match failure {
            Failure::NotFound => Self::NotFound,
            Failure::Refused(refused) => refused.into(),
            Failure::Unavailable(_) => Self::Unavailable,
        }
    }
}

impl From<TokenFault> for Denial {
    fn from(fault: TokenFault) -> Self {
        Self::Token(match fault {
            TokenFault::Unknown => TokenProblem::Unknown,
            TokenFault::Reused => TokenProblem::Reused,
        })
    }
}

impl From<TokenRefusal> for Denial {
    fn from(refusal: TokenRefusal) -> Self {
        Self::Token(match refusal {
            TokenRefusal::Invalid => TokenProblem::Invalid,
            TokenRefusal::Expired { .. } => TokenProblem::Expired,
            TokenRefusal::SessionIdMismatch => TokenProblem::OtherSession,
            TokenRefusal::InvalidPurpose => TokenProblem::OtherPurpose,
        })
    }
}

impl From<CreateRefused> for Denial {
    fn from(refused: CreateRefused) -> Self {
        match refused {
            CreateRefused::Exists => Self::IdInvalid("that session id is taken".into()),
            CreateRefused::OverBound(over) => over.into(),
            CreateRefused::NoRoom(no_room) => no_room.into(),
            CreateRefused::Paused => Self::paused(),
        }
    }
}

impl From<AttachRefused> for Denial {
    fn from(refused: AttachRefused) -> Self {
        match refused {
            AttachRefused::Foreign => Self::NotFound,
            AttachRefused::Ended(ending) => Self::Ended(ending),
            AttachRefused::AlreadyAttached => Self::AlreadyAttached,
            AttachRefused::Token(fault) => fault.into(),
        }
    }
}

impl From<RenewRefused> for Denial {
    fn from(refused: RenewRefused) -> Self {
        match refused {
            RenewRefused::Foreign => Self::NotFound,
            RenewRefused::Ended(ending) => Self::Ended(ending),
            RenewRefused::Token(fault) => fault.into(),
        }
    }
}

impl From<SessionOver> for Denial {
    fn from(SessionOver(ending): SessionOver) -> Self {
        Self::Ended(ending)
    }
}

impl From<OverBound> for Denial {
    fn from(over: OverBound) -> Self {
        Self::Busy { why: over.to_string().into(), retry_after: RETRY_OVER_BOUND }
    }
}

impl From<EnterRefused> for Denial {
    fn from(refused: EnterRefused) -> Self {
        match refused {
            EnterRefused::Stale(_) => Self::Superseded,
            EnterRefused::Ended(ending) => Self::Ended(ending),
            EnterRefused::OtherContent { .. } => Self::Invalid(refused.to_string().into()),
            EnterRefused::OverBound(over) => over.into(),
            EnterRefused::Paused => Self::paused(),
            EnterRefused::Full { .. } => {
                Self::Busy { why: refused.to_string().into(), retry_after: RETRY_FULL }
            }
        }
    }
}

impl From<PublishRefused> for Denial {
    fn from(refused: PublishRefused) -> Self {
        let busy = || Self::Busy { why: refused.to_string().into(), retry_after: RETRY_FULL };
        match &refused {
            PublishRefused::NoLease | PublishRefused::Busy(_) => busy(),
            PublishRefused::Refused(AppendRefused::Ended(ending)) => Self::Ended(ending.clone()),
            PublishRefused::Refused(AppendRefused::OverBound(over)) => (*over).into(),
            PublishRefused::Refused(AppendRefused::OtherContent { .. }) => {
                Self::Invalid(refused.to_string().into())
            }
            PublishRefused::Refused(AppendRefused::Paused) => Self::paused(),
            PublishRefused::Refused(_) => busy(),
        }
    }
}

impl From<EndRefused> for Denial {
    fn from(refused: EndRefused) -> Self {
        match refused {
            EndRefused::Stale(_) => Self::Superseded,
            EndRefused::Already | EndRefused::Attached | EndRefused::NotDue(_) => {
                Self::Ended(Ending::Closed)
            }
        }
    }
}

impl From<NoRoom> for Denial {
    fn from(no_room: NoRoom) -> Self {
        busy(match no_room {
            NoRoom::Server => "The server has as many sessions as it may (max_sessions)",
            NoRoom::Principal => {
                "You have as many sessions as you may (max_sessions_per_principal); end some"
            }
        })
    }
}

impl From<RestoreRefused> for Denial {
    fn from(refused: RestoreRefused) -> Self {
        match refused {
            RestoreRefused::Foreign { .. } => Self::State(StateProblem::NotAuthentic),
            RestoreRefused::Paused => Self::paused(),
            RestoreRefused::Superseded => Self::State(StateProblem::Superseded),
            RestoreRefused::AlreadyAttached { .. } => Self::AlreadyAttached,
            RestoreRefused::OverBound(over) => over.into(),
            RestoreRefused::NoRoom(no_room) => no_room.into(),
            RestoreRefused::Implausible { .. } => Self::Invalid(refused.to_string().into()),
        }
    }
}

impl From<OpenError> for Denial {
    fn from(error: OpenError) -> Self {
        Self::State(match error {
            OpenError::NotAuthentic => StateProblem::NotAuthentic,
            OpenError::Expired { .. } => StateProblem::Expired,
            OpenError::TooLarge => StateProblem::TooLarge,
        })
    }
}

impl From<SealError> for Denial {
    fn from(SealError::TooLarge { .. }: SealError) -> Self {
        Self::State(StateProblem::TooLarge)
    }
}
