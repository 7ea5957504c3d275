//! How soon a response begins, whatever its answer waits for: clients that lose a connection before it has begun may be
//! lost with it.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::time::Duration;

use crate::common::http::{Request, Stream};
use crate::common::mcp::{Fake, Peer, call, posting};
use crate::common::web::{Setup, Web};
use rejoin::web::{McpSettings, Revisions, WebSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const STATELESS: &str = "2026-07-28";

/// What the AI SDK calls itself.
const AI_SDK: &str = "ai-sdk/2.0.97 runtime/node.js/22";

/// Much longer than a head takes, and shorter than the first keep-alive.
const SOON: Duration = Duration::from_secs(10);

fn stateless(web: &Web, method: &str, mut params: Value) -> Request {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = web.post("/mcp").header("mcp-protocol-version", STATELESS);
    let request = request.header("mcp-method", method);
    let name = params["name"].as_str().map(str::to_owned);
    let request = name.map_or(request.clone(), |name| request.header("mcp-name", &name));
    posting(request, &json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }))
}

fn held(web: &Web) -> Request {
    stateless(web, "tools/call", json!({ "name": "t", "arguments": { "gate": "g" } }))
}

async fn head(request: Request) -> Stream {
    timeout(SOON, request.stream()).await.expect("a head comes before the answer")
}

/// A response as far as it comes before there is an answer: its head, and a space.
async fn begun(web: &Web, request: &Request) -> String {
    let mut socket = TcpStream::connect(web.address).await.unwrap();
    socket.write_all(&request.to_bytes("HTTP/1.0")).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n ") {
        let next = timeout(SOON, socket.read_u8()).await.expect("it begins before the answer");
        text.push(next.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_stateless_call_has_a_head_and_a_comment_before_its_answer() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut stream = head(held(&web)).await;
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    let comment = timeout(SOON, stream.next_or_comment()).await.expect("at once").unwrap();
    assert_eq!(comment.name, ":");
    fake.until_told("tools/call").await;
    fake.open("g");
    assert_eq!(stream.answer(7).await["result"]["resultType"], "complete");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_stateless_answer_that_is_there_is_json_with_its_status() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let refused = stateless(&web, "ping", json!({})).send().await;
    assert_eq!(refused.expect(404)["error"]["code"], -32601);
}

#[tokio::test]
async fn keep_alives_follow_the_head_until_the_answer() {
    let fake = Fake::new();
    let web = WebSettings { sse_keep_alive: Duration::from_millis(20), ..WebSettings::default() };
    let web = fake.serve(Setup { web, ..Setup::open() }).await;
    let mut stream = head(held(&web)).await;
    for _ in 0..4 {
        assert_eq!(stream.next_or_comment().await.unwrap().name, ":");
    }
    fake.open("g");
    assert_eq!(stream.answer(7).await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_client_that_forgets_broken_streams_gets_json_that_begins_soon() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, "2025-11-25").await;
    for request in [held(&web), peer.post(&call(7, json!({ "gate": "g" })))] {
        let begun = begun(&web, &request.header("user-agent", AI_SDK)).await;
        assert!(begun.to_lowercase().contains("content-type: application/json"), "{begun}");
        assert!(begun.starts_with("HTTP/1.0 200 OK"), "{begun}");
    }
    fake.open("g");
    for request in [held(&web), peer.post(&call(8, json!({ "gate": "g" })))] {
        let answer = request.header("user-agent", AI_SDK).send().await;
        assert!(answer.expect(200)["result"]["content"].is_array());
    }
}

fn offering(revisions: &[&str]) -> Setup {
    let revisions = Revisions::only(revisions.iter().copied());
    let mcp = McpSettings { revisions, ..McpSettings::default() };
    Setup { web: WebSettings { mcp, ..WebSettings::default() }, ..Setup::open() }
}

#[tokio::test]
async fn only_revisions_that_are_offered_can_be_used() {
    let fake = Fake::new();
    let web = fake.serve(offering(&["2025-03-26", "2025-06-18"])).await;
    for method in ["server/discover", "tools/list"] {
        let refused = stateless(&web, method, json!({})).send().await.expect(400);
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
        let told = &refused["error"]["data"];
        assert_eq!(told["supported"], json!(["2025-06-18", "2025-03-26"]));
        assert_eq!(told["requested"], STATELESS);
    }
    for (asked, agreed) in
        [("2025-03-26", "2025-03-26"), ("2025-11-25", "2025-06-18"), ("2024-11-05", "2025-06-18")]
    {
        let hello = crate::common::mcp::initialize(asked);
        let mut stream = posting(web.post("/mcp"), &hello).stream().await;
        assert_eq!(stream.answer(0).await["result"]["protocolVersion"], agreed, "{asked}");
    }
    let peer = Peer::begin(&web, "2025-06-18").await;
    let other = peer.post(&call(1, json!({}))).header("mcp-protocol-version", "2025-11-25");
    assert_eq!(other.send().await.status, 400);
    let own = peer.post(&call(1, json!({}))).header("mcp-protocol-version", "2025-06-18");
    assert_eq!(own.send().await.status, 200);
    assert_eq!(web.get("/sse").header("accept", "text/event-stream").send().await.status, 404);
}

#[tokio::test]
async fn a_server_without_sessions_refuses_a_handshake_with_what_it_offers() {
    let fake = Fake::new();
    let web = fake.serve(offering(&[STATELESS])).await;
    let hello = crate::common::mcp::initialize("2025-11-25");
    let refused = posting(web.post("/mcp"), &hello).send().await.expect(400);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32022)));
    assert_eq!(refused["error"]["data"]["supported"], json!([STATELESS]));
    let found = stateless(&web, "server/discover", json!({})).stream().await;
    assert_eq!(found.status, 200);
}
