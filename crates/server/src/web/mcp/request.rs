//! What a request must be like: who makes it, for which session, and what it accepts.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use rejoin_core::SessionId;
use rejoin_core::record::Record;

use super::early::Early;
use super::post::request_id;
use super::{McpFailure, OVER, PROTOCOL_VERSION, SESSION_ID};
use crate::access::PresentedFrom;
use crate::mcp::message::{Message, NoMessage, RequestId};
use crate::mcp::own_words::{RpcError, code};
use crate::mcp::{REVISIONS, WITH_BATCHES};
use crate::service::{Denial, Visitor, transport_word};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::identity::Identity;
use crate::web::receiving::{NotReceived, Received, Sender};
use crate::web::visitor::address;

/// Messages in one batch: their answers must fit into the log until all of them are entered.
const MOST_IN_BATCH: usize = 100;

/// Somebody who calls over MCP.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) visitor: Visitor,
    pub(super) identity: Identity,
}

impl FromRequestParts<Arc<Front>> for Client {
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

impl Client {
    /// The session that a request names: one of the caller's own that goes on.
    pub(super) async fn session(
        &self,
        front: &Front,
        headers: &HeaderMap,
    ) -> Result<Record, McpFailure> {
        let id = named_session(headers)?;
        let record = front.service.mcp_session(&self.visitor, &id).await?;
        check_offered(front, headers, &record).await?;
        Ok(record)
    }
}

/// A revision that is named must be offered, or be that of the session: it may have been agreed upon when it
/// was offered.
async fn check_offered(
    front: &Front,
    headers: &HeaderMap,
    record: &Record,
) -> Result<(), McpFailure> {
    let offered = &front.settings.mcp.revisions;
    let named = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    let Some(named) = named.filter(|named| !offered.offers(named)) else { return Ok(()) };
    let sessions = front.service.sessions();
    let hub = sessions.hubs().of(record.id());
    let agreed = hub.revision(sessions.store()).await.map_err(Denial::from)?;
    if agreed == Some(named) {
        return Ok(());
    }
    let offered = offered.streamable().join(", ");
    Err(McpFailure::bad(format!("MCP-Protocol-Version must be one of {offered}")))
}

/// The session that a request names.
pub(super) fn named_session(headers: &HeaderMap) -> Result<SessionId, McpFailure> {
    let mut all = headers.get_all(SESSION_ID).iter();
    let named = all.next().and_then(|value| value.to_str().ok());
    if all.next().is_some() {
        return Err(McpFailure::bad("Mcp-Session-Id is there twice"));
    }
    let named = named.ok_or_else(|| {
        McpFailure::bad(
            "Mcp-Session-Id is missing: begin with `initialize`, and send the id you get",
        )
    })?;
    check_revision(headers)?;
    Ok(SessionId::parse(named).map_err(|_| Denial::NotFound)?)
}

/// The revision that a client speaks with a session, by the name that it gives it; nothing before there is one. Of
/// a session that it went over to it may be another one than was agreed upon there, perhaps by somebody else.
pub(super) async fn revision(
    front: &Front,
    headers: &HeaderMap,
    named: &SessionId,
    record: &Record,
) -> Result<Option<Box<str>>, Denial> {
    let means_it = named == record.id() || named.as_str() == record.id().client_name();
    if !means_it {
        let said = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
        return Ok(Some(said.unwrap_or(WITH_BATCHES).into())); // later ones have to say it
    }
    let sessions = front.service.sessions();
    let hub = sessions.hubs().of(record.id());
    Ok(hub.revision(sessions.store()).await?.map(Into::into))
}

/// A revision that is named must be one that is served.
fn check_revision(headers: &HeaderMap) -> Result<(), McpFailure> {
    let mut all = headers.get_all(PROTOCOL_VERSION).iter();
    let Some(named) = all.next() else { return Ok(()) };
    if all.next().is_some() {
        return Err(McpFailure::bad("MCP-Protocol-Version is there twice"));
    }
    let served = named.to_str().is_ok_and(|named| REVISIONS.contains(&named));
    let sentence = format!("MCP-Protocol-Version must be one of {}", REVISIONS.join(", "));
    if served { Ok(()) } else { Err(McpFailure::bad(sentence)) }
}

/// What a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) events: bool,
    pub(super) json: bool,
    /// Whether it says that it reads a stream of answers, and waits for ever when that breaks.
    pub(super) forgets_streams: bool,
}

/// What clients call themselves that do not notice when the stream of an answer breaks, nor go on with it:
/// `@ai-sdk/mcp` (2.0: `processEvents` in `HttpMCPTransport.send` rejects no request). When a response in one
/// piece breaks, they do.
const FORGETS_STREAMS: &str = "ai-sdk/";

impl Accepts {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<Range> = all.flat_map(|value| value.split(',')).filter_map(range).collect();
        let takes = |name: &str, family: &str| {
            // The most exact one counts: `text/event-stream;q=0, */*` takes all but that.
            let named = [name, family, "*/*"].map(|kind| ranges.iter().find(|it| it.kind == kind));
            ranges.is_empty() || named.into_iter().flatten().next().is_some_and(|it| it.wanted)
        };
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        Self {
            events: takes("text/event-stream", "text/*"),
            json: takes("application/json", "application/*"),
            forgets_streams: agent.is_some_and(|agent| agent.contains(FORGETS_STREAMS)),
        }
    }

    /// Whether requests are answered with a stream.
    pub(super) fn streams(self) -> bool {
        self.events && !(self.json && self.forgets_streams)
    }

    /// How a response begins before there is an answer; nothing if it must not.
    pub(super) fn early(self) -> Option<Early> {
        match (self.streams(), self.json && self.forgets_streams) {
            (true, _) => Some(Early::Events),
            (false, true) => Some(Early::Json),
            (false, false) => None,
        }
    }
}

/// One of the things that a client says of what it accepts.
struct Range {
    kind: String,
    /// Whether it is accepted at all: a weight of zero says that it is not.
    wanted: bool,
}

fn range(text: &str) -> Option<Range> {
    let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().filter(|kind| !kind.is_empty())?;
    let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
    Some(Range { kind, wanted: weight != Some(0.0) })
}

/// The refusal of a client that accepts nothing there is.
pub(super) fn not_acceptable(sentence: &str) -> McpFailure {
    let error = RpcError::new(code::INVALID_REQUEST, sentence);
    McpFailure::new(StatusCode::NOT_ACCEPTABLE, error)
}

/// Reads the body of a request.
pub(super) async fn receive(front: &Front, request: Request) -> Result<Received, McpFailure> {
    let max = front.settings.mcp.max_bytes;
    Received::read(front, request, max).await.map_err(|why| match why {
        NotReceived::Broken => unreadable("the body did not come whole"),
        NotReceived::Full(full) => Denial::from(full).into(),
        NotReceived::TooLarge => {
            let sentence = format!("a message has at most {max} bytes");
            let error = RpcError::new(code::INVALID_REQUEST, sentence);
            McpFailure::new(StatusCode::PAYLOAD_TOO_LARGE, error)
        }
    })
}

/// The messages of a body, and whether they came as a batch.
pub(super) fn messages(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Vec<Message>, bool), McpFailure> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let error = RpcError::new(code::INVALID_REQUEST, "Content-Type must be application/json");
        return Err(McpFailure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    let text = std::str::from_utf8(body).map_err(|_| unreadable("the body is not UTF-8"))?;
    if !text.trim_start().starts_with('[') {
        return Ok((vec![Message::of_client(text)?], false));
    }
    let batch: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))?;
    if batch.is_empty() {
        return Err(McpFailure::bad("a batch has at least one message"));
    }
    if batch.len() > MOST_IN_BATCH {
        return Err(McpFailure::bad(format!("a batch has at most {MOST_IN_BATCH} messages")));
    }
    let messages = batch.into_iter().map(|raw| Message::of_client(raw.get()));
    let messages: Vec<Message> = messages.collect::<Result<_, _>>()?;
    let ids: Vec<RequestId> = messages.iter().filter_map(request_id).collect();
    if ids.iter().collect::<HashSet<_>>().len() < ids.len() {
        return Err(McpFailure::bad("two requests of a batch have the same id"));
    }
    Ok((messages, true))
}

fn unreadable(sentence: &str) -> McpFailure {
    McpFailure::new(StatusCode::BAD_REQUEST, RpcError::new(code::PARSE, sentence))
}

impl From<NoMessage> for McpFailure {
    fn from(why: NoMessage) -> Self {
        match &why {
            NoMessage::Unreadable(_) => unreadable(&why.to_string()),
            NoMessage::Invalid(_) => Self::bad(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: Option<&str>) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(ACCEPT, value.parse().unwrap());
        }
        let Accepts { events, json, .. } = Accepts::of(&headers);
        (events, json)
    }

    #[test]
    fn a_client_accepts_what_it_names_and_everything_if_it_names_nothing() {
        assert_eq!(accepts(Some("application/json, text/event-stream")), (true, true));
        assert_eq!(accepts(Some("application/json;q=0.9")), (false, true));
        assert_eq!(accepts(Some("Text/Event-Stream")), (true, false));
        assert_eq!(accepts(Some("image/png")), (false, false));
        assert_eq!(accepts(Some("*/*")), (true, true));
        assert_eq!(accepts(Some("application/json, text/event-stream; q=0")), (false, true));
        assert_eq!(accepts(Some("text/event-stream;q=0.0, */*;q=0.1")), (false, true));
        assert_eq!(accepts(Some("*/*;q=0")), (false, false));
        assert_eq!(accepts(None), (true, true));
    }
}
