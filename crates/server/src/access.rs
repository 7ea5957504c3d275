//! Who is calling. How that is proved is for the embedder to choose; what follows from it is decided
//! by those who know the sessions, on every operation.

use rejoin_core::{Principal, Timestamp};

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
    pub until: Option<Timestamp>,
}

/// The credential is missing or no good. Which of the two, and why, is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("say who you are: send an API key or a token as `Authorization: Bearer …` or `X-API-Key`")]
pub struct Unauthorized;

/// Finds out who is calling.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller behind a credential, which is secret: it belongs in no log and no error.
    fn authenticate(&self, credential: &str, now: Timestamp) -> Result<Caller, Unauthorized>;

    /// The caller that has no credential, where that is allowed.
    fn without_credential(&self) -> Result<Caller, Unauthorized> {
        Err(Unauthorized)
    }
}

/// No authentication: everybody is `anonymous`, whatever they present.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Open {
    fn anonymous() -> Caller {
        Caller { principal: Principal::anonymous(), admin: false, publish: true, until: None }
    }
}

impl Authenticate for Open {
    fn authenticate(&self, _: &str, _: Timestamp) -> Result<Caller, Unauthorized> {
        Ok(Self::anonymous())
    }

    fn without_credential(&self) -> Result<Caller, Unauthorized> {
        Ok(Self::anonymous())
    }
}
