//! Messages of clients that are not what the protocol says: each is refused in its words, nothing of it reaches
//! the server behind, and the session goes on.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::mcp::{Fake, Peer, call, posting};
use crate::common::web::{Setup, Web};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
const WITH_BATCHES: &str = "2025-03-26";

/// Whatever stands for an id and can be none.
fn no_ids() -> [Value; 6] {
    [json!(null), json!({}), json!([1]), json!(true), json!(1.5), json!(-0.25)]
}

fn ping_under(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "ping", "params": { "bad": true } })
}

/// The server behind was told nothing bad, and the session goes on.
async fn goes_on(fake: &Fake, peer: &Peer<'_>) {
    assert!(peer.call(99, json!({})).await.answer(99).await["result"].is_object());
    assert!(fake.told().iter().all(|line| !line.contains("bad")), "{:?}", fake.told());
}

#[tokio::test]
async fn a_request_whose_id_can_be_none_is_refused() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let batches = Peer::begin(&web, WITH_BATCHES).await;
    for id in no_ids() {
        let bad = ping_under(&id);
        let good = call(1, json!({ "bad": "company" }));
        for refused in [peer.post(&bad), batches.post(&bad), batches.post(&json!([good, bad]))] {
            let told = refused.send().await.expect(400);
            assert_eq!((&told["error"]["code"], &told["id"]), (&json!(-32600), &json!(null)));
        }
    }
    goes_on(&fake, &peer).await;
    goes_on(&fake, &batches).await;
}

#[tokio::test]
async fn ids_that_are_whole_or_text_come_back_as_they_were_written() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    for id in ["0", "-7", "1.0", "2e3", "\"\"", "\"a\\u0062\"", "9007199254740993"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let answer = peer.post(&json!(null)).body(body).header("accept", "application/json");
        let answer = answer.send().await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{text}");
        assert!(text.contains(&format!("\"id\": {id},")), "{text}");
    }
}

#[tokio::test]
async fn an_answer_without_an_id_answers_nothing_and_an_error_may_have_none() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    for id in [json!({ "id": null }), json!({})] {
        let mut answer = json!({ "jsonrpc": "2.0", "result": { "bad": true } });
        answer.as_object_mut().unwrap().extend(id.as_object().unwrap().clone());
        let told = peer.post(&answer).send().await.expect(400);
        assert_eq!(told["error"]["code"], -32600);
    }
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "" } });
    assert_eq!(peer.post(&error).send().await.status, 202);
    goes_on(&fake, &peer).await;
}

#[tokio::test]
async fn over_the_oldest_revision_such_a_request_is_refused_too() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut stream = web.get("/sse").stream().await;
    let endpoint = stream.next().await.unwrap().text;
    for id in no_ids() {
        let refused = posting(web.post(&endpoint), &ping_under(&id)).send().await;
        assert_eq!(refused.expect(400)["error"]["code"], -32600);
    }
    assert_eq!(told(&fake), 0);
}

/// The stateless revision has no sessions; its requests are read by the same rules.
#[tokio::test]
async fn a_stateless_request_whose_id_can_be_none_is_refused() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    for id in no_ids() {
        assert_eq!(stateless(&web, &id).await["error"]["code"], -32600);
    }
    assert_eq!(told(&fake), 0);
}

async fn stateless(web: &Web, id: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut body = ping_under(id);
    body["params"]["_meta"] = meta;
    let request = posting(web.post("/mcp"), &body).header("mcp-protocol-version", "2026-07-28");
    request.header("mcp-method", "ping").send().await.expect(400)
}

/// Two parsers may see two requests in it. What a tool gets is its own business.
#[tokio::test]
async fn a_message_that_says_something_twice_is_refused_in_sessions_too() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    let stale = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","n\u0061me":"u","arguments":{"bad":true}}}"#;
    let again = r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"t","arguments":{"bad":true}}}"#;
    for body in [stale.to_owned(), again.to_owned(), format!("[{stale}]")] {
        let refused = peer.post(&json!({})).body(body.as_bytes()).send().await.expect(400);
        assert_eq!(refused["error"]["code"], -32600, "{body}");
    }
    let refused = posting(web.post("/message?sessionId=x"), &json!({})).body(stale.as_bytes());
    assert_eq!(refused.send().await.expect(400)["error"]["code"], -32600);
    goes_on(&fake, &peer).await;
}

#[tokio::test]
async fn a_batch_with_one_id_twice_or_with_too_many_messages_is_refused_as_a_whole() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    let bad = |id: u64| call(id, json!({ "bad": true }));
    let twice = json!([bad(1), bad(2), bad(1)]);
    let many = Value::from((0..101).map(bad).collect::<Vec<_>>());
    for batch in [twice, many] {
        assert_eq!(peer.post(&batch).send().await.expect(400)["error"]["code"], -32600);
    }
    let alone = json!([crate::common::mcp::initialize(WITH_BATCHES)]);
    let begun = posting(web.post("/mcp"), &alone).send().await;
    assert_eq!(begun.expect(400)["error"]["code"], -32600, "`initialize` is part of no batch");
    goes_on(&fake, &peer).await;
}

/// What has been entered runs, so that it must be answered; only the rest is refused.
#[tokio::test]
async fn of_a_batch_that_finds_no_room_each_request_is_answered() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    for accept in ["application/json", "text/event-stream"] {
        let gate = format!("gate for {accept}").replace('/', "-");
        let large = |id: u64| call(id, json!({ "gate": gate, "much": "x".repeat(3 << 19) }));
        let batch = json!([large(1), large(2), large(3), large(4)]);
        let asked = tokio::spawn(peer.post(&batch).header("accept", accept).send());
        fake.until_told(&gate).await;
        fake.open(&gate);
        let answer = asked.await.unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{text}");
        let told = |id: u64, what: &str| {
            let answers = text.split("\"jsonrpc\"").filter(|part| part.contains(what));
            answers.filter(|part| part.replace(' ', "").contains(&format!("\"id\":{id},"))).count()
        };
        assert_eq!([1, 2, 3, 4].map(|id| told(id, "\"result\"")), [1, 1, 0, 0], "{text}");
        assert_eq!([1, 2, 3, 4].map(|id| told(id, "-32002")), [0, 0, 1, 1], "{text}");
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_accepted_for_a_client_that_takes_no_stream() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
    for body in
        [call(5, json!({ "gate": "never" })), json!([call(5, json!({ "gate": "not-ever" }))])]
    {
        let words = if body.is_array() { "not-ever" } else { "never" };
        let asked = tokio::spawn(peer.post(&body).header("accept", "application/json").send());
        fake.until_told(words).await;
        assert_eq!(peer.post(&cancelled).send().await.status, 202);
        let answer = asked.await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (202, 0));
    }
}

#[tokio::test]
async fn a_head_opens_no_stream_and_ends_none() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut general = peer.get().stream().await;
    general.next().await.unwrap();
    let head = web.request("HEAD", "/mcp").header("mcp-session-id", &peer.session);
    assert_eq!(head.header("accept", "text/event-stream").send().await.status, 405);
    let sessions = web.store.count(None).await.unwrap();
    assert_eq!(web.request("HEAD", "/sse").send().await.status, 405);
    assert_eq!(web.store.count(None).await.unwrap(), sessions, "none was made");
    let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    peer.call(1, json!({ "later": [news] })).await.answer(1).await;
    assert_eq!(general.message().await.data["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_too_large_and_two_sessions_are_none() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let chunks = peer.post(&ping).body("zz\r\n").header("transfer-encoding", "chunked");
    assert_eq!(chunks.send().await.expect(400)["error"]["code"], -32700);
    let other = Peer::begin(&web, NEWEST).await;
    let twice = peer.post(&ping).header("Mcp-Session-ID", &other.session);
    assert_eq!(twice.send().await.expect(400)["error"]["code"], -32600);
    goes_on(&fake, &peer).await;
}

/// A session's record is held in memory, and shown in lists.
#[tokio::test]
async fn of_a_client_that_says_much_of_itself_its_record_has_the_beginning() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut hello = crate::common::mcp::initialize(NEWEST);
    hello["params"]["clientInfo"]["name"] = "n".repeat(32 << 10).into();
    let mut stream = posting(web.post("/mcp"), &hello).stream().await;
    assert!(stream.answer(0).await["result"].is_object());
    let id = rejoin::core::SessionId::parse(stream.header("mcp-session-id").unwrap()).unwrap();
    let record = web.store.session(&id).await.unwrap().unwrap();
    let client: Value = serde_json::from_str(&record.about.client).unwrap();
    assert_eq!(client, json!({ "name": "n".repeat(256), "version": "1" }));
}

/// How many lines the server behind was told.
fn told(fake: &Fake) -> usize {
    fake.told().len()
}
