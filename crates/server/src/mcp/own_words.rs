//! What Rejoin says by itself in JSON-RPC: requests, notifications, and errors with their codes.

use serde::Serialize;
use serde_json::value::RawValue;

use super::message::RequestId;

/// An answer that says why there is none.
pub(crate) fn error_response(id: Option<&RequestId>, error: &RpcError) -> String {
    let id = id.map_or("null", RequestId::as_json);
    let error = serde_json::to_string(error).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// A request of our own.
pub(crate) fn request(id: &RequestId, method: &str, params: Option<&RawValue>) -> String {
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#),
    }
}

/// A notification of our own.
pub(crate) fn notification(method: &str, params: &serde_json::Value) -> String {
    serde_json::json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// What went wrong, for a JSON-RPC peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RpcError {
    pub(crate) code: i32,
    pub(crate) message: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<serde_json::Value>,
}

/// Codes of JSON-RPC, and of ours.
pub(crate) mod code {
    /// It is no JSON.
    pub(crate) const PARSE: i32 = -32700;
    /// It is no request that can be taken.
    pub(crate) const INVALID_REQUEST: i32 = -32600;
    /// There is no such method.
    pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
    /// The method has no such parameters.
    pub(crate) const INVALID_PARAMS: i32 = -32602;
    /// Something went wrong that is nobody's fault but the server's.
    pub(crate) const INTERNAL: i32 = -32603;
    /// The session is unknown or over.
    pub(crate) const NO_SESSION: i32 = -32001;
    /// The server has no room, goes down, or its store does not work.
    pub(crate) const UNAVAILABLE: i32 = -32002;
    /// What became of a request nobody can know: the server behind the gateway died over it.
    pub(crate) const OUTCOME_UNKNOWN: i32 = -32050;
    /// The result was there, and is no more.
    pub(crate) const RESULT_EVICTED: i32 = -32051;
    /// The server behind the gateway can't be started or reached.
    pub(crate) const UPSTREAM_UNAVAILABLE: i32 = -32052;
}

impl RpcError {
    pub(crate) fn new(code: i32, message: impl Into<Box<str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// With a reason that a program understands.
    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.data = Some(serde_json::json!({ "reason": reason }));
        self
    }
}
