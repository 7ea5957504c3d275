//! Reconnect tokens of MCP sessions: no file of the store holds one that can be used, nobody but the client reads one, and
//! a client that reads its result again gets the same one.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::path::Path;

use crate::common::going_over::{NEWEST, call_and_leave, reconnecting, said, serve_on, waiting};
use crate::common::mcp::{Peer, posting, request};
use crate::common::mcp_client::kept_in;
use crate::common::web::{Web, word};
use serde_json::{Value, json};

/// How every JSON web token begins.
const JWT: &str = "eyJ";

fn token_in(result: &Value) -> String {
    word(&result["_meta"]["rejoin/session"]["reconnect_token"])
}

fn recall(id: u64) -> Value {
    request(id, "tools/call", json!({ "name": "recall", "arguments": {} }))
}

/// A call of a client without sessions; says its result.
async fn stateless(web: &Web, tool: &str, arguments: Value) -> Value {
    const REVISION: &str = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "stateless", "version": "1" },
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let call = posting(web.post("/mcp"), &request(1, "tools/call", params)).by("alice");
    let call = call.header("mcp-protocol-version", REVISION).header("mcp-method", "tools/call");
    call.header("mcp-name", tool).send().await.expect(200)["result"].clone()
}

/// The token that a client of the oldest revision is given.
async fn over_sse(web: &Web) -> String {
    let mut stream = web.get("/sse").by("alice").stream().await;
    let endpoint = stream.next().await.unwrap().text;
    let posted = posting(web.post(&endpoint), &recall(1)).by("alice").send().await;
    assert_eq!(posted.status, 202);
    token_in(&stream.answer(1).await["result"])
}

/// Everything that the files of a directory hold.
fn bytes_in(directory: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => bytes_in(&path),
        false => std::fs::read(path).unwrap(),
    });
    files.collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn no_file_of_the_store_and_nobody_who_looks_on_has_a_token() {
    let home = tempfile::tempdir().unwrap();
    let web = serve_on(kept_in(home.path())).await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let mut first = lost.post(&recall(1)).stream().await;
    let place = first.next().await.unwrap().id;
    let token = token_in(&first.answer(1).await["result"]);
    let again = lost.resume(&place).stream().await.answer(1).await;
    assert_eq!(token_in(&again["result"]), token, "the same one each time");
    let of_sse = over_sse(&web).await;
    let of_stateless = token_in(&stateless(&web, "recall", json!({})).await);
    call_and_leave(&web, &lost, 2).await;

    let seen = web.get(&format!("/api/sessions/{}/events?after=0", lost.session)).by("admin");
    let seen = seen.send().await;
    let text = String::from_utf8_lossy(&seen.body).into_owned();
    assert!(seen.status == 200 && text.contains("recall") && !text.contains(JWT), "{text}");

    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let told = peer.post(&reconnecting(1, &lost.session, &token)).stream().await.answer(1).await;
    assert_eq!(waiting(&said(&told)), [2]);
    let bytes = bytes_in(home.path());
    for secret in [JWT, &token, &of_sse, &of_stateless] {
        assert!(!secret.is_empty() && !holds(&bytes, secret), "while it runs: {secret}");
    }
    web.service.close().await.unwrap();
    let bytes = bytes_in(home.path());
    assert!(holds(&bytes, "mcp.response"), "the log is there");
    assert!(!holds(&bytes, JWT));
}

#[tokio::test]
async fn what_is_read_in_a_log_can_not_be_brought_as_a_token() {
    let web = serve_on(std::sync::Arc::new(rejoin::store::MemoryStore::default())).await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = crate::common::going_over::token(&lost).await;
    let id = rejoin::core::SessionId::parse(&lost.session).unwrap();
    let page = web.store.read(&id, rejoin::core::Seq::ZERO, rejoin::store::PageLimit::default());
    let page = page.await.unwrap().unwrap();
    let stored = page.events.iter().map(|event| String::from_utf8_lossy(&event.body).into_owned());
    let stored = stored.collect::<String>();
    assert!(stored.contains("jti") && !stored.contains(&token), "{stored}");
}
