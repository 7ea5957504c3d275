//! Two connections, one session: who wins, and what the other one is told.

use serde_json::json;

use crate::support::client::seqs;
use crate::support::{Cut, Server, text, until};

#[tokio::test]
async fn the_later_connection_wins_and_the_earlier_one_is_told() {
    let server = Server::start(&[]).await;
    let mut first = server.connect().await;
    let id = first.create().await;
    first.thoughts(&id, 2).await;
    let mut second = server.connect().await;
    let confirmed = second.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(confirmed["metadata"]["generation"], 2);
    assert_eq!(seqs(&second.replay().await), [2]);
    let notice = first.notice("superseded").await;
    assert_eq!(notice["session_id"], id.as_str());
    let closed = first.closed().await;
    assert_eq!((closed.code, &closed.reason["reason"]), (4100, &json!("superseded")));
    assert!(closed.reason.get("retry_after_ms").is_none(), "it is to stop, not to come back");
    assert_eq!(second.thoughts(&id, 1).await[0]["seq"], 3);
}

#[tokio::test]
async fn nothing_that_the_earlier_one_sends_has_any_effect() {
    let server = Server::start(&[]).await;
    let mut first = server.connect().await;
    let id = first.create().await;
    first.thoughts(&id, 3).await;
    let mut second = server.connect().await;
    second.reconnect(&id, json!({ "last_seq": 3 })).await;
    second.notice("replay_complete").await;
    // It has not read that it was superseded; the server may have closed already.
    let ack = json!({ "event": "user.ack", "session_id": id, "metadata": { "last_seq": 3 } });
    let message = json!({ "event": "user.message", "session_id": id, "content": { "count": 1 } });
    let end = json!({ "event": "user.end_session", "session_id": id });
    for frame in [ack, message, end] {
        let frame = tokio_tungstenite::tungstenite::Message::text(frame.to_string());
        let _ = first.try_raw(frame).await;
    }
    assert_eq!(first.closed().await.code, 4100);
    let thoughts = second.thoughts(&id, 1).await;
    assert_eq!(thoughts[0]["seq"], 4, "nothing was said in between");
    server.puppet.until_heard(&["session.start", "user.message 1", "user.message 2"]).await;
    // Nor was anything acked.
    second.ask_back(&id, json!({})).await;
    assert_eq!(second.until("agent.session_created").await["metadata"]["replay_from"], 1);
}

#[tokio::test]
async fn with_reject_the_later_one_is_refused_unless_it_brings_a_token() {
    let server = Server::start(&["--takeover=reject"]).await;
    let mut first = server.connect().await;
    let created = first.created().await;
    let (id, token) = (text(&created["session_id"]), &created["metadata"]["reconnect_token"]);
    let mut second = server.connect().await;
    second.ask_back(&id, json!({})).await;
    let refused = second.error("SESSION_ALREADY_ACTIVE").await;
    assert!(refused["metadata"]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0));
    let event = "user.reconnect_with_state";
    second.send(json!({ "event": event, "session_id": id, "content": { "last_seq": 0 } })).await;
    second.recovery_failed("SESSION_ALREADY_ACTIVE").await;
    second.ask_back(&id, json!({ "reconnect_token": "no.good.token" })).await;
    second.error("TOKEN_INVALID").await;
    first.thoughts(&id, 1).await;
    second.reconnect(&id, json!({ "reconnect_token": token })).await;
    assert_eq!(first.closed().await.code, 4100);
}

both_ways!(with_reject_a_parked_session_can_be_had_without_a_token);

async fn with_reject_a_parked_session_can_be_had_without_a_token(cut: Cut) {
    let mut server = Server::start(&["--takeover=reject"]).await;
    let mut first = server.connect().await;
    let id = first.create().await;
    server.cut(first, cut).await;
    let mut second = server.connect().await;
    until("the session is parked", async || {
        second.ask_back(&id, json!({})).await;
        second.next().await["event"] == "agent.session_created"
    })
    .await;
}

#[tokio::test]
async fn a_token_does_not_replace_being_the_owner() {
    let server = Server::start_with_keys(&[], &["alice", "bob"]).await;
    let mut alice = server.connect_as("alice").await;
    let created = alice.created().await;
    let (id, token) = (text(&created["session_id"]), &created["metadata"]["reconnect_token"]);
    let mut bob = server.connect_as("bob").await;
    for content in [json!({}), json!({ "reconnect_token": token })] {
        bob.ask_back(&id, content).await;
        bob.error("SESSION_NOT_FOUND").await;
    }
    let requests = [
        json!({ "event": "user.message", "session_id": id, "content": { "count": 1 } }),
        json!({ "event": "user.request_state", "session_id": id }),
        json!({ "event": "user.end_session", "session_id": id }),
        json!({ "event": "user.cancel", "session_id": id }),
    ];
    for request in requests {
        bob.send(request).await;
        bob.error("SESSION_NOT_FOUND").await;
    }
    alice.thoughts(&id, 1).await;
}
