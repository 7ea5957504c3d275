//! Who makes a request, and from where.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};

use super::Front;
use super::answer::{Failure, refuse};
use super::credentials::credential;
use super::receiving::Sender;
use crate::access::PresentedFrom;
use crate::service::Visitor;

/// Somebody who calls over HTTP, as an extractor.
pub(super) struct OverHttp(pub(super) Visitor);

/// The same, from this machine; where there is no authentication nobody else may ask for everybody's
/// sessions and credentials.
pub(super) struct Nearby(pub(super) Visitor);

/// The same; nobody, if a credential is asked for and the request brings none.
pub(super) struct Perhaps(pub(super) Option<Visitor>);

/// Somebody who calls over HTTP, and whether they look after the server: an administrator, or where there is no
/// authentication somebody on this machine.
pub(super) struct Operator {
    pub(super) visitor: Visitor,
    pub(super) operates: bool,
}

impl FromRequestParts<Arc<Front>> for OverHttp {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let (address, over) = (address(parts), "http");
        let caller = front.caller(&parts.headers, PresentedFrom { address, over }).await?;
        Sender::of(front, &caller, address).note(&mut parts.extensions);
        Ok(Self(Visitor { caller, address, over }))
    }
}

impl FromRequestParts<Arc<Front>> for Nearby {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let OverHttp(visitor) = OverHttp::from_request_parts(parts, front).await?;
        if front.settings.open && !is_of_this_machine(parts) {
            let sentence = "Without authentication this answers callers on the same machine only";
            return Err(refuse(StatusCode::FORBIDDEN, sentence));
        }
        Ok(Self(visitor))
    }
}

impl FromRequestParts<Arc<Front>> for Operator {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let OverHttp(visitor) = OverHttp::from_request_parts(parts, front).await?;
        let operates = match front.settings.open {
            true => is_of_this_machine(parts),
            false => visitor.caller.admin,
        };
        Ok(Self { visitor, operates })
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

/// Headers that proxies add. A request with one of them comes from wherever the proxy was called, though the
/// connection is of this machine.
const OF_PROXIES: [&str; 9] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "true-client-ip",
    "cf-connecting-ip",
    "fly-client-ip",
];

/// Whether a proxy says that it passes the request on for somebody.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-forwarded-") || OF_PROXIES.contains(&name)
    })
}

/// Whether a request was made on this machine, and not passed on by a proxy here.
pub(super) fn is_of_this_machine(parts: &Parts) -> bool {
    address(parts).is_none_or(|address| is_nearby(&address)) && !is_forwarded(&parts.headers)
}

fn is_nearby(address: &IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Where a request comes from, if the server was told to note it.
pub(super) fn address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}
