//! MCP over HTTP with server-sent events, revision 2024-11-05: one stream for everything a session has to
//! say, `GET /sse`, and messages to it by `POST /message?sessionId=`.
//!
//! The stream is a reader of the whole out log. A client that comes back names its session, and gets what
//! lies after the last event it has seen; if it does not know that, what lies after the place where its
//! stream before began. That place is the session's ack, which outlives this process.
//!
//! | file | concern |
//! |---|---|
//! | `stream.rs` | `GET /sse` |
//! | `message.rs` | `POST /message` |
//! | `returning.rs` | clients that come back without a name |
//! | `failure.rs` | what goes wrong, as these clients are told |

mod failure;
mod message;
mod returning;
mod stream;

pub(crate) use self::returning::Left;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::routing::{get, post};
use rejoin_core::record::Transport;
use serde::Deserialize;

use crate::access::PresentedFrom;
use crate::service::{Visitor, transport_word};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::identity::Identity;
use crate::web::receiving::Sender;
use crate::web::visitor::address;

/// What a client is known as in records and in the audit trail.
const OVER: Transport = Transport::Sse;

/// Where a client begins, and comes back to.
const BEGIN: &str = "/sse";

/// The routes.
pub(super) fn routes() -> Router<Arc<Front>> {
    Router::new()
        .route(BEGIN, get(stream::open).head(super::no_head))
        .route("/message", post(message::post))
}

/// Somebody who calls over this transport.
struct SseCaller {
    visitor: Visitor,
    identity: Identity,
}

impl FromRequestParts<Arc<Front>> for SseCaller {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let from = PresentedFrom { address: address(parts), over: transport_word(OVER) };
        let caller = front.caller(&parts.headers, from).await?;
        Sender::of(front, &caller, address(parts)).note(&mut parts.extensions);
        let identity = Identity::of(front, &caller, parts);
        Ok(Self { visitor: Visitor::over(OVER, caller, address(parts)), identity })
    }
}

/// The session that a query names.
#[derive(Deserialize)]
struct SessionQuery {
    #[serde(rename = "sessionId")]
    session: Option<String>,
}
