//! What is kept of what was said: for how long, and how much of everybody's together.

use serde_json::{Value, json};

use crate::support::{Client, Server, until};

/// What the server says of a session's buffer.
async fn health(server: &Server, id: &str) -> Value {
    let answer = server.http("GET", &format!("/api/sessions/{id}/health")).await;
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

async fn acked_events_go_after_the_retention_in_a_session_that_is_quiet(store: &str) {
    let server = Server::start(&[store, "--buffer-retention=300ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 3).await;
    client.ack(&id, 2).await;
    until("the acked events have gone", async || health(&server, &id).await["buffer_size"] == 1)
        .await;
    drop(client);
    let mut client = server.connect().await;
    let back = client.reconnect(&id, json!({ "last_seq": 0 })).await;
    assert_eq!(back["metadata"]["gap"], json!({ "from": 1, "to": 2 }));
    client.ack(&id, 3).await;
    until("the last one has gone", async || health(&server, &id).await["buffer_bytes"] == 0).await;
    assert_eq!(server.metric("rejoin_buffered_bytes").await, 0);
}

#[tokio::test]
async fn acked_events_go_after_the_retention_in_a_quiet_session_of_the_embedded_store() {
    acked_events_go_after_the_retention_in_a_session_that_is_quiet("--store=embedded").await;
}

#[tokio::test]
async fn acked_events_go_after_the_retention_in_a_quiet_session_of_the_memory_store() {
    acked_events_go_after_the_retention_in_a_session_that_is_quiet("--store=memory").await;
}

#[tokio::test]
async fn what_a_state_covers_goes_after_the_retention_also_after_a_restart() {
    let flags = ["--buffer-retention=1s", "--auto-export-interval=1h"];
    let mut server = Server::start(&flags).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 2, "state": { "stage": "two" } })).await;
    client.until_seq(2).await;
    server.kill_nine().await;
    server.restart().await;
    until("nothing is held", async || health(&server, &id).await["buffer_size"] == 0).await;
    let mut client = server.connect().await;
    let back = client.reconnect(&id, json!({ "last_seq": 0 })).await;
    assert_eq!(back["metadata"]["gap"], json!({ "from": 1, "to": 2 }));
    assert_eq!(client.notice("gap").await["metadata"]["lost"], json!(null), "the state covers it");
}

#[tokio::test]
async fn what_an_attached_client_loses_is_counted_and_once_so_what_one_that_comes_back_has_lost() {
    let server = Server::start(&["--buffer-size=20"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let events: Vec<_> = (1..=60).map(|n| json!({ "event": "a.step", "content": n })).collect();
    server.post(&format!("/api/sessions/{id}/events"), &json!(events)).await;
    let gap = client.notice("gap").await;
    assert_eq!(gap["metadata"]["lost"], json!({ "from": 1, "to": 40 }));
    assert_eq!(server.metric("rejoin_events_lost_total").await, 40);
    let mut again = server.connect().await;
    again.reconnect(&id, json!({ "last_seq": 30 })).await;
    again.until_seq(60).await;
    assert_eq!(server.metric("rejoin_events_lost_total").await, 50);
}

/// Says about 100 KiB in a session of its own that no client acks.
async fn say_much(server: &Server) -> (Client, String) {
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 10, "bytes": 10_000 })).await;
    client.until_seq(10).await;
    (client, id)
}

async fn the_whole_server_keeps_to_its_bound(store: &str) {
    let flags = [store, "--buffer-bytes=200KiB", "--max-buffered-bytes=256KiB"];
    let server = Server::start(&flags).await;
    let (mut acked, acked_id) = say_much(&server).await;
    acked.ack(&acked_id, 10).await;
    acked.settled().await;
    let (parked, parked_id) = say_much(&server).await;
    drop(parked);
    assert_eq!(server.metric("rejoin_buffer_shed_events_total").await, 0);
    let (_third, third_id) = say_much(&server).await;
    until("somebody gives way", async || {
        server.metric("rejoin_buffered_bytes").await <= 256 * 1024
    })
    .await;
    assert!(server.metric("rejoin_buffer_shed_events_total").await > 0);
    assert_eq!(server.metric("rejoin_buffer_overflow_events_total").await, 0);
    let held = health(&server, &acked_id).await["buffer_size"].as_u64().unwrap();
    assert!(held < 10, "what was acked goes first: {held}");

    let (_fourth, fourth_id) = say_much(&server).await;
    until("somebody gives way", async || {
        server.metric("rejoin_buffer_overflow_events_total").await > 0
    })
    .await;
    for whole in [&third_id, &fourth_id] {
        assert_eq!(health(&server, whole).await["buffer_size"], 10);
    }
    let held = health(&server, &parked_id).await["buffer_size"].as_u64().unwrap();
    assert!(held < 10, "then what was parked for longest: {held}");
    let mut client = server.connect().await;
    client.reconnect(&parked_id, json!({ "last_seq": 0 })).await;
    let gap = client.notice("gap").await;
    assert_eq!((&gap["metadata"]["from"], &gap["metadata"]["to"]), (&json!(1), &json!(10 - held)));
}

#[tokio::test]
async fn the_whole_server_keeps_to_its_bound_with_the_embedded_store() {
    the_whole_server_keeps_to_its_bound("--store=embedded").await;
}

#[tokio::test]
async fn the_whole_server_keeps_to_its_bound_with_the_memory_store() {
    the_whole_server_keeps_to_its_bound("--store=memory").await;
}
