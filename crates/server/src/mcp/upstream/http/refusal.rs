//! What an answer means that is no success. Whether a request ran is taken from what the specification says, and from
//! nothing else: 404 to a request of a session, in an answer that is not one to that very request, means that the server
//! has no such session and has not looked at it. What else servers say of a session that they have forgotten counts
//! only if they say it of a `ping` as well.

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::talk::Talk;
use crate::mcp::garbled::unmarked;
use crate::mcp::message::{RequestId, read};
use crate::mcp::own_words::{RpcError, code};

/// Why a request was not carried out.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The server has forgotten the session, and has not looked at the request.
    Forgotten,
    /// The server has forgotten the session; whether it has looked at the request is not known.
    ForgottenMeanwhile,
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
    let body = body_of(answer, talk.max_bytes).await;
    match judge(status, body.as_deref(), talk.knowledge(), asked) {
        RefusalVerdict::Clear(refusal) => refusal,
        RefusalVerdict::Unclear { if_so, otherwise } => {
            let Some((id, status, body)) = talk.ping_refused().await else { return otherwise };
            let shown = match is_forgotten(status, body.as_deref(), &id) {
                Some(WithoutSession::Said) => true,
                Some(WithoutSession::Perhaps) => if_so == Refusal::ForgottenMeanwhile,
                None => false,
            };
            if shown { if_so } else { otherwise }
        }
    }
}

/// A body as text; nothing if it did not come whole, or is longer than a message may be.
pub(super) async fn body_of(answer: Response<Incoming>, max_bytes: usize) -> Option<String> {
    let body = Limited::new(answer.into_body(), max_bytes).collect().await.ok()?;
    Some(String::from_utf8_lossy(&body.to_bytes()).into_owned())
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
enum RefusalVerdict {
    /// This.
    Clear(Refusal),
    /// The server may have forgotten the session: it has to be asked.
    Unclear { if_so: Refusal, otherwise: Refusal },
}

fn judge(
    status: StatusCode,
    body: Option<&str>,
    known: Knowledge,
    asked: Option<&RequestId>,
) -> RefusalVerdict {
    let said = RpcWords::of(body.unwrap_or_default(), asked);
    let refusal = refused(status, said.error);
    // Of what did not come whole nobody knows what it answers.
    let (true, Some(body)) = (known != Knowledge::None, body) else {
        return RefusalVerdict::Clear(refusal);
    };
    let by_specification = status == StatusCode::NOT_FOUND && !said.answers;
    if by_specification {
        return RefusalVerdict::Clear(Refusal::Forgotten);
    }
    let in_words = match said.answers {
        true => says_no_such_session(status, said.error),
        false => says_forgotten(status, body),
    };
    if in_words {
        return RefusalVerdict::Unclear { if_so: Refusal::Forgotten, otherwise: refusal };
    }
    let unclear = known == Knowledge::Unconfirmed
        && !said.answers
        && status.is_client_error()
        && status != StatusCode::PAYLOAD_TOO_LARGE;
    match unclear {
        true => RefusalVerdict::Unclear { if_so: Refusal::ForgottenMeanwhile, otherwise: refusal },
        false => RefusalVerdict::Clear(refusal),
    }
}

/// What a refusal says of a session.
#[derive(Debug, PartialEq, Eq)]
enum WithoutSession {
    /// There is none.
    Said,
    /// There may be none: even a request that does nothing is refused.
    Perhaps,
}

/// What the refusal of a `ping` of this id says of its session; nothing if the server has it.
fn is_forgotten(
    status: StatusCode,
    body: Option<&str>,
    ping: &RequestId,
) -> Option<WithoutSession> {
    let body = body.filter(|_| status.is_client_error())?;
    let said = RpcWords::of(body, Some(ping));
    let denied = match said.answers {
        true => says_no_such_session(status, said.error),
        false => status == StatusCode::NOT_FOUND || says_forgotten(status, body),
    };
    match (denied, said.answers) {
        (true, _) => Some(WithoutSession::Said),
        (false, false) => Some(WithoutSession::Perhaps),
        (false, true) => None,
    }
}

/// What an answer means of a server that has the session.
fn refused(status: StatusCode, error: Option<&RawValue>) -> Refusal {
    if let Some(error) = error {
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

/// What a body says in JSON-RPC, or in something like it: as a message, in an array, without a version, in events of a
/// stream. An answer that is not recognised would let a call run a second time.
#[derive(Debug, Default)]
struct RpcWords<'a> {
    /// Whether it names the request that was made.
    answers: bool,
    error: Option<&'a RawValue>,
}

impl<'a> RpcWords<'a> {
    fn of(body: &'a str, asked: Option<&RequestId>) -> Self {
        let body = unmarked(body);
        let mut said = Self::default();
        for data in std::iter::once(body).chain(data_of_events(body)) {
            for value in Deserializer::from_str(data).into_iter::<&RawValue>().map_while(Result::ok)
            {
                let parts: Vec<&RawValue> = match value.get().starts_with('[') {
                    true => read(Some(value)),
                    false => vec![value],
                };
                parts.into_iter().for_each(|part| said.take(part, asked));
            }
        }
        said
    }

    fn take(&mut self, part: &'a RawValue, asked: Option<&RequestId>) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Answer<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let Answer { id, error } = read(Some(part));
        let error = error.filter(|error| error.get().starts_with('{'));
        let id = id.and_then(|id| RequestId::parse(id.get()));
        let answers = id.zip(asked).is_some_and(|(id, asked)| id.names(asked));
        if answers || self.error.is_none() {
            self.error = error.or(self.error);
        }
        self.answers |= answers;
    }
}

/// What stands behind `data:` in a body that is a stream of events, each of which has its data in one line.
fn data_of_events(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| line.strip_prefix("data:"))
}

/// There are servers that say "Session not found" under the id of the request, too: with the status and the code
/// that SDKs have for it, and for nothing else.
fn says_no_such_session(status: StatusCode, error: Option<&RawValue>) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Error {
        code: i64,
        message: String,
    }
    let Error { code, message } = read(error);
    let no_session = code == i64::from(code::NO_SESSION);
    status == StatusCode::NOT_FOUND
        && no_session
        && message.to_ascii_lowercase().contains("session")
}

/// Many servers do not say 404: those made after the examples of the TypeScript SDK say 400 and "No valid session ID
/// provided" or "Server not initialized", older ones of rmcp 401 and "Session not found".
fn says_forgotten(status: StatusCode, body: &str) -> bool {
    let says = |words: &str| body.to_ascii_lowercase().contains(words);
    match status {
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

    const EVERY_KNOWLEDGE: [Knowledge; 3] =
        [Knowledge::None, Knowledge::Unconfirmed, Knowledge::Confirmed];

    fn verdict(status: u16, body: &str, known: Knowledge) -> RefusalVerdict {
        let status = StatusCode::from_u16(status).unwrap();
        judge(status, Some(body), known, Some(&RequestId::number(ASKED)))
    }

    fn judged(status: u16, body: &str) -> Refusal {
        match verdict(status, body, Knowledge::Confirmed) {
            RefusalVerdict::Clear(refusal) => refusal,
            unclear @ RefusalVerdict::Unclear { .. } => panic!("{unclear:?}"),
        }
    }

    fn may_be_forgotten(status: u16, body: &str) -> bool {
        let verdict = verdict(status, body, Knowledge::Confirmed);
        matches!(verdict, RefusalVerdict::Unclear { if_so: Refusal::Forgotten, .. })
    }

    #[test]
    fn servers_say_in_several_ways_that_they_have_forgotten_a_session() {
        let unknown = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
        let named =
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#;
        assert_eq!(judged(404, ""), Refusal::Forgotten);
        assert_eq!(judged(404, unknown), Refusal::Forgotten);
        assert!(may_be_forgotten(404, named) && may_be_forgotten(400, unknown));
        assert!(may_be_forgotten(400, "Bad Request: Server not initialized"));
        assert!(may_be_forgotten(401, "Unauthorized: Session not found"));
        assert!(matches!(judged(401, "who are you?"), Refusal::Refused(_)));
    }

    #[test]
    fn a_ping_that_is_refused_in_those_words_shows_that_a_session_is_forgotten() {
        let ping = RequestId::text("ping");
        let shows =
            |status, body| is_forgotten(StatusCode::from_u16(status).unwrap(), Some(body), &ping);
        let named = r#"{"jsonrpc":"2.0","id":"ping","error":{"code":-32001,"message":"Session not found"}}"#;
        for (status, body) in [(404, ""), (404, named), (400, "No valid session ID provided")] {
            assert_eq!(shows(status, body), Some(WithoutSession::Said), "{body}");
        }
        assert_eq!(shows(400, "no such method"), Some(WithoutSession::Perhaps));
        let answered = r#"{"id":"ping","error":{"code":-32601,"message":"no such method"}}"#;
        assert_eq!(shows(400, answered), None);
        assert_eq!((shows(502, "Session not found"), shows(200, "")), (None, None));
    }

    #[test]
    fn an_answer_with_the_requests_own_id_is_the_answer_whatever_the_status() {
        for (id, message) in
            [("7", "no"), ("\"7\"", "no valid session"), ("7.0", "not initialized")]
        {
            let error = format!(r#"{{"code":-32000,"message":"{message}"}}"#);
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
            for status in [400, 401, 403, 404, 409, 413, 422, 500] {
                for known in EVERY_KNOWLEDGE {
                    let said = RefusalVerdict::Clear(Refusal::Said(error.as_str().into()));
                    assert_eq!(verdict(status, &body, known), said, "{status} {body}");
                }
            }
        }
    }

    #[test]
    fn an_answer_with_the_requests_own_id_is_recognised_in_every_form() {
        let error = r#"{"code":-32000,"message":"Session not found"}"#;
        let long = format!(
            r#"{{"code":1,"message":"Session not found","data":"{}"}}"#,
            "x".repeat(100_000)
        );
        for (form, error) in [
            (r#"{"id":7,"error":ERROR}"#, error),
            (r#"[{"jsonrpc":"2.0","id":7,"error":ERROR}]"#, error),
            (r#"{"jsonrpc":"2.0","method":"m"}{"jsonrpc":"2.0","id":7,"error":ERROR}"#, error),
            ("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"error\":ERROR}\n\n", error),
            (r#"{"jsonrpc":"2.0","error":ERROR,"id":7}"#, &long),
        ] {
            let body = form.replace("ERROR", error);
            for status in [400, 401, 404, 422] {
                for known in EVERY_KNOWLEDGE {
                    let said = RefusalVerdict::Clear(Refusal::Said(error.into()));
                    assert_eq!(verdict(status, &body, known), said, "{status} {form}");
                }
            }
        }
    }

    #[test]
    fn what_did_not_come_whole_proves_nothing() {
        for known in EVERY_KNOWLEDGE {
            let asked = RequestId::number(ASKED);
            let cut = judge(StatusCode::NOT_FOUND, None, known, Some(&asked));
            assert!(matches!(cut, RefusalVerdict::Clear(Refusal::Refused(_))), "{cut:?}");
        }
    }

    #[test]
    fn a_session_from_before_that_is_refused_in_other_words_is_asked_for() {
        let unclear = |status, body| {
            let verdict = verdict(status, body, Knowledge::Unconfirmed);
            matches!(verdict, RefusalVerdict::Unclear { if_so: Refusal::ForgottenMeanwhile, .. })
        };
        let other = r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32000,"message":"no"}}"#;
        assert!(unclear(400, "who?") && unclear(401, "who?") && unclear(403, other));
        assert!(!unclear(413, "who?") && !unclear(502, "who?"));
        let known = verdict(404, "who?", Knowledge::Unconfirmed);
        assert_eq!(known, RefusalVerdict::Clear(Refusal::Forgotten));
    }

    #[test]
    fn without_a_session_nothing_is_forgotten() {
        let refused = verdict(404, "", Knowledge::None);
        let RefusalVerdict::Clear(Refusal::Refused(error)) = refused else { panic!("{refused:?}") };
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
