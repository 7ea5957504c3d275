//! SIGTERM: what is under way may finish, and everybody is told to come back.

use serde_json::{Value, json};

use crate::support::client::Closed;
use crate::support::{Server, text};

fn assert_come_back(closed: &Closed) {
    assert_eq!((closed.code, &closed.reason["reason"]), (4000, &json!("draining")));
    let wait = closed.reason["retry_after_ms"].as_u64();
    assert!(wait.is_some_and(|wait| (1..60_000).contains(&wait)), "{closed:?}");
}

#[tokio::test]
async fn work_under_way_finishes_and_its_events_arrive_before_the_close() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 3 })).await;
    let mut idle = server.connect().await;
    server.terminate();
    let notice = client.notice("draining").await;
    assert_eq!(notice["session_id"], id.as_str());
    let notice = idle.notice("draining").await;
    assert!(notice.get("session_id").is_none());
    gate.open();
    for seq in 1..=3 {
        assert_eq!(client.next().await["seq"], seq);
    }
    assert_come_back(&client.closed().await);
    assert_come_back(&idle.closed().await);
    assert_eq!(server.ended().await.code(), Some(0), "{}", server.log());
    server.restart().await;
    let mut client = server.connect().await;
    let back = client.reconnect(&id, json!({ "last_seq": 3 })).await;
    assert_eq!(back["metadata"]["last_seq"], 3);
}

#[tokio::test]
async fn there_are_no_new_sessions_while_it_drains() {
    let mut server = Server::start(&["--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed: Value = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 1 })).await;
    let mut other = server.connect().await;
    server.terminate();
    other.notice("draining").await;
    other.send(json!({ "event": "user.create_session" })).await;
    let refused = other.error("SERVER_BUSY").await;
    assert!(refused["metadata"]["retry_after_ms"].is_u64());
    other.ask_restore(&sealed, json!({ "last_seq": 0 })).await;
    other.error("SERVER_BUSY").await;
    gate.open();
    assert_come_back(&other.closed().await);
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn work_that_takes_too_long_goes_on_after_the_restart() {
    let mut server = Server::start(&["--drain-timeout=200ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 2 })).await;
    server.puppet.until_heard(&["session.start", "user.message 1"]).await;
    server.terminate();
    client.notice("draining").await;
    assert_come_back(&client.closed().await);
    assert_eq!(server.ended().await.code(), Some(0));
    gate.open();
    server.restart().await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0 })).await;
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(client.next().await["seq"].as_u64());
    }
    assert_eq!(got, [1, 2], "each once, whichever process said it");
}

#[tokio::test]
async fn an_idle_server_closes_at_once_and_a_token_outlives_it() {
    let mut server = Server::start(&["--takeover=reject"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    let mut other = server.connect().await;
    server.terminate();
    client.notice("draining").await;
    assert_come_back(&client.closed().await);
    other.notice("draining").await;
    assert_come_back(&other.closed().await);
    assert_eq!(server.ended().await.code(), Some(0));
    server.restart().await;
    let mut client = server.connect().await;
    let token = &created["metadata"]["reconnect_token"];
    client.reconnect(&id, json!({ "reconnect_token": token })).await;
}
