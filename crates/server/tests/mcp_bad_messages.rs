//! Messages of clients that are not what the protocol says: each is refused in its words, nothing of it reaches
//! the server behind, and the session goes on.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use common::mcp::{Fake, Peer, call, posting};
use common::web::{Setup, Web};
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

/// How many lines the server behind was told.
fn told(fake: &Fake) -> usize {
    fake.told().len()
}
