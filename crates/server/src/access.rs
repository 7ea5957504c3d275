//! Who is calling. How that is proved is for the embedder to choose; what follows from it is decided
//! by those who know the sessions, on every operation.

use std::net::IpAddr;

use rejoin_core::Principal;
use tokio::sync::watch;

use crate::clock::WallTime;

/// A caller, as authentication established it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The owner of the sessions it makes, and the only one who may use them.
    pub principal: Principal,
    /// Whether it may see and end everybody's sessions.
    pub admin: bool,
    /// Whether it may publish events into sessions.
    pub publish: bool,
    /// When its credential runs out: a connection that came with it is closed then.
    pub until: Option<WallTime>,
    /// What the credential is known by, if it can be revoked before it runs out.
    pub credential: Option<CredentialId>,
}

/// Identifies a credential, or the key that signed it, without revealing either. Two that differ have
/// different ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialId(pub [u8; 16]);

/// Without the bytes: they may be the beginning of a hash.
impl std::fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialId(…)")
    }
}

/// From where a credential is presented, and over what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresentedFrom {
    pub(crate) address: Option<IpAddr>,
    /// As the audit trail spells it.
    pub(crate) over: &'static str,
}

/// Why a credential was rejected. For logs, metrics and the audit trail; the caller is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialFault {
    /// There is none.
    Missing,
    /// It can't be read: not a bearer token, two credentials in one request, not a JSON web token.
    Malformed,
    /// No key here is that key, or has signed that token.
    UnknownKey,
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It is made by another issuer.
    Issuer,
    /// It is made for another audience.
    Audience,
    /// It names no principal that can be one.
    Subject,
}

impl CredentialFault {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Malformed,
        Self::UnknownKey,
        Self::Expired,
        Self::NotYetValid,
        Self::Issuer,
        Self::Audience,
        Self::Subject,
    ];

    /// As logs, metrics and the audit trail spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Subject => "subject",
        }
    }

    /// What is wrong with it, for people who read the log.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Missing => "there is none",
            Self::Malformed => "it is neither an API key nor a signed token, or there are two",
            Self::UnknownKey => "no key of this server is that key, or has signed that token",
            Self::Expired => "its `exp` has passed: the client should get a new one",
            Self::NotYetValid => "its `nbf` has not come: compare the clocks of issuer and server",
            Self::Issuer => "its `iss` is not the issuer in the settings",
            Self::Audience => "its `aud` has not the audience in the settings",
            Self::Subject => "its `sub` can't be the name of a principal",
        }
    }
}

/// The credential is missing or no good. The sentence does not say which of the two, or why: that is in
/// `fault`, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("say who you are: send an API key or a token as `Authorization: Bearer …` or `X-API-Key`")]
pub struct Unauthorized {
    /// Why.
    pub fault: CredentialFault,
}

impl From<CredentialFault> for Unauthorized {
    fn from(fault: CredentialFault) -> Self {
        Self { fault }
    }
}

/// Finds out who is calling.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller behind a credential, which is secret: it belongs in no log and no error.
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized>;

    /// The caller that has no credential, where that is allowed.
    fn without_credential(&self) -> Result<Caller, Unauthorized> {
        Err(CredentialFault::Missing.into())
    }

    /// Whether the credential that this caller came with has not been revoked since. If it has, its
    /// connections are closed.
    fn is_current(&self, _caller: &Caller) -> bool {
        true
    }

    /// Changes when [`Authenticate::is_current`] may have. A closed channel never changes.
    fn revocations(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// No authentication: everybody is `anonymous`, whatever they present.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Open {
    fn anonymous() -> Caller {
        Caller {
            principal: Principal::anonymous(),
            admin: false,
            publish: true,
            until: None,
            credential: None,
        }
    }
}

impl Authenticate for Open {
    fn authenticate(&self, _: &str, _: WallTime) -> Result<Caller, Unauthorized> {
        Ok(Self::anonymous())
    }

    fn without_credential(&self) -> Result<Caller, Unauthorized> {
        Ok(Self::anonymous())
    }
}
