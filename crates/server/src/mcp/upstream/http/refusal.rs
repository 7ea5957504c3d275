//! What an answer means that is no success.

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde::Deserialize;

use super::talk::Talk;
use crate::mcp::garbled::unmarked;
use crate::mcp::message::{Message, RequestId, read};
use crate::mcp::own_words::{RpcError, code};

/// What is read of an answer that is no success.
pub(super) const READ: usize = 64 * 1024;

/// Why a request was not carried out.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The server has forgotten the session, and has not looked at the request.
    Forgotten,
    /// It said why, in JSON-RPC: this is the error.
    Said(Box<str>),
    /// It refused the request: this is to be said.
    Refused(RpcError),
    /// It failed, before or after it had done something.
    Failed,
}

/// What an answer means that is no success, to a request of this id or to what has none.
pub(super) async fn of(
    talk: &Talk,
    answer: Response<Incoming>,
    asked: Option<&RequestId>,
) -> Refusal {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), READ).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    match judge(status, &String::from_utf8_lossy(&body), talk.knowledge(), asked) {
        Verdict::Clear(refusal) => refusal,
        Verdict::Unclear(otherwise) => match talk.is_forgotten().await {
            true => Refusal::Forgotten,
            false => otherwise,
        },
    }
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

/// What an answer says by itself.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// This.
    Clear(Refusal),
    /// The server may have forgotten the session: it has to be asked. If it has not, it means this.
    Unclear(Refusal),
}

/// Only what proves that the request was not processed is taken for a session that is forgotten: such a request is
/// made again. A JSON-RPC answer with the request's own id proves the contrary, whatever the status.
fn judge(status: StatusCode, body: &str, known: Knowledge, asked: Option<&RequestId>) -> Verdict {
    let said = Message::parse(unmarked(body)).ok();
    let answered = said.as_ref().zip(asked).is_some_and(|(said, asked)| said.answers(asked));
    let has_session = known != Knowledge::None;
    let forgotten = match answered {
        true => says_no_such_session(status, said.as_ref()),
        false => is_forgotten(status, body),
    };
    if has_session && forgotten {
        return Verdict::Clear(Refusal::Forgotten);
    }
    let refusal = refused(status, said.as_ref());
    let unclear = known == Knowledge::Unconfirmed
        && !answered
        && status.is_client_error()
        && status != StatusCode::PAYLOAD_TOO_LARGE;
    if unclear { Verdict::Unclear(refusal) } else { Verdict::Clear(refusal) }
}

/// What an answer means of a server that has the session.
fn refused(status: StatusCode, said: Option<&Message>) -> Refusal {
    if let Some(error) = said.and_then(Message::error) {
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

/// There are servers that say "Session not found" under the id of the request, too: with the status and the code
/// that SDKs have for it, and for nothing else.
fn says_no_such_session(status: StatusCode, said: Option<&Message>) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Error {
        code: i64,
        message: String,
    }
    let Error { code, message } = read(said.and_then(Message::error));
    let no_session = code == i64::from(code::NO_SESSION);
    status == StatusCode::NOT_FOUND
        && no_session
        && message.to_ascii_lowercase().contains("session")
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

    const ASKED: u64 = 7;

    fn verdict(status: u16, body: &str, known: Knowledge) -> Verdict {
        let status = StatusCode::from_u16(status).unwrap();
        judge(status, body, known, Some(&RequestId::number(ASKED)))
    }

    fn judged(status: u16, body: &str) -> Refusal {
        match verdict(status, body, Knowledge::Confirmed) {
            Verdict::Clear(refusal) => refusal,
            Verdict::Unclear(refusal) => panic!("{refusal:?} is clear"),
        }
    }

    #[test]
    fn servers_say_in_several_ways_that_they_have_forgotten_a_session() {
        let unknown = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
        let named =
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#;
        assert_eq!(judged(404, ""), Refusal::Forgotten);
        assert_eq!(judged(404, named), Refusal::Forgotten);
        assert_eq!(judged(400, unknown), Refusal::Forgotten);
        assert_eq!(judged(400, "Bad Request: Server not initialized"), Refusal::Forgotten);
        assert_eq!(judged(401, "Unauthorized: Session not found"), Refusal::Forgotten);
        assert_ne!(judged(401, "who are you?"), Refusal::Forgotten);
    }

    #[test]
    fn an_answer_with_the_requests_own_id_is_the_answer_whatever_the_status() {
        for (id, message) in
            [("7", "no"), ("\"7\"", "no valid session"), ("7.0", "not initialized")]
        {
            let error = format!(r#"{{"code":-32000,"message":"{message}"}}"#);
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
            for status in [400, 401, 403, 404, 409, 413, 422, 500] {
                for known in [Knowledge::None, Knowledge::Unconfirmed, Knowledge::Confirmed] {
                    let said = Verdict::Clear(Refusal::Said(error.as_str().into()));
                    assert_eq!(verdict(status, &body, known), said, "{status} {body}");
                }
            }
        }
    }

    #[test]
    fn a_session_from_before_that_is_refused_in_other_words_is_asked_for() {
        let unclear = |status, body| {
            matches!(verdict(status, body, Knowledge::Unconfirmed), Verdict::Unclear(_))
        };
        let other = r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32000,"message":"no"}}"#;
        assert!(unclear(400, "who?") && unclear(401, "who?") && unclear(403, other));
        assert!(!unclear(413, "who?") && !unclear(502, "who?"));
        let known = verdict(404, "who?", Knowledge::Unconfirmed);
        assert_eq!(known, Verdict::Clear(Refusal::Forgotten));
    }

    #[test]
    fn without_a_session_nothing_is_forgotten() {
        let refused = verdict(404, "", Knowledge::None);
        let Verdict::Clear(Refusal::Refused(error)) = refused else { panic!("{refused:?}") };
        assert!(error.message.contains("404"));
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
