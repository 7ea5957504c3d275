//! What the server behind says of itself, and `server/discover`.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::asked::StatelessRequest;
use super::respond::json_answer;
use super::shape;
use super::upstream::UpstreamSession;
use super::wire::TASKS;
use crate::mcp::message::read;
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;

/// A server, in its own words.
#[derive(Debug, Default)]
pub(super) struct ServerDescription {
    /// What it can do, as clients of this revision are told.
    pub(super) capabilities: Map<String, Value>,
    /// Its name and version.
    pub(super) info: Option<Box<RawValue>>,
    pub(super) instructions: Option<String>,
}

impl ServerDescription {
    /// As it introduced itself to the client of an older revision.
    pub(super) fn from_handshake(result: &RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Hello {
            capabilities: Map<String, Value>,
            server_info: Option<Box<RawValue>>,
            instructions: Option<String>,
        }
        let Hello { mut capabilities, server_info, instructions } = read(Some(result));
        capabilities.remove("tasks"); // of an older form
        if capabilities.contains_key("tools") {
            let extensions = capabilities.entry("extensions").or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.insert(TASKS.to_owned(), json!({}));
            }
        }
        Self { capabilities, info: server_info, instructions }
    }

    /// Whether it says that it does something, e.g. `tools`, `listChanged`.
    pub(super) fn does(&self, feature: &str, what: &str) -> bool {
        let said = self.capabilities.get(feature).and_then(|feature| feature.get(what));
        said == Some(&Value::Bool(true))
    }
}

/// `server/discover`: which revisions there are, and what the server can do.
pub(super) async fn discover(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
) -> Result<Response, McpFailure> {
    let upstream = UpstreamSession::of(client, front, asked).await?;
    let server = &upstream.server;
    let mut result = json!({
        "supportedVersions": front.settings.mcp.revisions.streamable(),
        "capabilities": server.capabilities,
    });
    if let Some(instructions) = &server.instructions {
        result["instructions"] = instructions.as_str().into();
    }
    if upstream.alone {
        front.service.sessions().end_and_forget(upstream.record.id());
    }
    let result = shape::result(&asked.method, server, &result.to_string());
    Ok(json_answer(&asked.id, &result))
}
