//! How much a caller can make the server keep or send, by what it calls.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::collections::BTreeSet;

use crate::common::http::Request;
use crate::common::mcp::{Fake, posting};
use crate::common::mcp_client::{Client, serve};
use crate::common::until;
use crate::common::web::{Setup, Web, word};
use rejoin::core::attempt::Attempt;
use rejoin::core::codes::Reason;
use rejoin::core::{Principal, SessionId, Timestamp};
use rejoin::mcp::Gateway;
use rejoin::store::Query;
use rejoin::store::audit::AuditRecord;
use rejoin::web::{McpSettings, ModernSettings, ModernUpstream, WebSettings};
use serde_json::{Value, json};

/// A page of a list has this many bytes at most, and somewhat more for what stands around it.
const PAGE_BYTES: usize = 1024 * 1024 + 64 * 1024;

/// All that a store knows, also what has ended.
async fn remembered(web: &Web) -> usize {
    let all = Query { limit: 10_000, ..Query::default() };
    web.store.sessions(&all).await.unwrap().len()
}

/// An MCP server that says yes to everything.
fn agreeable() -> Gateway {
    Gateway::command(
        r#"exec python3 -c '
import json, sys
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"},
                  "capabilities": {"resources": {"subscribe": True}}} if message["method"] == "initialize" else {}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
'"#,
    )
}

#[tokio::test]
async fn a_list_of_large_records_comes_in_pages_that_are_not() {
    let web = Setup::open().start().await;
    let client = json!({ "client": { "text": "x".repeat(15 * 1024) } });
    let mut made = BTreeSet::new();
    for _ in 0..150 {
        made.insert(word(
            &web.post("/api/sessions").json(&client).send().await.expect(201)["session_id"],
        ));
    }
    for path in ["/api/sessions?limit=1000", "/api/sessions/active?limit=1000"] {
        let (mut seen, mut after) = (BTreeSet::new(), String::new());
        loop {
            let answer = web.get(&format!("{path}{after}")).send().await;
            assert!(answer.body.len() < PAGE_BYTES, "{} bytes", answer.body.len());
            let page = answer.expect(200);
            seen.extend(
                page["sessions"].as_array().unwrap().iter().map(|s| word(&s["session_id"])),
            );
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen, made, "{path}");
    }
    let mut seen = BTreeSet::new();
    while seen.len() < made.len() {
        let path = format!("/api/sessions/search?limit=1000&offset={}", seen.len());
        let answer = web.get(&path).send().await;
        assert!(answer.body.len() < PAGE_BYTES, "{} bytes", answer.body.len());
        let page = answer.expect(200);
        assert_eq!(page["found"], made.len());
        seen.extend(page["sessions"].as_array().unwrap().iter().map(|s| word(&s["session_id"])));
    }
}

#[tokio::test]
async fn a_trail_of_large_records_comes_in_pages_that_are_not() {
    let web = Setup::keyed().start().await;
    let name = "x".repeat(5_000);
    let written = |number: usize| {
        let principal = if number % 100 == 7 { "alice" } else { &name };
        let attempt = Attempt {
            at: Timestamp::from_millis(number as u64),
            session_id: None,
            principal: Principal::new(principal),
            address: None,
            transport: "http".into(),
            action: number.to_string().into(),
        };
        AuditRecord { attempt, reason: Reason::Reconnected }
    };
    for number in 0..900 {
        web.store.audit(written(number)).await.unwrap();
    }
    for (by, step) in [("admin", 1), ("alice", 100)] {
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let answer = web.get(&format!("/api/audit?limit=1000{before}")).by(by).send().await;
            assert!(answer.body.len() < PAGE_BYTES, "{} bytes", answer.body.len());
            let page = answer.expect(200);
            let records = page["records"].as_array().unwrap();
            seen.extend(records.iter().map(|r| word(&r["action"]).parse::<usize>().unwrap()));
            match page["next"].as_u64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        let expected: Vec<usize> = (0..900).rev().filter(|n| step == 1 || n % step == 7).collect();
        assert_eq!(seen, expected, "{by}");
    }
}

#[tokio::test]
async fn an_introduction_of_a_megabyte_is_refused_and_no_session_is_left_of_it() {
    let web = serve(Gateway::built_in()).await;
    let hello = |bytes: usize| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": { "experimental": { "x": { "text": "x".repeat(bytes) } } },
            "clientInfo": { "name": "test", "version": "1" },
        }})
    };
    let refused = posting(web.post("/mcp"), &hello(1_000_000)).send().await.expect(413);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)));
    assert_eq!(remembered(&web).await, 0);
    posting(web.post("/mcp"), &hello(60_000)).send().await;
    assert_eq!(remembered(&web).await, 1);
}

#[tokio::test]
async fn subscriptions_of_a_session_are_bounded_in_bytes_and_equal_ones_are_one() {
    let web = serve(agreeable()).await;
    let client = Client::begin(&web).await;
    let resource = |number: usize| json!({ "uri": format!("x:{number}/{}", "y".repeat(30_000)) });
    let subscribe = async |id: u64, number: usize| -> Value {
        client.ask(id, "resources/subscribe", resource(number)).await.answer().await
    };
    let (mut taken, mut refused) = (0, 0);
    for number in 0..20 {
        let answer = subscribe(number as u64 + 1, number).await;
        match answer["error"]["data"]["reason"].as_str() {
            Some("too_many_subscriptions") => refused += 1,
            None => taken += usize::from(answer["result"].is_object()),
            Some(other) => panic!("{other}"),
        }
    }
    assert_eq!((taken, refused), (4, 16), "each is kept by its name and its parameters");
    assert!(subscribe(30, 0).await["result"].is_object(), "one that there is costs nothing");
    let gone = client.ask(31, "resources/unsubscribe", resource(0)).await.answer().await;
    assert!(gone["result"].is_object());
    assert!(subscribe(32, 19).await["result"].is_object(), "there is room again");
    let id = SessionId::parse(&client.session).unwrap();
    assert!(web.store.snapshot(&id).await.unwrap().unwrap().body.len() < 300 * 1024);
}

#[tokio::test]
async fn subscriptions_of_a_session_are_bounded_in_number() {
    let web = serve(agreeable()).await;
    let client = Client::begin(&web).await;
    let mut refused = 0;
    for number in 0..1_005_u64 {
        let uri = json!({ "uri": format!("x:{number}") });
        let answer = client.ask(number + 1, "resources/subscribe", uri).await.answer().await;
        refused += usize::from(answer["error"]["code"] == -32002);
    }
    assert_eq!(refused, 5);
}

/// A request of the revision without sessions.
fn stateless(web: &Web, method: &str, mut params: Value) -> Request {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "x".repeat(300_000), "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().map(str::to_owned);
    let request = web.post("/mcp").header("mcp-protocol-version", "2026-07-28");
    let request = request.header("mcp-method", method);
    let request = name.map_or(request.clone(), |name| request.header("mcp-name", &name));
    posting(request, &json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }))
}

fn per_request() -> Setup {
    let modern =
        ModernSettings { upstream: ModernUpstream::PerRequest, ..ModernSettings::default() };
    let mcp = McpSettings { modern, ..McpSettings::default() };
    Setup { web: WebSettings { mcp, ..WebSettings::default() }, ..Setup::open() }
}

#[tokio::test]
async fn with_one_server_for_each_request_no_record_is_left_of_it() {
    let fake = Fake::new();
    let web = fake.serve(per_request()).await;
    for _ in 0..3 {
        let call = json!({ "name": "t", "arguments": {} });
        stateless(&web, "tools/call", call).send().await.expect(200);
        stateless(&web, "server/discover", json!({})).send().await.expect(200);
    }
    until(async || remembered(&web).await == 0).await;
    assert_eq!(web.get("/api/sessions").send().await.expect(200)["sessions"], json!([]));
}

#[tokio::test]
async fn of_a_client_without_sessions_that_says_much_of_itself_little_is_kept() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let call = json!({ "name": "t", "arguments": {} });
    stateless(&web, "tools/call", call).send().await.expect(200);
    let all = Query { limit: 10, ..Query::default() };
    let records = web.store.sessions(&all).await.unwrap();
    assert!(records[0].about.client.len() < 4_096);
    let book = web.store.snapshot(records[0].id()).await.unwrap().unwrap();
    assert!(book.body.len() < 16 * 1024, "{} bytes", book.body.len());
}
