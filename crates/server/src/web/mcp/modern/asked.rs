//! A stateless request: all that must be known to serve it stands in it.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use serde::de::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::failure::refuse;
use super::headers;
use super::wire::{TASKS, meta};
use crate::mcp::members::Members;
use crate::mcp::message::{Kind, Message, RequestId, read};
use crate::mcp::own_words::{code, request};
use crate::web::mcp::{McpFailure, Revisions};

/// Members as they were written.
type RawMembers = Members<Box<RawValue>>;

/// What tells two requests apart: equal ones of a client may be one that came twice.
pub(super) type Digest = [u8; 32];

/// A request of revision 2026-07-28 whose form is right.
pub(super) struct StatelessRequest {
    pub(super) id: RequestId,
    pub(super) method: Box<str>,
    /// What the server behind gets of its parameters.
    params: RawMembers,
    /// What it gets of their `_meta`.
    meta: RawMembers,
    /// What progress is to be reported under.
    pub(super) token: Option<Box<RawValue>>,
    /// What the client says of itself.
    pub(super) client: Option<Box<RawValue>>,
    /// What the client can do.
    pub(super) capabilities: Map<String, Value>,
    /// The least severe message of the server's log that the client wants.
    pub(super) log_level: Option<String>,
    /// Answers to what the server asked, or will ask.
    pub(super) responses: BTreeMap<String, Box<RawValue>>,
    /// Where the call stood that these answers are for.
    pub(super) state: Option<String>,
    /// Of everything but `_meta`.
    pub(super) digest: Digest,
    /// The same without answers and state: equal in all rounds of a call.
    pub(super) call_digest: Digest,
}

impl StatelessRequest {
    /// Reads a request, and checks that its headers agree with it.
    pub(super) fn read(
        message: &Message,
        headers: &HeaderMap,
        revisions: &Revisions,
    ) -> Result<Self, McpFailure> {
        let Kind::Request { id, method } = message.kind() else {
            return Err(McpFailure::bad("it is no request"));
        };
        let asked = Self::parse(id, method, message, headers, revisions);
        asked.map_err(|failure| failure.answering(Some(id)))
    }

    fn parse(
        id: &RequestId,
        method: &str,
        message: &Message,
        headers: &HeaderMap,
        revisions: &Revisions,
    ) -> Result<Self, McpFailure> {
        let mut params: RawMembers = read(message.params());
        let envelope = params.take("_meta").ok_or_else(|| invalid("`_meta` is missing"))?;
        let mut envelope: RawMembers = read(Some(&*envelope));
        let version = text(envelope.take(meta::VERSION));
        let version =
            version.ok_or_else(|| invalid(&format!("`_meta` has no {}", meta::VERSION)))?;
        headers::check_version(headers, &version, revisions)?;
        headers::check_routing(headers, method, params.named(method)?.as_deref())?;
        let capabilities = envelope.take(meta::CAPABILITIES);
        let capabilities = capabilities.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let capabilities = capabilities
            .ok_or_else(|| invalid(&format!("`_meta` has no {}", meta::CAPABILITIES)))?;
        if method == "tools/call" {
            params.take("task"); // it means something to an older server, and nothing in this revision
        }
        let digest = params.digest(method);
        let responses = match params.take("inputResponses") {
            Some(raw) => responses(&raw)?,
            None => BTreeMap::new(),
        };
        let state = match params.take("requestState") {
            Some(raw) => Some(text(Some(raw)).ok_or_else(|| invalid("`requestState` is no text"))?),
            None => None,
        };
        Ok(Self {
            id: id.clone(),
            method: method.into(),
            token: envelope.take(meta::PROGRESS),
            client: envelope.take(meta::CLIENT),
            capabilities,
            log_level: text(envelope.take(meta::LOG_LEVEL)),
            responses,
            state,
            digest,
            call_digest: params.digest(method),
            params,
            meta: envelope,
        })
    }

    /// The request that the server behind gets, under an id and a progress token of ours.
    pub(super) fn forwarded(&self, id: &RequestId) -> String {
        let token = self.token.as_ref().map(|_| (meta::PROGRESS, id.as_json()));
        let meta = object(self.meta.each().chain(token));
        let meta = Some(("_meta", &*meta)).filter(|(_, text)| *text != "{}");
        let params = object(self.params.each().chain(meta));
        request(id, &self.method, serde_json::from_str(&params).ok())
    }

    /// A parameter that is a text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        text(self.params.get(name).cloned())
    }

    /// A parameter, if it is there and of that form.
    pub(super) fn required<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.params.get(name)?.get()).ok()
    }

    /// The name by which the client goes; empty if it has none.
    pub(super) fn client_name(&self) -> String {
        let about: Map<String, Value> = read(self.client.as_deref());
        about.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Whether the client understands tasks.
    pub(super) fn knows_tasks(&self) -> bool {
        self.capabilities
            .get("extensions")
            .is_some_and(|extensions| extensions.get(TASKS).is_some())
    }

    /// Whether the client declares a capability.
    pub(super) fn declares(&self, capability: &str) -> bool {
        self.capabilities.contains_key(capability)
    }
}

/// Whether a body is a request with `_meta` that names a revision.
pub(super) fn names_a_revision(body: &[u8]) -> bool {
    let key = meta::VERSION.as_bytes();
    if !body.windows(key.len()).any(|part| part == key) {
        return false;
    }
    #[derive(Default, serde::Deserialize)]
    struct Body {
        #[serde(default)]
        params: Params,
    }
    #[derive(Default, serde::Deserialize)]
    struct Params {
        #[serde(default, rename = "_meta")]
        meta: RawMembers,
    }
    let body = serde_json::from_slice::<Body>(body).unwrap_or_default();
    body.params.meta.get(meta::VERSION).is_some()
}

/// What tells a request that the server behind was given apart from others, as [`StatelessRequest::call_digest`].
pub(super) fn digest_of(request: &Message) -> Digest {
    let mut params: RawMembers = read(request.params());
    params.take("_meta");
    params.digest(request.method().unwrap_or_default())
}

/// Answers must be objects, one for each question.
fn responses(raw: &RawValue) -> Result<BTreeMap<String, Box<RawValue>>, McpFailure> {
    let wrong = || invalid("`inputResponses` must be an object of objects");
    let all: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(raw.get()).map_err(|_| wrong())?;
    let good = all.values().all(|value| value.get().starts_with('{'));
    if good { Ok(all) } else { Err(wrong()) }
}

/// The parameters are not what the revision demands.
pub(super) fn invalid(sentence: &str) -> McpFailure {
    refuse(code::INVALID_PARAMS, sentence)
}

fn text(raw: Option<Box<RawValue>>) -> Option<String> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// A JSON object of these members.
pub(super) fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let members = members.map(|(name, value)| format!("{}:{value}", Value::from(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

impl RawMembers {
    fn each(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.get()))
    }

    /// What a request is about, where a header must say that too.
    fn named(&self, method: &str) -> Result<Option<String>, McpFailure> {
        let member = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return Ok(None),
        };
        let named = text(self.get(member).cloned());
        named.map(Some).ok_or_else(|| invalid(&format!("`{member}` is missing, or is no text")))
    }

    /// The same for equal members in whatever order.
    fn digest(&self, method: &str) -> Digest {
        let members = self.0.iter().map(|(name, raw)| (name, read::<Value>(Some(&**raw))));
        let members = members.collect::<BTreeMap<_, _>>();
        let text = serde_json::to_string(&(method, members)).unwrap_or_default();
        Sha256::digest(text).into()
    }
}
