//! Reconnect tokens over MCP: they come with a tool's result, and the tool `reconnect_session` takes them, with
//! exactly these answers.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::time::Duration;

use common::http::{Request, Stream};
use common::mcp::{Peer, posting, request, until_covered};
use common::until;
use common::web::{Setup, Web, later, word};
use rejoin::core::SessionId;
use rejoin::core::limits::TOKEN_GRACE;
use rejoin::mcp::Gateway;
use rejoin::web::{McpSettings, WebSettings};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";

/// The header in which clients say their revision. Of one that went over to another session nothing else tells it.
const REVISION: &str = "mcp-protocol-version";

/// A stream says that often that it has nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The built-in server, for alice and bob.
async fn serve() -> Web {
    let keyed = Setup::keyed();
    let mcp = McpSettings { session_tools: true, ..McpSettings::default() };
    let web = WebSettings { mcp, sse_keep_alive: KEEP_ALIVE, ..keyed.web };
    let gateway = Gateway::built_in().session_tools(true);
    Setup { web, mcp: Some(gateway), ..keyed }.start().await
}

async fn call(peer: &Peer<'_>, id: u64, tool: &str, arguments: Value) -> Value {
    let call = request(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
    peer.post(&call).stream().await.answer(id).await["result"].clone()
}

/// Calls the tool; says what it answers.
async fn reconnect(peer: &Peer<'_>, id: u64, session: &str, token: &str) -> Value {
    let arguments = json!({ "session_id": session, "reconnect_token": token });
    let result = call(peer, id, "reconnect_session", arguments).await;
    serde_json::from_str(&word(&result["content"][0]["text"])).unwrap()
}

/// A call of the tool.
fn reconnecting(id: u64, session: &str, token: &str) -> Value {
    let arguments = json!({ "session_id": session, "reconnect_token": token });
    request(id, "tools/call", json!({ "name": "reconnect_session", "arguments": arguments }))
}

/// What the tool says in its answer.
fn said(answer: &Value) -> Value {
    serde_json::from_str(&word(&answer["result"]["content"][0]["text"])).unwrap()
}

/// A call whose result nobody fetches.
async fn call_and_leave(web: &Web, peer: &Peer<'_>, id: u64) {
    let before = in_head(web, &peer.session).await;
    let arguments = json!({ "text": "late", "delay_ms": 20 });
    let asked = request(id, "tools/call", json!({ "name": "slow_echo", "arguments": arguments }));
    let mut stream = peer.post(&asked).stream().await;
    stream.next().await.unwrap();
    drop(stream); // before the answer
    until_covered(web, &peer.session, before + 1).await;
}

async fn in_head(web: &Web, session: &str) -> u64 {
    let id = SessionId::parse(session).unwrap();
    web.store.session(&id).await.unwrap().unwrap().in_head.get()
}

/// Waits until a session's client has left it for another one.
async fn until_left(web: &Web, session: &str) {
    let id = SessionId::parse(session).unwrap();
    until(async || !web.store.session(&id).await.unwrap().unwrap().is_active()).await;
}

/// The ids of the calls whose results wait.
fn waiting(told: &Value) -> Vec<&Value> {
    told["waiting"].as_array().unwrap().iter().map(|call| &call["request"]["id"]).collect()
}

/// The token that a session's first result brings.
async fn token(peer: &Peer<'_>) -> String {
    let result = call(peer, 1, "recall", json!({})).await;
    word(&result["_meta"]["rejoin/session"]["reconnect_token"])
}

fn failed(reason: &str) -> Value {
    let message = format!("Reconnection failed: {reason}");
    json!({ "success": false, "reason": reason, "message": message })
}

/// The audit trail of a session, newest first: transport, action, reason, address, principal.
async fn trail(web: &Web, session: &str) -> Vec<String> {
    let path = format!("/api/audit?session_id={session}");
    let trail = web.get(&path).by("admin").send().await.expect(200);
    let fields = ["transport", "action", "reason", "address", "principal"];
    let told = |record: &Value| fields.map(|name| word(&record[name])).join(" ");
    trail["records"].as_array().unwrap().iter().map(told).collect()
}

#[tokio::test]
async fn the_first_result_of_a_session_brings_a_token_and_the_next_one_does_not() {
    let web = serve().await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let about = call(&peer, 1, "recall", json!({})).await["_meta"]["rejoin/session"].clone();
    assert_eq!(about["session_id"], *peer.session);
    assert!(word(&about["expires_at"]).ends_with('Z'), "{about}");
    assert_eq!(word(&about["reconnect_token"]).split('.').count(), 3);
    assert_eq!(call(&peer, 2, "recall", json!({})).await.get("_meta"), None);
}

#[tokio::test]
async fn a_client_that_lost_its_session_id_goes_over_to_its_session_and_gets_what_waits_there() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    call(&lost, 2, "remember", json!({ "note": "a" })).await;
    let arguments = json!({ "text": "late", "delay_ms": 20 });
    let asked = request(3, "tools/call", json!({ "name": "slow_echo", "arguments": arguments }));
    let mut stream = lost.post(&asked).stream().await;
    stream.next().await.unwrap();
    drop(stream); // before the answer
    until_covered(&web, &lost.session, 5).await;

    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let answer = reconnect(&peer, 1, &lost.session, &token).await;
    let result = json!({ "content": [{ "type": "text", "text": "late" }], "isError": false });
    let waits =
        json!({ "request": asked, "result": { "jsonrpc": "2.0", "id": 3, "result": result } });
    assert_eq!(
        answer,
        json!({
            "success": true,
            "message": "Session reconnected successfully",
            "session_id": lost.session,
            "reconnect_count": 1,
            "waiting": [waits],
        })
    );
    assert_eq!(trail(&web, &lost.session).await, ["mcp reconnect reconnected 127.0.0.1 alice"]);

    // From now on the client's own id is another name for that session.
    let recalled = call(&peer, 2, "recall", json!({})).await;
    assert_eq!(recalled["content"][0]["text"], "a");
    let next = word(&recalled["_meta"]["rejoin/session"]["reconnect_token"]);
    assert_ne!(next, token, "the first result after a use brings the next token");
    let another = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let answer = reconnect(&another, 1, &lost.session, &next).await;
    assert_eq!((&answer["reconnect_count"], &answer["waiting"]), (&json!(2), &json!([])));
}

#[tokio::test]
async fn every_failure_says_its_reason_and_is_written_down_with_the_address() {
    let web = serve().await;
    let alices = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let good = token(&alices).await;
    let other = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let bob = Peer::begin_as(&web, NEWEST, Some("bob")).await;
    let bobs = token(&bob).await;
    let (agents, of_agent) = web.create_by("alice").await;
    for (id, (peer, session, token, reason)) in [
        (&other, &*alices.session, "nonsense", "invalid_token"),
        (&other, &*other.session, &*good, "session_id_mismatch"),
        (&other, "no id at all", &*good, "session_id_mismatch"),
        (&other, &*bob.session, &*bobs, "session_not_found"),
        (&bob, &*alices.session, &*good, "session_not_found"),
        (&other, &*agents, &*of_agent, "session_not_found"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(reconnect(peer, id as u64 + 10, session, token).await, failed(reason));
        let session = if session.contains(' ') { "impossible" } else { session };
        let newest = trail(&web, session).await.remove(0);
        assert!(newest.starts_with(&format!("mcp reconnect {reason} 127.0.0.1")), "{newest}");
    }
    let renewed = web.presenting(&agents, &of_agent).by("alice").send().await;
    assert_eq!(renewed.status, 200, "the agent's token was not used up");
}

#[tokio::test]
async fn a_token_that_was_used_before_is_known_and_all_others_of_the_session_go() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    for id in 1..=2 {
        let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let answer = reconnect(&peer, id, &lost.session, &token).await;
        // The second time is taken for a lost reply: it counts once.
        assert_eq!((&answer["success"], &answer["reconnect_count"]), (&json!(true), &json!(1)));
    }
    later(2 * TOKEN_GRACE).await;
    let thief = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(reconnect(&thief, 1, &lost.session, &token).await, failed("token_reused"));
}

#[tokio::test]
async fn a_client_that_waits_for_something_can_not_go_over() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let slow = json!({ "name": "slow_echo", "arguments": { "text": "x", "delay_ms": 60_000 } });
    let mut stream = peer.post(&request(7, "tools/call", slow)).stream().await;
    stream.next().await.unwrap();
    assert_eq!(reconnect(&peer, 8, &lost.session, &token).await, failed("session_busy"));
    assert!(trail(&web, &lost.session).await[0].contains(" session_busy "));
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(peer.post(&cancel).send().await.status, 202);
    assert_eq!(reconnect(&peer, 9, &lost.session, &token).await["success"], true);
}

#[tokio::test]
async fn failures_are_limited_and_a_good_token_is_not() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    for id in 1..=10 {
        assert_eq!(reconnect(&peer, id, &lost.session, "nonsense").await, failed("invalid_token"));
    }
    assert_eq!(reconnect(&peer, 11, &lost.session, "nonsense").await, failed("rate_limited"));
    assert_eq!(reconnect(&peer, 12, &lost.session, &token).await["success"], true);
}

#[tokio::test]
async fn what_the_callers_own_session_had_is_dropped() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    call(&peer, 1, "remember", json!({ "note": "mine" })).await;
    reconnect(&peer, 2, &lost.session, &token).await;
    let recalled = call(&peer, 3, "recall", json!({})).await;
    assert_eq!(recalled["content"][0]["text"], "There are no notes.");
    until_left(&web, &peer.session).await;
}

/// A call of alice's over the revision without sessions; says what the tool answers.
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

#[tokio::test]
async fn a_stateless_client_goes_over_to_a_session_and_is_told_so() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    for (id, note) in (2..).zip(["a", "b", "c"]) {
        call(&lost, id, "remember", json!({ "note": note })).await;
    }
    stateless(&web, "remember", json!({ "note": "mine" })).await;
    let arguments = json!({ "session_id": lost.session, "reconnect_token": token });
    let result = stateless(&web, "reconnect_session", arguments).await;
    let told: Value = serde_json::from_str(&word(&result["content"][0]["text"])).unwrap();
    let expected = json!({
        "success": true, "message": "Session reconnected successfully",
        "session_id": lost.session, "reconnect_count": 1, "waiting": [],
    });
    assert_eq!(told, expected);
    let recalled = stateless(&web, "recall", json!({})).await;
    assert_eq!(
        recalled["content"][0]["text"],
        call(&lost, 9, "recall", json!({})).await["content"][0]["text"]
    );
}

#[tokio::test]
async fn what_a_stateless_client_has_been_given_waits_for_it_no_more() {
    let web = serve().await;
    let about = stateless(&web, "recall", json!({})).await["_meta"]["rejoin/session"].clone();
    stateless(&web, "remember", json!({ "note": "a" })).await;
    let arguments =
        json!({ "session_id": about["session_id"], "reconnect_token": about["reconnect_token"] });
    let result = stateless(&web, "reconnect_session", arguments).await;
    let told: Value = serde_json::from_str(&word(&result["content"][0]["text"])).unwrap();
    assert_eq!((&told["success"], &told["waiting"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn a_stream_that_is_resumed_under_the_other_name_is_live() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(reconnect(&peer, 1, &lost.session, &token).await["success"], true);
    let slow = json!({ "name": "slow_echo", "arguments": { "text": "x", "delay_ms": 300 } });
    let asking = peer.post(&request(2, "tools/call", slow)).header(REVISION, NEWEST);
    let mut asked = asking.stream().await;
    let place = asked.next().await.unwrap().id;
    drop(asked);
    let mut resumed = peer.resume(&place).stream().await;
    let answer = tokio::time::timeout(KEEP_ALIVE / 2, resumed.answer(2)).await;
    assert!(answer.expect("it is told at once, not with the next comment")["result"].is_object());
}

#[tokio::test]
async fn a_reply_that_was_lost_is_given_again_with_all_that_waited() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    call_and_leave(&web, &lost, 2).await;
    for id in 1..=2 {
        let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        assert_eq!(waiting(&reconnect(&peer, id, &lost.session, &token).await), [2]);
    }
    let next = call(&lost, 3, "recall", json!({})).await["_meta"]["rejoin/session"].clone();
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let told = reconnect(&peer, 1, &lost.session, &word(&next["reconnect_token"])).await;
    assert_eq!((&told["success"], &told["waiting"]), (&json!(true), &json!([])), "it was told");
}

#[tokio::test]
async fn whoever_goes_over_to_its_own_session_is_not_given_that_later() {
    let web = serve().await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let first = token(&peer).await;
    call_and_leave(&web, &peer, 2).await;
    let before = in_head(&web, &peer.session).await;
    drop(peer.post(&reconnecting(3, &peer.session, &first)).stream().await);
    until_covered(&web, &peer.session, before + 1).await;
    assert_eq!(waiting(&reconnect(&peer, 4, &peer.session, &first).await), [2]);
}

#[tokio::test]
async fn the_stream_of_a_reply_that_was_lost_is_resumed_under_the_name_it_had() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let first = token(&lost).await;
    call_and_leave(&web, &lost, 2).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let mut asking = peer.post(&reconnecting(1, &lost.session, &first)).stream().await;
    let place = asking.next().await.unwrap().id;
    drop(asking);
    until_left(&web, &peer.session).await;
    let mut resumed = peer.resume(&place).stream().await;
    assert_eq!(resumed.status, 200);
    assert_eq!(waiting(&said(&resumed.answer(1).await)), [2]);
    assert_eq!(resumed.rest().await, [], "it ends with its answer");
    let other = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(other.resume(&place).send().await.status, 400, "it is nobody else's");
}

#[tokio::test]
async fn the_stream_of_a_lost_reply_is_resumed_by_a_client_that_had_gone_over_before() {
    let web = serve().await;
    let lost = [
        Peer::begin_as(&web, NEWEST, Some("alice")).await,
        Peer::begin_as(&web, NEWEST, Some("alice")).await,
    ];
    let tokens = [token(&lost[0]).await, token(&lost[1]).await];
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(reconnect(&peer, 1, &lost[0].session, &tokens[0]).await["success"], true);
    let asking = peer.post(&reconnecting(2, &lost[1].session, &tokens[1]));
    let mut asking = asking.header(REVISION, NEWEST).stream().await;
    let place = asking.next().await.unwrap().id;
    drop(asking);
    until_left(&web, &lost[0].session).await;
    let mut resumed = peer.resume(&place).stream().await;
    assert_eq!(resumed.status, 200);
    assert_eq!(said(&resumed.answer(2).await)["session_id"], *lost[1].session);
}

#[tokio::test]
async fn every_request_that_comes_with_the_one_to_go_over_is_answered() {
    let web = serve().await;
    for _ in 0..10 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
        let ping = request(2, "ping", json!({}));
        let batch = json!([reconnecting(1, &lost.session, &token), ping]);
        let all = peer.post(&batch).stream().await.rest().await;
        let mut answered: Vec<_> = all.iter().map(|event| event.data["id"].as_u64()).collect();
        answered.sort_unstable();
        assert_eq!(answered, [Some(1), Some(2)], "{all:?}");
    }
}

#[tokio::test]
async fn whatever_is_sent_behind_the_call_to_go_over_runs_in_one_of_the_two_sessions() {
    let web = serve().await;
    let mut went = 0;
    for _ in 0..20 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let mut asking = peer.post(&reconnecting(1, &lost.session, &token)).stream().await;
        let behind = |id| call(&peer, id, "recall", json!({}));
        let (told, second, third) = tokio::join!(asking.answer(1), behind(2), behind(3));
        let told = said(&told);
        assert!(second["content"].is_array(), "{second}");
        assert!(third["content"].is_array(), "{third}");
        went += u32::from(told["success"] == true);
        assert!(told["success"] == true || told == failed("session_busy"), "{told}");
    }
    assert!(went > 0, "some came behind the end of the session");
}

/// A stream of the oldest revision, and where its messages are posted.
async fn open_sse(request: Request) -> (Stream, String) {
    let mut stream = request.by("alice").stream().await;
    let endpoint = stream.next().await.unwrap().text;
    (stream, endpoint)
}

#[tokio::test]
async fn over_the_oldest_revision_too_everything_behind_the_call_to_go_over_is_answered() {
    let web = serve().await;
    for _ in 0..10 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let (mut stream, endpoint) = open_sse(web.get("/sse")).await;
        let recall = |id| request(id, "tools/call", json!({ "name": "recall", "arguments": {} }));
        for message in [reconnecting(1, &lost.session, &token), recall(2), recall(3)] {
            let sent = posting(web.post(&endpoint).by("alice"), &message).send().await;
            assert_eq!(sent.status, 202);
        }
        let mut owed = vec![1, 2, 3];
        while !owed.is_empty() {
            let answer = stream.message().await.data;
            owed.retain(|id| answer["id"] != *id);
        }
    }
}

#[tokio::test]
async fn over_the_oldest_revision_a_reply_that_was_lost_comes_again_on_the_next_stream() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let (mut stream, endpoint) = open_sse(web.get("/sse")).await;
    let asked = reconnecting(1, &lost.session, &token);
    posting(web.post(&endpoint).by("alice"), &asked).send().await;
    assert_eq!(said(&stream.answer(1).await)["success"], true);
    drop(stream);
    let (_, session) = endpoint.split_once('=').unwrap();
    let (mut again, _) = open_sse(web.get("/sse").header("x-session-id", session)).await;
    assert_eq!(said(&again.answer(1).await)["success"], true, "nobody knows that it was taken");
}

#[tokio::test]
async fn a_client_that_went_over_is_spoken_to_in_its_own_revision() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
    reconnect(&peer, 1, &lost.session, &token).await;
    let ping = |id| request(id, "ping", json!({}));
    let batch = json!([ping(2), ping(3)]);
    let answers = peer.post(&batch).stream().await.rest().await;
    assert_eq!(answers.len(), 2, "no empty event before them: {answers:?}");
    let newer = peer.post(&ping(4)).header(REVISION, NEWEST);
    assert_eq!(newer.stream().await.rest().await.len(), 2, "an empty one, and the answer");
}

#[tokio::test]
async fn a_stream_that_was_left_behind_tells_each_of_its_requests_so_whenever_it_breaks() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
    let ping = |id| request(id, "ping", json!({}));
    let mut place = {
        let mut stream = peer.post(&json!([ping(1), ping(2), ping(3)])).stream().await;
        stream.message().await.id
    };
    assert_eq!(reconnect(&peer, 4, &lost.session, &token).await["success"], true);
    for id in [2, 3] {
        let told = peer.resume(&place).stream().await.message().await;
        assert_eq!((&told.data["id"], &told.data["error"]["code"]), (&json!(id), &json!(-32001)));
        place = told.id;
    }
    assert_eq!(peer.resume(&place).send().await.status, 204);
}

#[tokio::test]
async fn a_result_of_which_a_client_has_taken_only_a_part_waits() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let arguments = json!({ "text": "x".repeat(12 << 20), "delay_ms": 0 });
    let asked = request(2, "tools/call", json!({ "name": "slow_echo", "arguments": arguments }));
    let mut stream = lost.post(&asked).stream().await;
    stream.next().await.unwrap();
    stream.until_it_begins().await;
    drop(stream);
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(waiting(&reconnect(&peer, 1, &lost.session, &token).await), [2]);
}
