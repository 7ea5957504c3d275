//! Who makes a request, and from where.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};

use super::Front;
use super::answer::{Failure, refuse};
use crate::access::{Caller, Unauthorized};
use crate::service::Visitor;

/// Somebody who calls over HTTP, as an extractor.
pub(super) struct OverHttp(pub(super) Visitor);

/// The same, from this machine; where there is no authentication nobody else may ask for everybody's
/// sessions and credentials.
pub(super) struct Nearby(pub(super) Visitor);

/// The same; nobody, if a credential is asked for and the request brings none.
pub(super) struct Perhaps(pub(super) Option<Visitor>);

impl FromRequestParts<Arc<Front>> for OverHttp {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let caller = front.caller(&parts.headers)?;
        Ok(Self(Visitor { caller, address: address(parts), over: "http" }))
    }
}

impl FromRequestParts<Arc<Front>> for Nearby {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let OverHttp(visitor) = OverHttp::from_request_parts(parts, front).await?;
        let nearby = visitor.address.is_none_or(|address| is_nearby(&address));
        if front.settings.open && !nearby {
            let sentence = "Without authentication this answers callers on the same machine only";
            return Err(refuse(StatusCode::FORBIDDEN, sentence));
        }
        Ok(Self(visitor))
    }
}

impl FromRequestParts<Arc<Front>> for Perhaps {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        match Nearby::from_request_parts(parts, front).await {
            Ok(Nearby(visitor)) => Ok(Self(Some(visitor))),
            Err(_) if !front.settings.open && credential(&parts.headers) == Ok(None) => {
                Ok(Self(None))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn is_nearby(address: &IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Front {
    /// Who calls, by the credential in the headers.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Unauthorized> {
        match credential(headers) {
            Ok(Some(credential)) => self.access.authenticate(credential, self.service.now()),
            Ok(None) | Err(Unauthorized) => self.access.without_credential(),
        }
    }
}

/// The credential that a request brings, if it brings one. Two of them are refused: who calls must not
/// depend on which one is read first.
pub(super) fn credential(headers: &HeaderMap) -> Result<Option<&str>, Unauthorized> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(|value| {
        let text = value.to_str().map_err(|_| Unauthorized)?;
        let (scheme, token) = text.split_once(' ').ok_or(Unauthorized)?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        if is_bearer { Ok(token.trim()) } else { Err(Unauthorized) }
    });
    let keys = headers.get_all("x-api-key").iter();
    let keys = keys.map(|value| value.to_str().map_err(|_| Unauthorized));
    let mut all = bearer.chain(keys);
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => one.map(Some),
        (Some(_), Some(_)) => Err(Unauthorized),
    }
}

/// Where a request comes from, if the server was told to note it.
pub(super) fn address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
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
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("authorization", "Bearer k")]), Ok(Some("k".into())));
        assert_eq!(read(&[("authorization", "bearer  k ")]), Ok(Some("k".into())));
        assert_eq!(read(&[("x-api-key", "k")]), Ok(Some("k".into())));
        assert_eq!(read(&[("authorization", "Basic k")]), Err(Unauthorized));
        assert_eq!(read(&[("authorization", "Bearer k"), ("x-api-key", "k")]), Err(Unauthorized));
    }
}
