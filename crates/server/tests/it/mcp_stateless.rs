//! Revision 2026-07-28 on `/mcp`: requests that stand alone, before a server that keeps a session.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::time::Duration;

use crate::common::http::{Answer, Request};
use crate::common::mcp::{Fake, posting};
use crate::common::mcp_client::kept_in;
use crate::common::until;
use crate::common::web::{Setup, Web};
use rejoin::store::Query;
use rejoin::web::{McpSettings, ModernSettings, ModernUpstream, WebSettings};
use serde_json::{Value, json};

const REVISION: &str = "2026-07-28";

/// A client that has a name, and may have a key.
#[derive(Clone, Copy)]
struct Client<'a> {
    web: &'a Web,
    name: &'a str,
    key: Option<&'a str>,
    /// Whether a proxy on this machine passes its requests on.
    forwarded: bool,
}

impl<'a> Client<'a> {
    fn of(web: &'a Web) -> Self {
        Self { web, name: "tester", key: None, forwarded: false }
    }

    fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    fn by(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    fn forwarded(self) -> Self {
        Self { forwarded: true, ..self }
    }

    /// A request as the revision wants it, from a client that can be asked by the server's model.
    fn asks(&self, method: &str, mut params: Value) -> Request {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = REVISION.into();
        params["_meta"]["io.modelcontextprotocol/clientInfo"] =
            json!({ "name": self.name, "version": "1" });
        let can = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].take();
        let can = if can.is_null() { json!({ "sampling": {} }) } else { can };
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
        let about = ["name", "uri", "taskId"].into_iter().find_map(|name| params[name].as_str());
        let request = self.web.post("/mcp").header("mcp-protocol-version", REVISION);
        let request = request.header("mcp-method", method);
        let request = about.map_or(request.clone(), |about| request.header("mcp-name", about));
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let request = posting(request, &body);
        let request = match self.forwarded {
            true => request.header("x-forwarded-for", "192.0.2.7"),
            false => request,
        };
        self.key.map_or(request.clone(), |key| request.by(key))
    }

    fn calls(&self, arguments: Value) -> Request {
        self.asks("tools/call", json!({ "name": "t", "arguments": arguments }))
    }

    async fn call(&self, arguments: Value) -> Answer {
        self.calls(arguments).send().await
    }

    /// Comes with an answer to what it was asked.
    async fn answers(&self, arguments: Value, required: &Value, answer: &Value) -> Answer {
        let key = required["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap();
        let params = json!({
            "name": "t",
            "arguments": arguments,
            "inputResponses": { key: answer },
            "requestState": required["result"]["requestState"],
        });
        self.asks("tools/call", params).send().await
    }
}

fn with(modern: ModernSettings) -> Setup {
    let mcp = McpSettings { modern, ..McpSettings::default() };
    Setup { web: WebSettings { mcp, ..WebSettings::default() }, ..Setup::open() }
}

/// Sends a request, and goes away once the server behind has it.
async fn break_off(fake: &Fake, request: Request, words: &str) {
    let waiting = tokio::spawn(request.send());
    fake.until_told(words).await;
    waiting.abort();
    let _ = waiting.await;
}

fn calls_told(fake: &Fake) -> usize {
    fake.told().iter().filter(|line| line.contains(r#""method":"tools/call""#)).count()
}

fn servers(fake: &Fake) -> usize {
    fake.told().iter().filter(|line| line.contains(r#""method":"initialize""#)).count()
}

#[tokio::test]
async fn a_request_whose_headers_or_envelope_are_wrong_is_refused_before_anything_starts() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let good = client.calls(json!({}));
    let without = |name: &str| {
        let params = json!({ "name": "t" });
        let mut body =
            json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        body["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        body["params"]["_meta"].as_object_mut().unwrap().remove(name);
        good.clone().json(&body)
    };
    let other = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "1900-01-01" } });
    for (request, code) in [
        (good.clone().header("mcp-method", "tools/list"), -32020),
        (good.clone().header("mcp-name", "u"), -32020),
        (good.clone().header("mcp-name", "=?base64?dQ==?="), -32020),
        (good.clone().header("mcp-protocol-version", "2025-11-25"), -32020),
        (without("io.modelcontextprotocol/protocolVersion"), -32602),
        (without("io.modelcontextprotocol/clientCapabilities"), -32602),
        (good.clone().json(&json!([])), -32600),
        (
            good.clone().header("mcp-protocol-version", "1900-01-01").json(&json!({
                "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": other,
            })),
            -32022,
        ),
    ] {
        let refused = request.send().await.expect(400);
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    for removed in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        let refused = client.asks(removed, json!({})).send().await.expect(404);
        assert_eq!(refused["error"]["code"], -32601);
    }
    assert_eq!(servers(&fake), 0, "{:?}", fake.told());
    let encoded = good.header("mcp-name", "=?base64?dA==?=").send().await;
    assert_eq!(encoded.expect(200)["result"]["resultType"], "complete");
}

/// A body as the revision wants it, with this before the `_meta` of its parameters and that inside of it.
fn body_with(params: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params},"_meta":{{{meta}"io.modelcontextprotocol/protocolVersion":"{REVISION}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

#[tokio::test]
async fn a_body_that_says_twice_what_a_header_names_is_refused_and_nothing_runs() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let good = client.calls(json!({}));
    let version = r#""io.modelcontextprotocol/protocolVersion":"2025-11-25","#;
    for body in [
        body_with(r#""name":"t","name":"u","arguments":{}"#, ""),
        body_with(r#""name":"t","n\u0061me":"u","arguments":{}"#, ""),
        body_with(r#""name":"t","arguments":{},"_meta":{}"#, ""),
        body_with(r#""name":"t","arguments":{}"#, version),
        body_with(r#""name":"t""#, "").replace(r#""id":7"#, r#""id":7,"id":8"#),
        body_with(r#""name":"t""#, "").replace(r#""id":7"#, r#""id":7,"m\u0065thod":"tools/list""#),
    ] {
        let refused = good.clone().body(body.as_bytes()).send().await.expect(400);
        assert_eq!(refused["error"]["code"], -32600, "{body}: {refused}");
    }
    let unnamed = good.clone().body(body_with(r#""name":["t"]"#, "").as_bytes()).send().await;
    assert_eq!(unnamed.expect(400)["error"]["code"], -32602, "a name that is no text");
    assert_eq!(calls_told(&fake), 0, "{:?}", fake.told());
    let own = body_with(r#""name":"t","arguments":{"x":1,"x":2}"#, "");
    assert_eq!(
        good.body(own.as_bytes()).send().await.expect(200)["result"]["resultType"],
        "complete"
    );
    assert!(fake.told().iter().any(|line| line.contains(r#"{"x":1,"x":2}"#)), "{:?}", fake.told());
}

#[tokio::test]
async fn a_header_that_is_there_twice_is_refused() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let good = Client::of(&web).calls(json!({}));
    for (name, value) in
        [("Mcp-Name", "u"), ("Mcp-Method", "tools/list"), ("Mcp-Protocol-Version", "2025-11-25")]
    {
        let refused = good.clone().header(name, value).send().await.expect(400); // beside the one in lower case
        assert_eq!(refused["error"]["code"], -32020, "{refused}");
    }
    assert_eq!(servers(&fake), 0);
}

#[tokio::test]
async fn what_a_client_wants_to_hear_of_must_be_said_rightly() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let listens = |params: Value| client.asks("subscriptions/listen", params);
    for wrong in [
        json!({ "resourceSubscriptions": "file:///a" }),
        json!({ "resourceSubscriptions": [1] }),
        json!({ "resourceSubscriptions": null }),
        json!({ "resourceSubscriptions": { "uri": "file:///a" } }),
        json!({ "toolsListChanged": "yes", "resourceSubscriptions": [] }),
        json!(["toolsListChanged"]),
        json!(null),
    ] {
        let refused = listens(json!({ "notifications": wrong })).send().await.expect(400);
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32602), &json!(7)));
    }
    assert_eq!(listens(json!({})).send().await.expect(400)["error"]["code"], -32602);
    assert_eq!(servers(&fake), 0, "nothing was started for it");
    let mut right = listens(json!({ "notifications": {} })).stream().await;
    assert_eq!(right.status, 200);
    let told = right.message().await.data;
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
}

#[tokio::test]
async fn the_server_gets_the_request_as_it_came_without_the_envelope() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let params = json!({
        "unheardOf": [1, null],
        "name": "t",
        "arguments": { "progress": 2 },
        "_meta": { "progressToken": "mine", "traceparent": "00-1-2-03" },
    });
    let answer = Client::of(&web).asks("tools/call", params).stream().await.rest().await;
    let tokens: Vec<_> =
        answer.iter().map(|event| event.data["params"]["progressToken"].clone()).collect();
    assert_eq!(tokens, [json!("mine"), json!("mine"), Value::Null]);
    let result = &answer[2].data;
    assert_eq!((&result["id"], &result["result"]["resultType"]), (&json!(7), &json!("complete")));
    let told: Value = serde_json::from_str(&fake.until_told("tools/call").await).unwrap();
    assert_eq!(told["params"]["unheardOf"], json!([1, null]));
    let meta = told["params"]["_meta"].as_object().unwrap();
    let keys: Vec<_> = meta.keys().collect();
    assert_eq!(keys, ["progressToken", "traceparent"]);
    assert_ne!(meta["progressToken"], "mine", "two connections may have the same one");
}

#[tokio::test]
async fn a_client_has_a_server_of_its_own_by_principal_and_name() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let alice = Client::of(&web).by("alice");
    for client in [alice, alice, alice.named("other"), Client::of(&web).by("bob")] {
        client.call(json!({})).await.expect(200);
    }
    assert_eq!(servers(&fake), 3);
    assert_eq!(Client::of(&web).call(json!({})).await.status, 401);
}

#[tokio::test]
async fn callers_behind_a_proxy_share_a_server_with_nobody() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let local = Client::of(&web);
    for client in [local, local.forwarded(), local.forwarded(), local] {
        client.call(json!({})).await.expect(200);
    }
    assert_eq!(
        servers(&fake),
        3,
        "one for the calls of this machine, and one for each forwarded call"
    );
    until(async || web.store.count(None).await.unwrap() == 1).await;
    let web = fake.serve(Setup::keyed()).await;
    for _ in 0..2 {
        Client::of(&web).by("alice").forwarded().call(json!({})).await.expect(200);
    }
    assert_eq!(servers(&fake), 4, "a credential says who it is");
}

#[tokio::test]
async fn callers_from_elsewhere_without_authentication_share_a_server_with_nobody() {
    let fake = Fake::new();
    let peer = Some("192.0.2.7:4711".parse().unwrap());
    let web = fake.serve(Setup { peer, ..Setup::open() }).await;
    for _ in 0..2 {
        Client::of(&web).call(json!({})).await.expect(200);
    }
    assert_eq!(servers(&fake), 2);
}

#[tokio::test]
async fn a_broken_call_of_a_caller_behind_a_proxy_is_cancelled_and_joined_by_nobody() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let (local, stranger) = (Client::of(&web), Client::of(&web).forwarded());
    break_off(&fake, stranger.calls(json!({ "gate": "never" })), "never").await;
    fake.until_told("notifications/cancelled").await;
    let wish = json!({ "gate": "later" });
    break_off(&fake, local.calls(wish.clone()), "later").await;
    let other = tokio::spawn(stranger.calls(wish).send());
    until(async || calls_told(&fake) == 3).await; // it does not join what broke here
    fake.open("later");
    other.await.unwrap().expect(200);
}

#[tokio::test]
async fn a_caller_behind_a_proxy_answers_what_it_was_asked_and_nobody_else_does() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let (local, stranger) = (Client::of(&web), Client::of(&web).forwarded());
    let wish = json!({ "ask": "q1" });
    let required = stranger.call(wish.clone()).await.expect(200);
    let answer =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "hi" } });
    let refused = local.answers(wish.clone(), &required, &answer).await.expect(400);
    assert_eq!(refused["error"]["code"], -32602);
    let done = stranger.answers(wish, &required, &answer).await.expect(200);
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("hi"), "{done}");
    until(async || web.store.count(None).await.unwrap() == 0).await;
}

#[tokio::test]
async fn with_one_server_for_each_request_nothing_is_left_of_it() {
    let fake = Fake::new();
    let modern =
        ModernSettings { upstream: ModernUpstream::PerRequest, ..ModernSettings::default() };
    let web = fake.serve(with(modern)).await;
    for _ in 0..2 {
        Client::of(&web).call(json!({})).await.expect(200);
    }
    assert_eq!(servers(&fake), 2);
    until(async || web.store.count(None).await.unwrap() == 0).await;
}

#[tokio::test]
async fn a_client_whose_session_was_ended_has_another_with_its_next_call() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    for made in 1..=5 {
        client.call(json!({})).await.expect(200);
        assert_eq!(servers(&fake), made);
        let going_on = Query { limit: 1, active_only: true, ..Query::default() };
        let session = web.store.sessions(&going_on).await.unwrap()[0].id().clone();
        web.service.sessions().end(&session).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_state_that_is_no_text_is_refused_and_nothing_runs() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let params = json!({ "name": "t", "arguments": {}, "requestState": 7 });
    let refused = Client::of(&web).asks("tools/call", params).send().await;
    assert_eq!(refused.expect(400)["error"]["code"], -32602);
    assert_eq!(calls_told(&fake), 0);
}

#[tokio::test]
async fn the_same_call_again_joins_the_one_whose_stream_broke() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let wish = json!({ "gate": "open", "big": 3 });
    break_off(&fake, client.calls(wish.clone()), "tools/call").await;
    let other = tokio::spawn(client.named("other").calls(wish.clone()).send());
    until(async || calls_told(&fake) == 2).await; // what another client asks for is another call
    let again = tokio::spawn(client.calls(wish).send());
    fake.open("open");
    for call in [again, other] {
        let answer = call.await.unwrap().expect(200);
        assert_eq!(answer["result"]["content"][0]["text"], "xxx");
    }
    assert_eq!(calls_told(&fake), 2);
}

#[tokio::test]
async fn a_call_that_finished_while_its_client_was_away_is_there_when_it_asks_again() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let wish = json!({ "gate": "open", "big": 2 });
    break_off(&fake, client.calls(wish.clone()), "tools/call").await;
    fake.open("open");
    let one = Query { limit: 1, ..Query::default() };
    let head = async || web.store.sessions(&one).await.unwrap()[0].head.get();
    until(async || head().await == 2).await; // its introduction, and the answer
    let answer = client.call(wish).await.expect(200);
    assert_eq!((calls_told(&fake), &answer["result"]["content"][0]["text"]), (1, &json!("xx")));
}

#[tokio::test]
async fn a_call_that_nobody_asks_for_again_is_cancelled() {
    for reissue_window in [Duration::ZERO, Duration::from_millis(30)] {
        let fake = Fake::new();
        let web =
            fake.serve(with(ModernSettings { reissue_window, ..ModernSettings::default() })).await;
        let client = Client::of(&web);
        break_off(&fake, client.calls(json!({ "gate": "never" })), "tools/call").await;
        let told = fake.until_told("notifications/cancelled").await;
        let call: Value = serde_json::from_str(&fake.until_told("tools/call").await).unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["params"]["requestId"], call["id"]);
    }
}

#[tokio::test]
async fn a_request_state_is_for_its_caller_and_its_call_only() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let alice = Client::of(&web).by("alice");
    let wish = json!({ "ask": "q1" });
    let required = alice.call(wish.clone()).await.expect(200);
    assert_eq!(required["result"]["resultType"], "input_required", "{required}");
    let answer =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "hi" } });
    let mut changed = required.clone();
    changed["result"]["requestState"] =
        format!("{}x", required["result"]["requestState"].as_str().unwrap()).into();
    for refused in [
        Client::of(&web).by("bob").answers(wish.clone(), &required, &answer).await,
        alice.answers(json!({ "ask": "q2" }), &required, &answer).await,
        alice.answers(wish.clone(), &changed, &answer).await,
    ] {
        assert_eq!(refused.expect(400)["error"]["code"], -32602);
    }
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let as_task = json!({
        "taskId": required["result"]["requestState"],
        "_meta": { "io.modelcontextprotocol/clientCapabilities": tasks },
    });
    let refused = alice.asks("tasks/get", as_task).send().await.expect(400);
    assert_eq!(refused["error"]["code"], -32602, "a state is no task");

    let done = alice.answers(wish.clone(), &required, &answer).await.expect(200);
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("hi"), "{done}");
    let again = alice.answers(wish, &required, &answer).await.expect(200);
    assert_eq!(done["result"], again["result"], "whoever comes twice comes to the same call");
    assert_eq!(calls_told(&fake), 1);
}

#[tokio::test]
async fn nothing_is_left_of_a_question_that_was_answered() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let answer =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "hi" } });
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut before = None;
    for number in 0..21 {
        let wish = json!({ "ask": format!("q{number}") });
        let required = client.call(wish.clone()).await.expect(200);
        client.answers(wish, &required, &answer).await.expect(200);
        before.get_or_insert_with(tasks); // the server behind, and all that is made once
    }
    until(async || tasks() < before.unwrap() + 10).await;
}

#[tokio::test]
async fn a_request_state_is_understood_after_a_restart() {
    let fake = Fake::new();
    let home = tempfile::tempdir().unwrap();
    let web = fake.serve(Setup { store: kept_in(home.path()), ..Setup::open() }).await;
    let wish = json!({ "ask": "q1" });
    let required = Client::of(&web).call(wish.clone()).await.expect(200);
    web.service.close().await.unwrap();
    drop(web.kill().await);
    let web = fake.serve(Setup { store: kept_in(home.path()), ..Setup::open() }).await;
    web.service.sessions().resume_work().await.unwrap();
    let answer = Client::of(&web).answers(wish, &required, &json!({})).await.expect(200);
    assert_eq!(answer["error"]["code"], -32050, "the server died over the call: {answer}");
    assert_eq!(calls_told(&fake), 1);
}

#[tokio::test]
async fn what_a_server_asks_outside_of_any_call_is_declined() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let client = Client::of(&web);
    let question = json!({ "jsonrpc": "2.0", "id": "idle", "method": "roots/list" });
    client.call(json!({ "later": [question] })).await.expect(200);
    client.asks("tools/list", json!({})).send().await.expect(200);
    fake.until_told(r#""id":"idle""#).await;
}

#[tokio::test]
async fn there_is_nothing_to_get_or_delete_in_this_revision() {
    let web = Setup::open().start().await;
    for method in ["GET", "DELETE"] {
        let request = web.request(method, "/mcp").header("accept", "text/event-stream");
        let refused = request.header("mcp-protocol-version", REVISION).send().await;
        assert_eq!(refused.status, 405, "{method}");
    }
}

#[tokio::test]
async fn what_a_client_cannot_answer_is_declined_and_the_server_goes_on() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let params = json!({
        "name": "t",
        "arguments": { "ask": "q1" },
        "_meta": { "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } },
    });
    let answer = Client::of(&web).asks("tools/call", params).send().await.expect(200);
    assert_eq!(answer["result"]["content"][0]["text"], "null", "{answer}");
    let declined: Value = serde_json::from_str(&fake.until_told(r#""error""#).await).unwrap();
    assert_eq!((&declined["id"], &declined["error"]["code"]), (&json!("q1"), &json!(-32601)));
}
