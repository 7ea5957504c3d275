//! What an answer means that is no success.

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};

use super::talk::Talk;
use crate::mcp::garbled::unmarked;
use crate::mcp::message::Message;
use crate::mcp::own_words::{RpcError, code};

/// What is read of an answer that is no success.
const READ: usize = 64 * 1024;

/// Why a request was not carried out.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The server has forgotten the session.
    Forgotten,
    /// It said why, in JSON-RPC: this is the error.
    Said(Box<str>),
    /// It refused the request: this is to be said.
    Refused(RpcError),
    /// It failed, before or after it had done something.
    Failed,
}

/// What an answer means that is no success.
pub(super) async fn of(talk: &Talk, answer: Response<Incoming>) -> Refusal {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), READ).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    judge(status, &String::from_utf8_lossy(&body), talk.knowledge())
}

/// What a server has shown to know of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// There is none.
    None,
    /// It was made before we were started, and the server has said nothing since.
    Unconfirmed,
    /// It has answered.
    Confirmed,
}

fn judge(status: StatusCode, body: &str, known: Knowledge) -> Refusal {
    let forgotten = match known {
        Knowledge::None => false,
        // Whatever its words: if it is not that, it says the same again in a new session.
        Knowledge::Unconfirmed => {
            status.is_client_error() && status != StatusCode::PAYLOAD_TOO_LARGE
        }
        Knowledge::Confirmed => is_forgotten(status, body),
    };
    if forgotten {
        return Refusal::Forgotten;
    }
    let said = Message::parse(unmarked(body)).ok();
    if let Some(error) = said.as_ref().and_then(Message::error) {
        return Refusal::Said(error.get().into());
    }
    if status.is_server_error() {
        return Refusal::Failed;
    }
    let hint = if status.is_redirection() { "; name the URL that it leads to" } else { "" };
    let sentence = format!("the MCP server answered {}{hint}", status.as_u16());
    let error = RpcError::new(code::UPSTREAM_UNAVAILABLE, sentence);
    Refusal::Refused(error.because("upstream_refused"))
}

/// A server says with 404 that it has no such session. Many do not: those made after the examples of the
/// TypeScript SDK say 400 and "No valid session ID provided" or "Server not initialized", older ones of rmcp
/// 401 and "Session not found".
fn is_forgotten(status: StatusCode, body: &str) -> bool {
    let says = |words: &str| body.to_ascii_lowercase().contains(words);
    match status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => {
            says("no valid session") || says("session not found") || says("not initialized")
        }
        StatusCode::UNAUTHORIZED => says("session not found"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &str) -> Refusal {
        judge(StatusCode::from_u16(status).unwrap(), body, Knowledge::Confirmed)
    }

    #[test]
    fn servers_say_in_several_ways_that_they_have_forgotten_a_session() {
        let unknown = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
        assert_eq!(judged(404, ""), Refusal::Forgotten);
        assert_eq!(judged(400, unknown), Refusal::Forgotten);
        assert_eq!(judged(400, "Bad Request: Server not initialized"), Refusal::Forgotten);
        assert_eq!(judged(401, "Unauthorized: Session not found"), Refusal::Forgotten);
        assert_ne!(judged(401, "who are you?"), Refusal::Forgotten);
    }

    #[test]
    fn a_session_from_before_is_forgotten_in_whatever_words() {
        let judged = |status| judge(status, "who?", Knowledge::Unconfirmed);
        assert_eq!(judged(StatusCode::BAD_REQUEST), Refusal::Forgotten);
        assert_eq!(judged(StatusCode::UNAUTHORIZED), Refusal::Forgotten);
        assert_ne!(judged(StatusCode::PAYLOAD_TOO_LARGE), Refusal::Forgotten);
        assert_eq!(judged(StatusCode::BAD_GATEWAY), Refusal::Failed);
    }

    #[test]
    fn without_a_session_nothing_is_forgotten() {
        let refused = judge(StatusCode::NOT_FOUND, "", Knowledge::None);
        assert!(matches!(refused, Refusal::Refused(error) if error.message.contains("404")));
    }

    #[test]
    fn what_a_server_says_in_json_rpc_is_passed_on_whatever_the_status() {
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}"#;
        let error = r#"{"code":-32000,"message":"no"}"#;
        for status in [400, 500] {
            assert_eq!(judged(status, body), Refusal::Said(error.into()));
        }
        assert_eq!(judged(500, "oops"), Refusal::Failed);
    }
}
