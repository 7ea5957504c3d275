//! SIGTERM: what is under way may finish, and everybody is told to come back.

use serde_json::{Value, json};

use crate::support::client::Closed;
use crate::support::{Server, text, until};

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

#[tokio::test]
async fn nothing_is_begun_while_it_drains_and_acks_still_count() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    client.thoughts(&id, 2).await;
    let mut other = server.connect().await;
    let parked = other.created().await;
    let parked_id = text(&parked["session_id"]);
    drop(other);
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 1 })).await;
    let mut idle = server.connect().await;
    server.terminate();
    client.notice("draining").await;
    idle.notice("draining").await;

    let message =
        json!({ "event": "user.message", "session_id": id, "message_id": "late", "content": 1 });
    client.send(message.clone()).await;
    let refused = client.error("SERVER_BUSY").await;
    assert_eq!(refused["metadata"]["message_id"], "late");
    assert!(refused["metadata"]["retry_after_ms"].is_u64(), "{refused}");
    client.send(json!({ "event": "user.cancel", "session_id": id })).await;
    client.until("system.accepted").await; // it begins nothing
    let token = &parked["metadata"]["reconnect_token"];
    idle.ask_back(&parked_id, json!({ "reconnect_token": token })).await;
    let refused = idle.error("SERVER_BUSY").await;
    assert!(refused["metadata"]["retry_after_ms"].is_u64(), "{refused}");
    for (path, body) in [
        (format!("/api/sessions/{id}/messages"), json!({ "content": 1 })),
        (format!("/api/sessions/{parked_id}/reconnect"), json!({ "token": token })),
        ("/api/sessions".to_owned(), json!({})),
    ] {
        let answer = server.post(&path, &body).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
        assert!(answer.to_lowercase().contains("\r\nretry-after: "), "{path}: {answer}");
        assert!(answer.contains("SERVER_BUSY"), "{path}: {answer}");
    }
    client.ack(&id, 2).await;
    until("the ack counts", async || {
        server.http("GET", &format!("/api/sessions/{id}")).await.contains(r#""last_acked_seq":2"#)
    })
    .await;
    gate.open();
    assert_eq!(client.next().await["seq"], 3, "what was under way has finished");
    assert_come_back(&client.closed().await);
    assert_eq!(server.ended().await.code(), Some(0));

    server.restart().await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 3 })).await;
    client.send(message).await;
    let taken = client.until("system.accepted").await;
    assert_eq!(taken["content"]["duplicate"], false, "it was not entered before");
    client.reconnect(&parked_id, json!({ "reconnect_token": token })).await;
}

#[tokio::test]
async fn a_socket_that_is_opened_while_it_drains_is_told_so_and_closed_at_once() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 1 })).await;
    server.terminate();
    client.notice("draining").await;
    let mut late = server.connect().await;
    late.notice("draining").await;
    assert_come_back(&late.closed().await);
    gate.open();
    assert_come_back(&client.closed().await);
    assert_eq!(server.ended().await.code(), Some(0));
}
