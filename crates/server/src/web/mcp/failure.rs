//! What goes wrong with an MCP request, as a status of HTTP and an error of JSON-RPC.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::mcp::message::RequestId;
use crate::mcp::own_words::{RpcError, code, error_response};
use crate::service::Denial;

/// A failure on its way to a client.
#[derive(Debug)]
pub(super) struct McpFailure {
    status: StatusCode,
    error: RpcError,
    /// The request that it answers, if it is one.
    id: Option<RequestId>,
    retry_after: Option<Duration>,
}

impl McpFailure {
    /// The request itself is wrong.
    pub(super) fn bad(sentence: impl Into<Box<str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, RpcError::new(code::INVALID_REQUEST, sentence))
    }

    pub(super) fn new(status: StatusCode, error: RpcError) -> Self {
        Self { status, error, id: None, retry_after: None }
    }

    /// The same under another code, with the reason for programs.
    pub(super) fn instead(mut self, code: i32, reason: &str) -> Self {
        self.error = RpcError { code, ..self.error }.because(reason);
        self
    }

    /// Whether there is no such session, or no more.
    pub(super) fn is_gone(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// It answers this request.
    pub(super) fn answering(mut self, id: Option<&RequestId>) -> Self {
        self.id = id.cloned();
        self
    }
}

impl McpFailure {
    /// What a client is told.
    pub(super) fn body(&self) -> String {
        error_response(self.id.as_ref(), &self.error)
    }
}

impl From<Denial> for McpFailure {
    fn from(denial: Denial) -> Self {
        let sentence = denial.sentence();
        let retry_after = denial.retry_after();
        let (status, error) = match &denial {
            // These clients understand nothing but 404.
            Denial::NotFound | Denial::Ended(_) | Denial::Superseded => {
                let reason = denial.reason().as_str();
                let data = Some(json!({ "reason": reason, "reconnect_to": "/mcp" }));
                let error = RpcError { data, ..RpcError::new(code::NO_SESSION, sentence) };
                (StatusCode::NOT_FOUND, error)
            }
            Denial::Busy { .. } | Denial::Unavailable | Denial::AlreadyAttached => {
                (StatusCode::SERVICE_UNAVAILABLE, RpcError::new(code::UNAVAILABLE, sentence))
            }
            Denial::RateLimited { .. } => {
                let error = RpcError::new(code::UNAVAILABLE, sentence).because("rate_limited");
                (StatusCode::TOO_MANY_REQUESTS, error)
            }
            Denial::Forbidden => {
                (StatusCode::FORBIDDEN, RpcError::new(code::INVALID_REQUEST, sentence))
            }
            Denial::TooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, RpcError::new(code::INVALID_REQUEST, sentence))
            }
            Denial::Token(_) | Denial::State(_) | Denial::Invalid(_) | Denial::IdInvalid(_) => {
                (StatusCode::BAD_REQUEST, RpcError::new(code::INVALID_REQUEST, sentence))
            }
        };
        Self { retry_after, ..Self::new(status, error) }
    }
}

impl IntoResponse for McpFailure {
    fn into_response(self) -> Response {
        let body = self.body();
        let mut response =
            (self.status, [(CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs().max(1);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What answers a request whose result was there.
pub(super) fn result_evicted() -> RpcError {
    let sentence = "the result of this request was there and is no longer kept (result_retention, \
                    buffer_bytes)";
    RpcError::new(code::RESULT_EVICTED, sentence).because("result_evicted")
}

/// What answers a request of a session that has ended.
pub(super) fn session_over() -> RpcError {
    let error = RpcError::new(code::NO_SESSION, "the session has ended");
    error.because("session_already_disconnected")
}

/// What answers a request of a session that its client has left for another one, if there is no answer in that.
pub(super) fn session_left() -> RpcError {
    let sentence = "the session that this request was sent to has ended: its client went over to \
                    another one";
    RpcError::new(code::NO_SESSION, sentence).because("session_already_disconnected")
}
