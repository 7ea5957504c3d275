//! What goes wrong, as clients of this transport are told.

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::super::failure::McpFailure;
use super::BEGIN;
use crate::service::Denial;
use crate::web::answer::Failure;

/// The header that says where to begin again.
const RECONNECT_TO: &str = "x-reconnect-to";

/// A failure on its way to a client.
#[derive(Debug)]
pub(super) enum LegacyFailure {
    /// The session is unknown or over: the client has to begin again.
    Stale { status: StatusCode, why: Denial },
    /// Somebody may not do that, or not now.
    Denied(Denial),
    /// The message is no message.
    Message(McpFailure),
}

impl From<Denial> for LegacyFailure {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<McpFailure> for LegacyFailure {
    fn from(failure: McpFailure) -> Self {
        Self::Message(failure)
    }
}

impl IntoResponse for LegacyFailure {
    fn into_response(self) -> Response {
        match self {
            Self::Stale { status, why } => stale(status, &why),
            Self::Denied(denial) => Failure::from(denial).into_response(),
            Self::Message(failure) => failure.into_response(),
        }
    }
}

fn stale(status: StatusCode, why: &Denial) -> Response {
    let body = json!({
        "detail": why.sentence(),
        "error_code": why.code().as_str(),
        "reason": why.reason().as_str(),
        "reconnect_to": BEGIN,
    });
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(RECONNECT_TO, HeaderValue::from_static(BEGIN));
    response
}
