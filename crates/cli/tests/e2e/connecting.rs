//! The first frames of a connection: who greets, who says who it is, and who is sent away.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::support::{Server, text};

fn authenticate(token: &str) -> Value {
    json!({ "event": "user.authenticate", "content": { "token": token } })
}

#[tokio::test]
async fn the_first_frame_says_what_a_client_has_to_know() {
    let flags = ["--heartbeat-interval=250ms", "--reconnect-backoff=1,2,5"];
    let more = ["--max-reconnect-attempts=7", "--max-frame-bytes=600KiB"];
    let server = Server::start(&[&flags[..], &more[..]].concat()).await;
    let (one, other) = (server.connect().await, server.connect().await);
    let content = &one.greeting["content"];
    assert!(text(&content["connection_id"]).starts_with("conn_"));
    assert_ne!(content["connection_id"], other.greeting["content"]["connection_id"]);
    assert_eq!(content["server_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(content["protocol"], 1);
    assert_eq!(content["heartbeat_interval_seconds"], 0.25);
    assert_eq!(content["reconnect_backoff"], json!([1, 2, 5]));
    assert_eq!(content["max_reconnect_attempts"], 7);
    assert_eq!(content["max_frame_bytes"], 600 * 1024);
}

#[tokio::test]
async fn with_authentication_off_any_token_is_taken_and_none_is_needed() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    client.create().await;
    client.send(authenticate("whatever")).await;
    let answer = client.next().await;
    assert_eq!(answer["event"], "system.authenticated");
    assert_eq!(answer["content"]["principal"], "anonymous");
    let mut other = server.connect_with(&[("authorization", "Bearer whatever")]).await;
    other.create().await;
}

#[tokio::test]
async fn until_a_client_has_said_who_it_is_everything_else_is_unauthorized() {
    let server = Server::start_with_keys(&[], &["alice"]).await;
    let mut client = server.connect().await;
    let requests = [
        json!({ "event": "user.create_session" }),
        json!({ "event": "user.reconnect", "session_id": "sess_x" }),
        json!({ "event": "user.reconnect_with_state", "signed_state": "v1.x.y" }),
        json!({ "event": "user.request_state", "session_id": "sess_x" }),
        json!({ "event": "user.message", "session_id": "sess_x", "content": 1 }),
        json!({ "event": "user.cancel", "session_id": "sess_x" }),
        json!({ "event": "user.ack", "session_id": "sess_x", "metadata": { "last_seq": 0 } }),
        json!({ "event": "user.end_session", "session_id": "sess_x" }),
    ];
    for request in requests {
        client.send(request).await;
        client.error("UNAUTHORIZED").await;
    }
    client.send(authenticate("key-of-alice")).await;
    let answer = client.next().await;
    assert_eq!(answer["event"], "system.authenticated");
    assert_eq!(answer["content"]["principal"], "alice");
    client.create().await;
}

#[tokio::test]
async fn keys_are_taken_in_either_header_and_wrong_ones_are_refused_before_the_upgrade() {
    let server = Server::start_with_keys(&[], &["alice"]).await;
    server.connect_as("alice").await.create().await;
    server.connect_with(&[("authorization", "Bearer key-of-alice")]).await.create().await;
    for header in [("x-api-key", "key-of-mallory"), ("authorization", "Bearer key-of-mallory")] {
        assert_eq!(server.try_connect(&[header]).await.err(), Some(401), "{header:?}");
    }
}

#[tokio::test]
async fn a_wrong_credential_in_the_first_frame_closes_with_4102() {
    let server = Server::start_with_keys(&[], &["alice"]).await;
    let mut client = server.connect().await;
    client.send(authenticate("key-of-mallory")).await;
    let closed = client.closed().await;
    assert_eq!((closed.code, &closed.reason["reason"]), (4102, &json!("not_authorised")));
}

#[tokio::test]
async fn a_client_that_does_not_say_who_it_is_within_ten_seconds_is_closed_with_4102() {
    let server = Server::start_with_keys(&[], &["alice"]).await;
    let (mut silent, begun) = (server.connect().await, std::time::Instant::now());
    assert_eq!(silent.closed().await.code, 4102);
    assert!(begun.elapsed().as_secs() >= 9, "too early: {:?}", begun.elapsed());
}

#[tokio::test]
async fn authenticating_again_keeps_the_session_and_nobody_becomes_somebody_else() {
    let server = Server::start_with_keys(&[], &["alice", "bob"]).await;
    let mut client = server.connect_as("alice").await;
    let id = client.create().await;
    client.send(authenticate("key-of-alice")).await;
    assert_eq!(client.next().await["event"], "system.authenticated");
    client.thoughts(&id, 1).await;
    client.send(authenticate("key-of-bob")).await;
    client.error("UNAUTHORIZED").await;
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 2);
}

#[tokio::test]
async fn a_page_of_somebody_else_gets_no_connection() {
    let server = Server::start(&["--allowed-origins=https://app.example"]).await;
    for header in [("origin", "https://evil.example"), ("host", "evil.example")] {
        assert_eq!(server.try_connect(&[header]).await.err(), Some(403), "{header:?}");
    }
    server.connect_with(&[("origin", "https://app.example")]).await.create().await;
    server.connect_with(&[("origin", "http://localhost:3000")]).await.create().await;
}

const JWT_SECRET: &str = "a secret for web tokens, long enough for HS256";

/// A JSON web token of alice, good for so many seconds more.
fn web_token(seconds: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The server forgives clocks that differ by a minute.
    let expires = now.as_secs_f64() + seconds as f64 - 60.0;
    let header = BASE64.encode(json!({ "alg": "HS256", "typ": "JWT" }).to_string());
    let claims = json!({ "iss": "e2e", "aud": "rejoin", "sub": "alice", "exp": expires });
    let signed = format!("{header}.{}", BASE64.encode(claims.to_string()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, JWT_SECRET.as_bytes());
    let signature = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", BASE64.encode(signature))
}

async fn with_web_tokens() -> Server {
    let config = "auth = \"jwt\"\n[jwt]\nissuer = \"e2e\"\naudience = \"rejoin\"\nsecret_env = \"E2E_JWT\"\n";
    Server::start_with(&[], config, &[("E2E_JWT", JWT_SECRET)]).await
}

#[tokio::test]
async fn a_connection_ends_with_4102_when_the_web_token_it_came_with_does() {
    let server = with_web_tokens().await;
    let mut client = server.connect().await;
    client.send(authenticate(&web_token(3))).await;
    assert_eq!(client.next().await["content"]["principal"], "alice");
    let id = client.create().await;
    assert_eq!(client.closed().await.code, 4102);
    let mut again =
        server.connect_with(&[("authorization", &format!("Bearer {}", web_token(600)))]).await;
    again.reconnect(&id, json!({})).await;
}

#[tokio::test]
async fn a_web_token_can_be_renewed_on_an_open_connection() {
    let server = with_web_tokens().await;
    let mut client = server.connect().await;
    client.send(authenticate(&web_token(3))).await;
    client.next().await;
    let id = client.create().await;
    client.send(authenticate(&web_token(600))).await;
    assert_eq!(client.next().await["event"], "system.authenticated");
    // It outlives the first token: with the second alone it would still be answered then.
    let mut witness = server.connect().await;
    witness.send(authenticate(&web_token(4))).await;
    assert_eq!(witness.closed().await.code, 4102);
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn a_client_that_offers_compression_gets_a_connection_without() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let server = Server::start(&[]).await;
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=15, x-unknown",
    ] {
        let url = format!("ws://{}/ws", server.address());
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-extensions", offer.parse().unwrap());
        let (socket, answer) = tokio_tungstenite::connect_async(request).await.unwrap();
        assert_eq!(answer.status(), 101);
        assert!(answer.headers().get("sec-websocket-extensions").is_none(), "{answer:?}");
        let mut client = crate::support::Client::new(socket);
        assert_eq!(client.next().await["event"], "system.connected", "in frames as they are");
        client.create().await;
    }
}
