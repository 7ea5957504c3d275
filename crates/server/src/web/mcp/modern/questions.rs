//! What the server behind asks while it works on a call. A client of this revision is not asked: it is told
//! what is wanted, as the result of its request, and comes again with the answers (MRTR).

use std::collections::{BTreeMap, HashMap};

use rejoin_core::{Seq, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::asked::{StatelessRequest, object};
use super::execution::tell;
use crate::mcp::message::{Kind, Message, RequestId};
use crate::mcp::own_words::{RpcError, error_response};
use crate::service::Denial;
use crate::sessions::Sessions;

/// Under what key a server may name its question, in the `_meta` of its parameters.
const KEY: &str = "rejoin/key";

/// A question that nobody has answered.
#[derive(Clone, Debug)]
pub(super) struct OpenQuestion {
    /// The id under which the gateway knows it: `rejoin-<term>-<number>`.
    pub(super) id: String,
    /// The name by which its client answers it.
    key: String,
    method: String,
    params: Box<RawValue>,
    /// Where it stands in the log.
    pub(super) seq: Seq,
}

/// The questions of a call.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Vec<OpenQuestion>,
    /// Those that were answered.
    pub(super) answered: Vec<String>,
    /// Which answers were used, and for a question of which term: a server that was started again asks
    /// again, and may be given the same answer.
    used: HashMap<String, String>,
}

impl OpenQuestion {
    /// What a message of the server asks; nothing if it is no question.
    pub(super) fn read(message: &Message, seq: Seq) -> Option<Self> {
        let Kind::Request { id, method } = message.kind() else { return None };
        let id: String = serde_json::from_str(id.as_json()).ok()?;
        let empty = || serde_json::from_str("{}").unwrap_or_default();
        let params = message.params().map_or_else(empty, ToOwned::to_owned);
        let key = named(&params).unwrap_or_else(|| given_name(&id, method, &params));
        Some(Self { id, key, method: method.to_string(), params, seq })
    }

    /// The capability that a client needs to answer it.
    pub(super) fn needs(&self) -> Option<&'static str> {
        match self.method.as_str() {
            "elicitation/create" => Some("elicitation"),
            "sampling/createMessage" => Some("sampling"),
            "roots/list" => Some("roots"),
            _ => None,
        }
    }

    /// Whether a server does without an answer: many ask it whenever they start.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.method.as_str(), "roots/list" | "ping")
    }

    /// The term of the server that asked.
    fn term(&self) -> &str {
        self.id.split('-').nth(1).unwrap_or_default()
    }

    /// What the client is told of it.
    pub(super) fn to_json(&self) -> (String, String) {
        let (method, params) = (Value::from(self.method.as_str()), self.params.get());
        (self.key.clone(), format!(r#"{{"method":{method},"params":{params}}}"#))
    }

    /// Answers it with what the client said.
    pub(super) async fn answer(
        &self,
        sessions: &Sessions,
        session: &SessionId,
        result: &RawValue,
    ) -> Result<(), Denial> {
        let id = RequestId::text(&self.id);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        tell(sessions, session, &text).await
    }

    /// Answers it with an error: there is nobody to ask.
    pub(super) async fn decline(
        &self,
        sessions: &Sessions,
        session: &SessionId,
        error: &RpcError,
    ) -> Result<(), Denial> {
        let text = error_response(Some(&RequestId::text(&self.id)), error);
        tell(sessions, session, &text).await
    }

    /// The answer among these that is for it.
    pub(super) fn among<'a>(
        &self,
        responses: &'a BTreeMap<String, Box<RawValue>>,
    ) -> Option<&'a RawValue> {
        responses.get(&self.key).map(|raw| &**raw)
    }
}

impl Questions {
    /// Those of a call that goes on after some were answered.
    pub(super) fn after(answered: Vec<String>) -> Self {
        Self { answered, ..Self::default() }
    }

    /// Whether a question was answered before.
    pub(super) fn is_answered(&self, question: &OpenQuestion) -> bool {
        self.answered.contains(&question.id)
    }

    /// A question that the client is to be told of.
    pub(super) fn add(&mut self, question: OpenQuestion) {
        self.open.push(question);
    }

    /// The server does not ask any more.
    pub(super) fn withdraw(&mut self, message: &Message) {
        let id = message.cancelled_id();
        let id = id.and_then(|id| serde_json::from_str::<String>(id.as_json()).ok());
        self.open.retain(|question| Some(&question.id) != id.as_ref());
    }

    /// The answer that the client has brought along for a question, if it has.
    pub(super) fn answer_for<'a>(
        &mut self,
        question: &OpenQuestion,
        asked: &'a StatelessRequest,
    ) -> Option<&'a RawValue> {
        let same = |key: &str| key == question.key || asks_the_same(key, &question.key);
        let fresh = |key: &str| self.used.get(key).is_none_or(|term| term != question.term());
        let found = asked.responses.iter().find(|(key, _)| same(key) && fresh(key));
        let (key, raw) = found?;
        self.used.insert(key.clone(), question.term().to_owned());
        self.answered.push(question.id.clone());
        Some(raw)
    }

    /// What is open, as the client is told of it.
    pub(super) fn to_json(&self) -> String {
        let each: Vec<_> = self.open.iter().map(OpenQuestion::to_json).collect();
        object(each.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// Before the first that is open.
    pub(super) fn before(&self) -> Option<Seq> {
        self.open.iter().map(|question| question.seq.previous()).min()
    }
}

/// The name that the server gives its question.
fn named(params: &RawValue) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Value,
    }
    let params: Params = serde_json::from_str(params.get()).ok()?;
    params.meta.get(KEY).and_then(Value::as_str).map(str::to_owned)
}

/// A name that says what is asked, then which question it is: `elicitation-1f00a2b3-4-1`.
fn given_name(id: &str, method: &str, params: &RawValue) -> String {
    let kind = method.split('/').next().unwrap_or_default();
    let digest = Sha256::digest(format!("{method}\n{params}"));
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}-{digest}-{}", id.trim_start_matches("rejoin-"))
}

/// Whether two names that we gave are of questions that say the same, asked by different servers.
fn asks_the_same(one: &str, other: &str) -> bool {
    let parts = |name: &str| {
        let mut parts = name.rsplitn(3, '-').map(str::to_owned);
        Some((parts.next()?, parts.next()?, parts.next()?))
    };
    match (parts(one), parts(other)) {
        (Some((_, term, what)), Some((_, other_term, same))) => what == same && term != other_term,
        _ => false,
    }
}

/// Why nobody answers a question.
pub(super) fn nobody_to_ask() -> RpcError {
    let sentence = "the client of this request can't answer that";
    let data = Some(json!({ "reason": "client_capability" }));
    RpcError { data, ..RpcError::new(crate::mcp::own_words::code::METHOD_NOT_FOUND, sentence) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, message: &str) -> OpenQuestion {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{{"message":"{message}"}}}}"#
        );
        OpenQuestion::read(&Message::parse(&text).unwrap(), Seq::new(5)).unwrap()
    }

    #[test]
    fn a_question_of_a_server_started_again_is_the_same_one_and_of_the_same_server_another() {
        let (first, again) = (question("rejoin-1-1", "a"), question("rejoin-2-1", "a"));
        assert!(asks_the_same(&first.key, &again.key));
        assert!(!asks_the_same(&first.key, &question("rejoin-1-2", "a").key));
        assert!(!asks_the_same(&first.key, &question("rejoin-2-1", "b").key));
        assert!(!asks_the_same("user_name", "user_name"));
    }
}
