//! Heartbeats: how either side learns that the other one is gone.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Server, text, until};

const QUICK: [&str; 3] =
    ["--heartbeat-interval=100ms", "--heartbeat-timeout=400ms", "--max-heartbeat-misses=3"];

#[tokio::test]
async fn a_heartbeat_says_how_far_the_log_is_and_comes_with_a_ping() {
    let server = Server::start(&["--heartbeat-interval=100ms"]).await;
    let mut client = server.connect().await.seeing_heartbeats();
    let id = client.create().await;
    let beat = client.until("system.heartbeat").await;
    assert_eq!((&beat["session_id"], &beat["metadata"]["seq"]), (&json!(id), &json!(0)));
    assert!(text(&beat["content"]["server_time"]).ends_with('Z'));
    client.thoughts(&id, 3).await;
    assert_eq!(client.until("system.heartbeat").await["metadata"]["seq"], 3);
    client.pinged().await;
}

#[tokio::test]
async fn a_client_that_only_answers_pings_stays() {
    let server = Server::start(&QUICK).await;
    let mut client = server.connect().await.seeing_heartbeats();
    let id = client.create().await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_200) {
        client.until("system.heartbeat").await; // reading answers pings
    }
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn pings_of_the_client_are_answered() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let ping = tokio_tungstenite::tungstenite::Message::Ping(b"are you there".to_vec().into());
    client.raw(ping).await;
    assert_eq!(client.ponged().await, b"are you there");
}

#[tokio::test]
async fn a_silent_client_is_closed_with_4001_and_its_session_is_parked() {
    let server = Server::start(&[&QUICK[..], &["--takeover=reject"]].concat()).await;
    let mut silent = server.connect().await;
    let id = silent.create().await;
    // It does not read, so no pong goes out. That its session is parked shows in that another one can
    // have it where the later one does not win.
    let mut other = server.connect().await;
    until("the session is parked", async || {
        other.ask_back(&id, json!({})).await;
        other.next().await["event"] == "agent.session_created"
    })
    .await;
    let closed = silent.closed().await;
    assert_eq!((closed.code, &closed.reason["reason"]), (4001, &json!("heartbeat_lost")));
    assert!(closed.reason["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0));
}

#[tokio::test]
async fn too_many_heartbeats_without_an_answer_are_enough() {
    let flags =
        ["--heartbeat-interval=100ms", "--heartbeat-timeout=1h", "--max-heartbeat-misses=2"];
    let server = Server::start(&[&flags[..], &["--takeover=reject"]].concat()).await;
    let mut silent = server.connect().await;
    let id = silent.create().await;
    let mut other = server.connect().await.seeing_heartbeats();
    until("the session is parked", async || {
        other.ask_back(&id, json!({})).await;
        loop {
            let frame = other.next().await;
            if frame["event"] != "system.heartbeat" {
                return frame["event"] == "agent.session_created";
            }
        }
    })
    .await;
    assert_eq!(silent.closed().await.code, 4001);
}

#[tokio::test]
async fn a_connection_without_a_session_has_heartbeats_too() {
    let server = Server::start(&QUICK).await;
    let mut client = server.connect().await.seeing_heartbeats();
    for _ in 0..8 {
        let beat = client.next().await;
        assert_eq!(beat["event"], "system.heartbeat");
        assert!(beat.get("session_id").is_none());
        assert_eq!(beat["metadata"]["seq"], 0);
    }
    client.pinged().await;
    let mut silent = server.connect().await;
    tokio::time::sleep(Duration::from_millis(600)).await; // silence is the point
    assert_eq!(silent.closed().await.code, 4001);
}

#[tokio::test]
async fn with_an_inactivity_timeout_pongs_alone_do_not_keep_a_client() {
    let flags = ["--heartbeat-interval=100ms", "--inactivity-timeout=600ms"];
    let server = Server::start(&flags).await;
    let mut active = server.connect().await.seeing_heartbeats();
    let id = active.create().await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        active.until("system.heartbeat").await;
        active.ack(&id, 0).await;
    }
    // Now it answers pings and nothing else.
    assert_eq!(active.closed().await.code, 4001);
    server.connect().await.reconnect(&id, json!({})).await;
}

#[tokio::test]
async fn bad_frames_show_that_a_client_lives_as_well() {
    let server = Server::start(&QUICK).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_000) {
        client.send(json!({ "event": "user.dance" })).await;
        client.error("UNKNOWN_EVENT").await;
        tokio::time::sleep(Duration::from_millis(50)).await; // a hundred at once would be abuse
    }
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn every_heartbeat_that_a_client_lets_pass_is_counted() {
    let patient = ["--heartbeat-timeout=1h", "--max-heartbeat-misses=1000"];
    let server = Server::start(&[&["--heartbeat-interval=50ms"], &patient[..]].concat()).await;
    let missed = async || server.metric("rejoin_heartbeats_missed_total").await;
    let mut client = server.connect().await;
    let id = client.create().await;
    // It does not read, so no pong goes out; it is not given up either.
    until("three are missed", async || missed().await >= 3).await;
    client.thoughts(&id, 1).await;
    let idle = server.connect().await;
    drop(client);
    let before = missed().await;
    until("a connection without a session misses some too", async || missed().await > before + 2)
        .await;
    drop(idle);
}
