//! What goes wrong with a stateless request. The code of an error chooses the status, wherever it comes from.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::wire::{HEADER_MISMATCH, INTERNAL, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::mcp::own_words::{RpcError, code};
use crate::service::Denial;
use crate::web::mcp::McpFailure;

/// The status that goes with the code of an error.
pub(super) fn status_of(code: i64) -> StatusCode {
    let is = |known: i32| code == i64::from(known);
    let of_the_request = [
        code::PARSE,
        code::INVALID_REQUEST,
        code::INVALID_PARAMS,
        HEADER_MISMATCH,
        MISSING_CAPABILITY,
        UNSUPPORTED_VERSION,
    ];
    match code {
        _ if is(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        _ if of_the_request.into_iter().any(is) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A request is refused.
pub(super) fn refuse(code: i32, sentence: impl Into<Box<str>>) -> McpFailure {
    McpFailure::new(status_of(code.into()), RpcError::new(code, sentence))
}

/// The client has not declared a capability that the request needs.
pub(super) fn missing_capability(required: Value) -> RpcError {
    let data = json!({ "requiredCapabilities": required });
    let sentence = "the client has not declared a capability that this request needs";
    RpcError { data: Some(data), ..RpcError::new(MISSING_CAPABILITY, sentence) }
}

/// The server itself says no: it is full, goes down, or its store does not work.
pub(super) fn denied(denial: Denial) -> McpFailure {
    let reason = denial.reason().as_str();
    McpFailure::from(denial).instead(INTERNAL, reason)
}
