//! Clients that lose their session, and go over to it again with `reconnect_session`.

use std::sync::Arc;
use std::time::Duration;

use rejoin::core::SessionId;
use rejoin::mcp::Gateway;
use rejoin::store::{MemoryStore, Store};
use rejoin::web::{McpSettings, WebSettings};
use serde_json::{Value, json};

use super::mcp::{Peer, request, until_covered};
use super::until;
use super::web::{Setup, Web, word};

pub const NEWEST: &str = "2025-11-25";

/// The header in which clients say their revision. Of one that went over to another session nothing else tells it.
pub const REVISION: &str = "mcp-protocol-version";

/// A stream says that often that it has nothing to say.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The built-in server, for alice and bob.
pub async fn serve() -> Web {
    serve_on(Arc::new(MemoryStore::default())).await
}

/// The same, on a store that others may have used before.
pub async fn serve_on(store: Arc<dyn Store>) -> Web {
    let keyed = Setup { store, ..Setup::keyed() };
    let mcp = McpSettings { session_tools: true, ..McpSettings::default() };
    let web = WebSettings { mcp, sse_keep_alive: KEEP_ALIVE, ..keyed.web };
    let gateway = Gateway::built_in().session_tools(true);
    Setup { web, mcp: Some(gateway), ..keyed }.start().await
}

pub async fn call(peer: &Peer<'_>, id: u64, tool: &str, arguments: Value) -> Value {
    let call = request(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
    peer.post(&call).stream().await.answer(id).await["result"].clone()
}

/// Calls the tool; says what it answers.
pub async fn reconnect(peer: &Peer<'_>, id: u64, session: &str, token: &str) -> Value {
    let arguments = json!({ "session_id": session, "reconnect_token": token });
    let result = call(peer, id, "reconnect_session", arguments).await;
    serde_json::from_str(&word(&result["content"][0]["text"])).unwrap()
}

/// A call of the tool.
pub fn reconnecting(id: u64, session: &str, token: &str) -> Value {
    let arguments = json!({ "session_id": session, "reconnect_token": token });
    request(id, "tools/call", json!({ "name": "reconnect_session", "arguments": arguments }))
}

/// What the tool says in its answer.
pub fn said(answer: &Value) -> Value {
    serde_json::from_str(&word(&answer["result"]["content"][0]["text"])).unwrap()
}

/// A call whose result nobody fetches.
pub async fn call_and_leave(web: &Web, peer: &Peer<'_>, id: u64) {
    let before = in_head(web, &peer.session).await;
    let arguments = json!({ "text": "late", "delay_ms": 20 });
    let asked = request(id, "tools/call", json!({ "name": "slow_echo", "arguments": arguments }));
    let mut stream = peer.post(&asked).stream().await;
    stream.next().await.unwrap();
    drop(stream); // before the answer
    until_covered(web, &peer.session, before + 1).await;
}

pub async fn in_head(web: &Web, session: &str) -> u64 {
    let id = SessionId::parse(session).unwrap();
    web.store.session(&id).await.unwrap().unwrap().in_head.get()
}

/// Waits until a session's client has left it for another one.
pub async fn until_left(web: &Web, session: &str) {
    let id = SessionId::parse(session).unwrap();
    until(async || !web.store.session(&id).await.unwrap().unwrap().is_active()).await;
}

/// The ids of the calls whose results wait.
pub fn waiting(told: &Value) -> Vec<&Value> {
    told["waiting"].as_array().unwrap().iter().map(|call| &call["request"]["id"]).collect()
}

/// The token that a session's first result brings.
pub async fn token(peer: &Peer<'_>) -> String {
    let result = call(peer, 1, "recall", json!({})).await;
    word(&result["_meta"]["rejoin/session"]["reconnect_token"])
}

pub fn failed(reason: &str) -> Value {
    let message = format!("Reconnection failed: {reason}");
    json!({ "success": false, "reason": reason, "message": message })
}
