//! Reconnect tokens over WebSocket.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::support::{Cut, Server, text, until};

fn token(confirmed: &Value) -> Value {
    confirmed["metadata"]["reconnect_token"].clone()
}

/// What a part of a token says.
fn part(token: &Value, index: usize) -> Value {
    let bytes = BASE64.decode(text(token).split('.').nth(index).unwrap()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn a_token_is_a_jwt_with_the_claims_of_the_protocol() {
    let server = Server::start(&["--token-ttl=10m"]).await;
    let created = server.connect().await.created().await;
    let (header, claims) = (part(&token(&created), 0), part(&token(&created), 1));
    assert_eq!(header["alg"], "HS256");
    assert!(header["kid"].is_string());
    assert_eq!(claims["session_id"], created["session_id"]);
    assert_eq!(claims["purpose"], "session_reconnect");
    assert!(claims["jti"].is_string() && claims["sub"].is_string() && !claims["aud"].is_null());
    let life = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
    assert_eq!(life, 600);
    assert!(text(&created["metadata"]["reconnect_token_expires_at"]).ends_with('Z'));
}

both_ways!(
    a_token_works_once_and_brings_the_next,
    a_lost_reply_is_given_again,
    any_other_reuse_revokes_every_token
);

async fn a_token_works_once_and_brings_the_next(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, mut next) = (text(&created["session_id"]), token(&created));
    for generation in 2..=4 {
        server.cut(client, cut).await;
        client = server.connect().await;
        let confirmed = client.reconnect(&id, json!({ "reconnect_token": next })).await;
        assert_eq!(confirmed["metadata"]["generation"], generation);
        assert_ne!(token(&confirmed), next);
        next = token(&confirmed);
        assert_eq!(part(&next, 1)["generation"], generation, "it is of the attach that brought it");
    }
}

async fn a_lost_reply_is_given_again(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, first) = (text(&created["session_id"]), token(&created));
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    let confirmed = client.reconnect(&id, json!({ "reconnect_token": first })).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    let again = client.reconnect(&id, json!({ "reconnect_token": first })).await;
    assert_eq!(token(&again), token(&confirmed), "the same answer");
    assert_eq!(again["metadata"]["generation"], 3, "and attached anew");
    client.notice("replay_complete").await;
    client.reconnect(&id, json!({ "reconnect_token": token(&again) })).await;
}

async fn any_other_reuse_revokes_every_token(cut: Cut) {
    let mut server = Server::start(&["--takeover=reject"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, first) = (text(&created["session_id"]), token(&created));
    let confirmed = client.reconnect(&id, json!({ "reconnect_token": first })).await;
    let second = token(&confirmed);
    client.notice("replay_complete").await;
    let third = token(&client.reconnect(&id, json!({ "reconnect_token": second })).await);
    client.notice("replay_complete").await;
    server.cut(client, cut).await;
    let mut thief = server.connect().await;
    thief.ask_back(&id, json!({ "reconnect_token": first })).await;
    thief.error("TOKEN_REUSED").await;
    let mut owner = server.connect().await;
    owner.ask_back(&id, json!({ "reconnect_token": third })).await;
    let refused = owner.next().await;
    assert_eq!(refused["event"], "agent.error", "{refused}");
    assert_eq!(refused["metadata"]["recovery_action"], "authenticate_again");
    // The owner itself needs no token for a session that nobody is attached to.
    until("the session is parked", async || {
        owner.ask_back(&id, json!({})).await;
        owner.next().await["event"] == "agent.session_created"
    })
    .await;
}

#[tokio::test]
async fn a_token_that_is_presented_is_always_checked() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    let other = server.connect().await.created().await;
    let good = text(&token(&created));
    let mut changed = good.clone().into_bytes();
    let at = good.rfind('.').unwrap() + 5;
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    let unsigned =
        format!("{}.{}.", BASE64.encode(r#"{"alg":"none"}"#), good.split('.').nth(1).unwrap());
    let wrong = [
        "x".to_owned(),
        String::new(),
        text(&token(&other)),
        String::from_utf8(changed).unwrap(),
        unsigned,
        "a.b.c".repeat(1_000),
    ];
    for wrong in wrong {
        client.ask_back(&id, json!({ "reconnect_token": wrong })).await;
        client.error("TOKEN_INVALID").await;
    }
    let event = "user.reconnect_with_state";
    let content = json!({ "reconnect_token": "x" });
    client.send(json!({ "event": event, "session_id": id, "content": content })).await;
    client.recovery_failed("TOKEN_INVALID").await;
    client.reconnect(&id, json!({ "reconnect_token": good })).await;
}

#[tokio::test]
async fn an_expired_token_counts_as_none() {
    let server = Server::start(&["--token-ttl=1s"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    tokio::time::sleep(Duration::from_millis(2_100)).await; // expiry is by the second
    let mut other = server.connect().await;
    other.reconnect(&id, json!({ "reconnect_token": token(&created) })).await;
}

#[tokio::test]
async fn a_token_is_good_for_no_longer_than_the_present_token_ttl() {
    let mut server = Server::start(&["--takeover=reject"]).await;
    let created = server.connect().await.created().await;
    let (id, old) = (text(&created["session_id"]), token(&created));
    server.kill_nine().await;
    server.restart_with(&["--token-ttl=1s"]).await;
    tokio::time::sleep(Duration::from_millis(2_100)).await; // expiry is by the second
    let mut attached = server.connect().await;
    attached.reconnect(&id, json!({})).await;
    let mut other = server.connect().await;
    other.ask_back(&id, json!({ "reconnect_token": old })).await;
    other.error("TOKEN_EXPIRED").await;
}

#[tokio::test]
async fn an_expired_token_is_told_where_one_is_needed() {
    let server = Server::start(&["--token-ttl=1s", "--takeover=reject"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    tokio::time::sleep(Duration::from_millis(2_100)).await; // expiry is by the second
    let mut other = server.connect().await;
    other.ask_back(&id, json!({ "reconnect_token": token(&created) })).await;
    other.error("TOKEN_EXPIRED").await;
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn the_next_token_comes_in_a_heartbeat_after_half_the_life_of_the_last() {
    let server = Server::start(&["--token-ttl=4s", "--heartbeat-interval=100ms"]).await;
    let mut client = server.connect().await.seeing_heartbeats();
    let created = client.created().await;
    let (id, begun) = (text(&created["session_id"]), std::time::Instant::now());
    let renewed = loop {
        let beat = client.until("system.heartbeat").await;
        if beat["metadata"].get("reconnect_token").is_some() {
            break beat;
        }
    };
    let after = begun.elapsed();
    assert!((Duration::from_millis(1_800)..Duration::from_secs(4)).contains(&after), "{after:?}");
    assert_ne!(token(&renewed), token(&created));
    assert!(renewed["metadata"]["reconnect_token_expires_at"].is_string());
    let mut other = server.connect().await;
    other.reconnect(&id, json!({ "reconnect_token": token(&renewed) })).await;
}

#[tokio::test]
async fn tokens_outlive_a_restart_also_with_a_secret_from_the_environment() {
    let secret = [("MCP_SESSION_SECRET", "thirty-two bytes at the very least")];
    let mut server = Server::start_with(&[], "", &secret).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    drop(client);
    server.kill_nine().await;
    server.restart().await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "reconnect_token": token(&created) })).await;
}

#[tokio::test]
async fn failures_are_limited_and_nobody_locks_the_owner_out() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    let mut thief = server.connect().await;
    for _ in 0..10 {
        thief.ask_back(&id, json!({ "reconnect_token": "x" })).await;
        thief.error("TOKEN_INVALID").await;
    }
    thief.ask_back(&id, json!({ "reconnect_token": "x" })).await;
    let refused = thief.error("RATE_LIMITED").await;
    assert!(refused["metadata"]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0));
    client.reconnect(&id, json!({ "reconnect_token": token(&created) })).await;
}

#[tokio::test]
async fn successes_are_limited_to_sixty_a_minute() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let mut refused = None;
    for attempt in 1..=75 {
        client.ask_back(&id, json!({})).await;
        let frame = client.next().await;
        if frame["event"] == "agent.error" {
            refused = Some((attempt, frame));
            break;
        }
        client.notice("replay_complete").await;
    }
    let (attempt, frame) = refused.expect("it is never refused");
    assert_eq!(frame["metadata"]["error_code"], "RATE_LIMITED");
    assert!(attempt > 60, "refused at {attempt}");
    client.thoughts(&id, 1).await;
}
