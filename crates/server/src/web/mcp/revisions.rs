//! The revisions of MCP that clients are offered, and what a client is told that asks for another one.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::McpFailure;
use crate::mcp::message::{Kind, Message, splice};
use crate::mcp::own_words::RpcError;
use crate::mcp::{OLDEST_REVISION, REVISIONS};

/// The revision without sessions.
pub(super) const STATELESS: &str = "2026-07-28";

/// The code for a revision that is not offered.
pub(super) const UNSUPPORTED_VERSION: i32 = -32022;

/// The request with which a session begins.
const INITIALIZE: &str = "initialize";

/// The revisions that are offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// Oldest first.
    offered: Vec<&'static str>,
}

impl Default for Revisions {
    fn default() -> Self {
        Self { offered: Self::known() }
    }
}

impl Revisions {
    /// All that there are, oldest first.
    pub fn known() -> Vec<&'static str> {
        REVISIONS.into_iter().chain([STATELESS]).collect()
    }

    /// Those of a list that are known; all if it names none.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let offered: Vec<_> =
            Self::known().into_iter().filter(|known| names.contains(known)).collect();
        if offered.is_empty() { Self::default() } else { Self { offered } }
    }

    pub(super) fn offers(&self, revision: &str) -> bool {
        self.offered.contains(&revision)
    }

    /// Whether `/sse` and `/message` are there: they are the transport of one revision.
    pub(super) fn has_legacy_transport(&self) -> bool {
        self.offers(OLDEST_REVISION)
    }

    /// Those with Streamable HTTP, newest first, as clients are told.
    pub(super) fn streamable(&self) -> Vec<&'static str> {
        self.offered.iter().copied().filter(|name| *name != OLDEST_REVISION).rev().collect()
    }

    fn newest_with_sessions(&self) -> Option<&'static str> {
        self.offered.iter().copied().rfind(|name| *name != STATELESS)
    }

    /// The error for a revision that is not offered.
    pub(super) fn unsupported(&self, requested: &str) -> RpcError {
        let data = json!({ "supported": self.streamable(), "requested": requested });
        let sentence = "Unsupported protocol version: this revision is not offered here";
        RpcError { data: Some(data), ..RpcError::new(UNSUPPORTED_VERSION, sentence) }
    }

    /// A message as the server behind gets it. `initialize` that asks for a revision that is not offered
    /// asks for the newest one that is, for the server behind can't know that.
    pub(super) fn negotiated(&self, message: Message) -> Result<Message, McpFailure> {
        if message.method() != Some(INITIALIZE) || *self == Self::default() {
            return Ok(message);
        }
        let Some((raw, requested)) = requested(&message) else { return Ok(message) };
        if self.offers(&requested) && requested != STATELESS {
            return Ok(message);
        }
        let Some(newest) = self.newest_with_sessions() else {
            let failure = McpFailure::new(StatusCode::BAD_REQUEST, self.unsupported(&requested));
            return Err(match message.kind() {
                Kind::Request { id, .. } => failure.answering(Some(id)),
                Kind::Notification { .. } | Kind::Response { .. } => failure,
            });
        };
        let text = splice(message.text(), raw.get(), &format!("\"{newest}\""));
        Ok(Message::parse(&text)?)
    }
}

/// The revision that a handshake asks for, as it is written and as it is read.
fn requested(message: &Message) -> Option<(&RawValue, String)> {
    #[derive(Deserialize)]
    struct Hello<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        revision: &'a RawValue,
    }
    let hello: Hello<'_> = serde_json::from_str(message.params()?.get()).ok()?;
    let text = serde_json::from_str(hello.revision.get()).ok()?;
    Some((hello.revision, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(revision: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"a":1,"protocolVersion":"{revision}"}}}}"#
        );
        Message::parse(&text).unwrap()
    }

    fn agreed(offered: &[&str], asked: &str) -> Option<String> {
        let message = Revisions::only(offered.iter().copied()).negotiated(hello(asked)).ok()?;
        requested(&message).map(|(_, text)| text)
    }

    #[test]
    fn every_revision_is_offered_unless_some_are_named() {
        let all = Revisions::default();
        assert_eq!(all.streamable(), ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]);
        assert!(all.has_legacy_transport());
        let some = Revisions::only(["2025-11-25", "2025-03-26"]);
        assert_eq!(some.streamable(), ["2025-11-25", "2025-03-26"]);
        assert!(!some.has_legacy_transport() && !some.offers(STATELESS));
    }

    #[test]
    fn a_handshake_asks_for_what_is_offered() {
        let some = ["2025-06-18", "2025-03-26", "2026-07-28"];
        assert_eq!(agreed(&some, "2025-03-26").as_deref(), Some("2025-03-26"));
        for other in ["2025-11-25", "2024-11-05", "1999-01-01", "2026-07-28"] {
            assert_eq!(agreed(&some, other).as_deref(), Some("2025-06-18"), "{other}");
        }
        assert_eq!(agreed(&[], "1999-01-01").as_deref(), Some("1999-01-01"), "all are offered");
        assert_eq!(agreed(&["2026-07-28"], "2025-11-25"), None);
    }
}
