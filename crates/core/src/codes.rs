//! Every error code, reason and close code of the protocol, in one place. Other files name the
//! failure; what the peer is told about it is chosen here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have one spelling on the wire.
macro_rules! wire_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As it stands on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

wire_words! {
    /// What went wrong with something a client asked for (`metadata.error_code`).
    ErrorCode {
        /// No session of that id, or somebody else's.
        SessionNotFound = "SESSION_NOT_FOUND",
        /// Its time ran out.
        SessionExpired = "SESSION_EXPIRED",
        /// It was ended, but its state was asked for.
        SessionInactive = "SESSION_INACTIVE",
        /// It was ended.
        SessionClosed = "SESSION_CLOSED",
        /// The snapshot is past its expiry.
        StateExpired = "STATE_EXPIRED",
        /// The snapshot's session was ended by its user, or restored from since.
        StateSuperseded = "STATE_SUPERSEDED",
        /// The snapshot was changed, or is another principal's or server's.
        StateVerificationFailed = "STATE_VERIFICATION_FAILED",
        /// Somebody is attached, and the later one does not win.
        SessionAlreadyActive = "SESSION_ALREADY_ACTIVE",
        /// Too many attempts.
        RateLimited = "RATE_LIMITED",
        /// A bound is reached.
        ServerBusy = "SERVER_BUSY",
        /// The store does not answer.
        DatabaseUnavailable = "DATABASE_UNAVAILABLE",
        /// A known session that this connection is not attached to.
        SessionNotOwned = "SESSION_NOT_OWNED",
        /// Nobody said who is calling.
        Unauthorized = "UNAUTHORIZED",
        /// The reconnect token is none of ours, or for something else.
        TokenInvalid = "TOKEN_INVALID",
        /// The reconnect token is past its expiry.
        TokenExpired = "TOKEN_EXPIRED",
        /// The reconnect token was used before.
        TokenReused = "TOKEN_REUSED",
        /// The event needs a session id.
        MissingSessionId = "MISSING_SESSION_ID",
        /// Not the shape of a message.
        InvalidMessage = "INVALID_MESSAGE",
        /// No event of that name.
        UnknownEvent = "UNKNOWN_EVENT",
        /// An ack of something that was never sent.
        AckAhead = "ACK_AHEAD",
        /// Over the limit.
        MessageTooLarge = "MESSAGE_TOO_LARGE",
        /// The state does not fit into a seal.
        StateTooLarge = "STATE_TOO_LARGE",
        /// Not a possible id.
        IdInvalid = "ID_INVALID",
        /// The agent died too often.
        AgentFailed = "AGENT_FAILED",
        /// Our fault.
        InternalError = "INTERNAL_ERROR",
    }
}

wire_words! {
    /// What a client can do about an error (`recovery_action` and `recovery_strategy`).
    Recovery {
        /// The session is gone: begin another.
        CreateNewSession = "create_new_session",
        /// The snapshot is no good: ask for a fresh one.
        ExportStateAgain = "export_state_again",
        /// Nothing is wrong with the request: later it may work.
        RetryLater = "retry_later",
        /// Say again who you are.
        AuthenticateAgain = "authenticate_again",
        /// The request itself is wrong.
        FixRequest = "fix_request",
    }
}

impl ErrorCode {
    /// What the client is advised to do.
    pub const fn recovery(self) -> Recovery {
        match self {
            Self::SessionNotFound
            | Self::SessionExpired
            | Self::SessionInactive
            | Self::SessionClosed
            | Self::StateExpired
            | Self::StateSuperseded => Recovery::CreateNewSession,
            Self::StateVerificationFailed => Recovery::ExportStateAgain,
            Self::SessionAlreadyActive
            | Self::RateLimited
            | Self::ServerBusy
            | Self::DatabaseUnavailable
            | Self::AgentFailed
            | Self::InternalError => Recovery::RetryLater,
            Self::SessionNotOwned
            | Self::Unauthorized
            | Self::TokenInvalid
            | Self::TokenExpired
            | Self::TokenReused => Recovery::AuthenticateAgain,
            Self::MissingSessionId
            | Self::InvalidMessage
            | Self::UnknownEvent
            | Self::AckAhead
            | Self::MessageTooLarge
            | Self::StateTooLarge
            | Self::IdInvalid => Recovery::FixRequest,
        }
    }
}

wire_words! {
    /// How an attempt to reconnect ended, as the audit trail and HTTP spell it.
    Reason {
        /// It worked.
        Reconnected = "reconnected",
        /// The token is for another session.
        SessionIdMismatch = "session_id_mismatch",
        /// The token is for another purpose or audience.
        InvalidTokenPurpose = "invalid_token_purpose",
        /// No such session, or somebody else's.
        SessionNotFound = "session_not_found",
        /// The token is well made but not one that this session has.
        TokenMismatch = "token_mismatch",
        /// The session was ended.
        SessionAlreadyDisconnected = "session_already_disconnected",
        /// The store does not answer.
        DatabaseUnavailable = "database_unavailable",
        /// The token is past its expiry.
        TokenExpired = "token_expired",
        /// Not a token of ours.
        InvalidToken = "invalid_token",
        /// The token was used before: all tokens of the session are revoked.
        TokenReused = "token_reused",
        /// The session's time ran out.
        SessionExpired = "session_expired",
        /// Too many attempts.
        RateLimited = "rate_limited",
        /// Somebody is attached, and the later one does not win.
        SessionAlreadyActive = "session_already_active",
        /// The caller's own session has requests under way, so it can't go over to another one.
        SessionBusy = "session_busy",
        /// The server is full, or going down.
        ServerBusy = "server_busy",
        /// An administrator got at the session of another principal.
        AdminAccess = "admin_access",
        /// The credential can't be read.
        CredentialMalformed = "malformed",
        /// No key is that key, or has signed that credential.
        CredentialUnknownKey = "unknown_key",
        /// The credential's time is over.
        CredentialExpired = "expired",
        /// The credential's time has not begun.
        CredentialNotYetValid = "not_yet_valid",
        /// The credential is made by another issuer.
        CredentialIssuer = "issuer",
        /// The credential is made for another audience.
        CredentialAudience = "audience",
        /// The credential names no principal that can be one.
        CredentialSubject = "subject",
        /// Our fault.
        InternalError = "internal_error",
    }
}

/// Why a connection is closed. 4000–4099 mean "come back", 4100–4199 mean "stop": a client that has
/// never heard of a code still knows what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// The server is going down and will be back.
    Draining,
    /// Nothing was heard of the client for too long.
    HeartbeatLost,
    /// The server has too much to do.
    Busy,
    /// Another connection has taken the session over.
    Superseded,
    /// The session was ended.
    SessionEnded,
    /// The caller may not be here, or no longer.
    NotAuthorised,
    /// Too many bad messages.
    ProtocolAbuse,
}

impl CloseCode {
    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Self::Draining => 4000,
            Self::HeartbeatLost => 4001,
            Self::Busy => 4003,
            Self::Superseded => 4100,
            Self::SessionEnded => 4101,
            Self::NotAuthorised => 4102,
            Self::ProtocolAbuse => 4103,
        }
    }
}

/// What a close code, ours or not, means for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMeaning {
    /// Reconnect after a while.
    ComeBack,
    /// Do not reconnect: it would only do harm.
    Stop,
}

impl CloseMeaning {
    /// Reads a code by its range. Everything that is not ours is a network's doing: come back.
    pub const fn of(code: u16) -> Self {
        match code {
            4100..=4199 => Self::Stop,
            _ => Self::ComeBack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_close_code_says_whether_to_come_back() {
        let expected = [
            (CloseCode::Draining, CloseMeaning::ComeBack),
            (CloseCode::HeartbeatLost, CloseMeaning::ComeBack),
            (CloseCode::Busy, CloseMeaning::ComeBack),
            (CloseCode::Superseded, CloseMeaning::Stop),
            (CloseCode::SessionEnded, CloseMeaning::Stop),
            (CloseCode::NotAuthorised, CloseMeaning::Stop),
            (CloseCode::ProtocolAbuse, CloseMeaning::Stop),
        ];
        for (code, meaning) in expected {
            assert_eq!(CloseMeaning::of(code.code()), meaning, "{code:?}");
        }
        assert_eq!(CloseMeaning::of(1006), CloseMeaning::ComeBack);
        assert_eq!(CloseMeaning::of(4077), CloseMeaning::ComeBack);
        assert_eq!(CloseMeaning::of(4199), CloseMeaning::Stop);
    }
}
