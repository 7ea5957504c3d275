//! Reconnect tokens over MCP: they come with a tool's result, and the tool `reconnect_session` takes them, with
//! exactly these answers.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::going_over::{NEWEST, call, failed, reconnect, serve, token, until_left};
use crate::common::mcp::{Peer, posting, request, until_covered};
use crate::common::web::{Web, later, word};
use rejoin::core::limits::TOKEN_GRACE;
use serde_json::{Value, json};

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
