//! From a credential to a caller, and for how long: the one place where the web side authenticates. Every
//! rejection is counted, logged and held against the address it came from.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio::sync::watch;

use super::Front;
use super::guesses::{Guesses, Turn};
use super::limits::LOOK_AT_CLOCK;
use crate::access::{Authenticate, Caller, CredentialFault, PresentedFrom, Unauthorized};
use crate::clock::WallClock;

/// Who has access. The authenticator is private: nothing gets around the limit on guessing.
pub(crate) struct Credentials {
    access: Arc<dyn Authenticate>,
    clock: WallClock,
    guesses: Guesses,
}

/// A credential was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It is missing or bad.
    Unauthorized(Unauthorized),
    /// Too many bad ones came from that address.
    TooMany {
        /// When to try again.
        retry_after: Duration,
    },
}

impl Credentials {
    pub(super) fn new(access: Arc<dyn Authenticate>, clock: WallClock) -> Self {
        Self { access, clock, guesses: Guesses::default() }
    }

    /// The caller without a credential, where that is allowed.
    pub(super) fn without(&self) -> Option<Caller> {
        self.access.without_credential().ok()
    }

    /// How long something may take for a caller that wants to wait so long; nothing if its credential has
    /// ended or was revoked.
    pub(crate) fn patience(&self, caller: &Caller, wanted: Duration) -> Option<Duration> {
        if !self.access.is_current(caller) {
            return None;
        }
        let Some(until) = caller.until else { return Some(wanted) };
        let left = until.since(self.clock.now());
        (left > Duration::ZERO).then(|| left.min(wanted))
    }

    /// When to look again whether a caller's credential is still good: the wall clock may be set
    /// meanwhile. Nothing if it does not end by itself.
    pub(super) fn look_again(&self, caller: &Caller) -> Option<Duration> {
        caller.until.map(|until| until.since(self.clock.now()).min(LOOK_AT_CLOCK))
    }

    /// Changes when a credential may have been revoked.
    pub(super) fn revocations(&self) -> watch::Receiver<u64> {
        self.access.revocations()
    }
}

impl Front {
    /// The caller that a request's headers speak of.
    pub(super) async fn caller(
        &self,
        headers: &HeaderMap,
        from: PresentedFrom,
    ) -> Result<Caller, Rejected> {
        match credential(headers) {
            Ok(Some(credential)) => self.admit(credential, from).await,
            Ok(None) => self.stranger(CredentialFault::Missing, from),
            Err(fault) => self.stranger(fault, from),
        }
    }

    /// The caller behind a credential.
    pub(super) async fn admit(
        &self,
        credential: &str,
        from: PresentedFrom,
    ) -> Result<Caller, Rejected> {
        let Credentials { access, clock, guesses } = &self.credentials;
        match guesses.turn(credential, from.address, self.service.now()) {
            Turn::Now => {}
            Turn::After(wait) => tokio::time::sleep(wait).await,
            Turn::NotBefore(retry_after) => return Err(Rejected::TooMany { retry_after }),
        }
        match access.authenticate(credential, clock.now()) {
            Ok(caller) => {
                guesses.accepted(credential);
                Ok(caller)
            }
            Err(Unauthorized { fault }) => {
                let spent = guesses.failed(from.address, self.service.now());
                self.note_rejection(fault, from);
                Err(match spent {
                    Some(retry_after) => Rejected::TooMany { retry_after },
                    None => Rejected::Unauthorized(fault.into()),
                })
            }
        }
    }

    /// The caller that brings no credential, or none that can be read.
    fn stranger(&self, fault: CredentialFault, from: PresentedFrom) -> Result<Caller, Rejected> {
        self.credentials.without().ok_or_else(|| {
            self.note_rejection(fault, from);
            Rejected::Unauthorized(fault.into())
        })
    }

    /// Tells the operator why a credential was rejected, which the caller is not told. What goes to the log is bounded
    /// as what goes to the audit trail is; every rejection is counted.
    fn note_rejection(&self, fault: CredentialFault, from: PresentedFrom) {
        let PresentedFrom { address, over: transport } = from;
        let address = address.map(|address| tracing::field::display(address.to_canonical()));
        let (reason, why) = (fault.as_str(), fault.explanation());
        self.service.sessions().counted().credential_rejected(fault);
        if self.service.note_rejected_credential(fault, from) {
            tracing::warn!(reason, why, transport, address, "credential rejected");
        } else {
            tracing::debug!(reason, why, transport, address, "credential rejected");
        }
    }

    /// How long something may take for this caller; see [`Credentials::patience`].
    pub(super) fn patience(&self, caller: &Caller, wanted: Duration) -> Option<Duration> {
        self.credentials.patience(caller, wanted)
    }

    /// Forgets which credentials were good whenever some were revoked, in a task that ends with the web side.
    pub(super) fn follow_revocations(self: &Arc<Self>) {
        let (mut revocations, front) = (self.credentials.revocations(), Arc::downgrade(self));
        let following = async move {
            while revocations.changed().await.is_ok() {
                let Some(front) = front.upgrade() else { return };
                front.credentials.guesses.forget_accepted();
            }
        };
        let sessions = self.service.sessions();
        let stopping = sessions.stopping();
        sessions.spawn(|_| async move {
            tokio::select! {
                () = following => {}
                () = stopping => {}
            }
        });
    }
}

/// The credential that a request brings, if it brings one. Two of them are rejected: who calls must not
/// depend on which one is read first.
pub(super) fn credential(headers: &HeaderMap) -> Result<Option<&str>, CredentialFault> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(|value| {
        let text = value.to_str().map_err(|_| CredentialFault::Malformed)?;
        let (scheme, token) = text.split_once(' ').ok_or(CredentialFault::Malformed)?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        if is_bearer { Ok(token.trim()) } else { Err(CredentialFault::Malformed) }
    });
    let keys = headers.get_all("x-api-key").iter();
    let keys = keys.map(|value| value.to_str().map_err(|_| CredentialFault::Malformed));
    let mut all = bearer.chain(keys);
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => one.map(Some),
        (Some(_), Some(_)) => Err(CredentialFault::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_credential_comes_by_either_header_and_never_by_both() {
        let read = |pairs: &[_]| credential(&headers(pairs)).map(|c| c.map(str::to_owned));
        let malformed = Err(CredentialFault::Malformed);
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("authorization", "Bearer k")]), Ok(Some("k".into())));
        assert_eq!(read(&[("authorization", "bearer  k ")]), Ok(Some("k".into())));
        assert_eq!(read(&[("x-api-key", "k")]), Ok(Some("k".into())));
        assert_eq!(read(&[("authorization", "Basic k")]), malformed);
        assert_eq!(read(&[("authorization", "Bearer k"), ("x-api-key", "k")]), malformed);
    }
}
