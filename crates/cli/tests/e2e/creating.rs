//! `user.create_session`.

use serde_json::json;

use crate::support::{Server, text};

#[tokio::test]
async fn a_new_session_is_confirmed_with_everything_its_client_needs_to_come_back() {
    let server = Server::start(&["--session-ttl=3h"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, content, metadata) =
        (text(&created["session_id"]), &created["content"], &created["metadata"]);
    let random = id.strip_prefix("sess_").expect("sess_ and random bits");
    assert!(random.len() >= 22, "128 bits are 22 characters: {id}");
    assert!(random.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
    assert_eq!(content["session_id"], id.as_str());
    assert!(text(&content["created_at"]).ends_with('Z'));
    assert_eq!(content["epoch"], metadata["epoch"]);
    assert!(!text(&metadata["epoch"]).is_empty());
    assert_eq!(metadata["resumed"], false);
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["last_seq"], 0);
    assert_eq!(metadata["replay_from"], 1);
    assert_eq!(metadata["gap"], json!(null));
    assert_eq!(metadata["session_ttl_seconds"], 3 * 3600);
    assert_eq!(metadata["server_version"], env!("CARGO_PKG_VERSION"));
    assert!(metadata["capabilities"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(text(&metadata["reconnect_token"]).split('.').count(), 3, "a JWT");
}

#[tokio::test]
async fn content_may_be_left_out_and_may_hold_anything() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    for content in [json!(null), json!({}), json!({ "client_id": "x", "more": [1, { "a": "b" }] })]
    {
        client.send(json!({ "event": "user.create_session", "content": content })).await;
        assert_eq!(client.next().await["event"], "agent.session_created");
    }
    client.send(json!({ "event": "user.create_session" })).await;
    assert_eq!(client.next().await["event"], "agent.session_created");
}

#[tokio::test]
async fn a_second_session_on_a_connection_parks_the_first() {
    let server = Server::start(&["--takeover=reject"]).await;
    let mut client = server.connect().await;
    let first = client.create().await;
    client.thoughts(&first, 1).await;
    let second = client.create().await;
    assert_ne!(first, second);
    client.send(json!({ "event": "user.message", "session_id": first, "content": 1 })).await;
    client.error("SESSION_NOT_OWNED").await;
    client.thoughts(&second, 1).await;
    // Nobody is attached to it any more: even where the later one does not win, it can be had.
    let mut other = server.connect().await;
    let back = other.reconnect(&first, json!({ "last_seq": 0 })).await;
    assert_eq!(back["metadata"]["last_seq"], 1);
    // The other way round as well: coming back to one session parks the one before.
    client
        .reconnect(&first, json!({ "reconnect_token": back["metadata"]["reconnect_token"] }))
        .await;
    server.connect().await.reconnect(&second, json!({})).await;
}

#[tokio::test]
async fn an_id_that_a_client_chooses_is_ignored_unless_that_is_allowed() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let chosen = "my-own-session-name-of-28-ch";
    client.send(json!({ "event": "user.create_session", "session_id": chosen })).await;
    let created = client.next().await;
    assert_eq!(created["event"], "agent.session_created");
    assert_ne!(created["session_id"], chosen);

    let server = Server::start(&["--client-session-ids=true"]).await;
    let mut client = server.connect().await;
    client.send(json!({ "event": "user.create_session", "session_id": chosen })).await;
    assert_eq!(client.next().await["session_id"], chosen);
    // Taken, too short, too long, with characters that an id does not have.
    let long = "x".repeat(129);
    for wrong in [
        chosen,
        "short",
        long.as_str(),
        "no/slashes/in/a/session/id",
        // Those that only the server makes.
        "stateless~of-a-client-without-sessions",
        "stateless-0123456789012345678901234567890123456789",
        "name~of-somebody-else~the-name",
        "origin~of-a-session-elsewhere",
        "ünïcödé-is-not-for-ids-here",
    ] {
        client.send(json!({ "event": "user.create_session", "session_id": wrong })).await;
        client.error("ID_INVALID").await;
    }
    client.reconnect(chosen, json!({})).await;
}

#[tokio::test]
async fn there_are_no_more_sessions_than_allowed() {
    let server = Server::start(&["--max-sessions=2"]).await;
    let mut client = server.connect().await;
    let first = client.create().await;
    client.create().await;
    client.send(json!({ "event": "user.create_session" })).await;
    let refused = client.error("SERVER_BUSY").await;
    assert!(refused["metadata"]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0));
    client.reconnect(&first, json!({})).await;
    client.end(&first).await;
    client.create().await;
}

#[tokio::test]
async fn one_principal_can_not_use_up_the_sessions_of_another() {
    let server =
        Server::start_with_keys(&["--max-sessions-per-principal=1"], &["alice", "bob"]).await;
    let mut alice = server.connect_as("alice").await;
    alice.create().await;
    alice.send(json!({ "event": "user.create_session" })).await;
    alice.error("SERVER_BUSY").await;
    server.connect_as("bob").await.create().await;
}

#[tokio::test]
async fn a_name_is_a_session_of_each_principal_that_administrators_tell_apart() {
    let (name, flags) = ("the-name-that-both-of-us-like", ["--client-session-ids=true"]);
    let admin = "[[api_keys]]\nname = \"admin\"\nadmin = true\nkey_sha256 = \"HASH\"\n";
    let admin = admin.replace("HASH", &Server::key_hash("admin"));
    let keys = Server::api_keys(&["alice", "bob"]) + &admin;
    let server = Server::start_with(&flags, &keys, &[]).await;
    for (who, count) in [("alice", 1), ("bob", 2)] {
        let mut client = server.connect_as(who).await;
        client.send(json!({ "event": "user.create_session", "session_id": name })).await;
        let created = client.next().await;
        assert_eq!(
            (&created["session_id"], &created["content"]["session_id"]),
            (&json!(name), &json!(name))
        );
        let thoughts = client.thoughts(name, count).await;
        assert!(thoughts.iter().all(|thought| thought["session_id"] == name));
        let exported = client.export(name, json!({})).await;
        assert_eq!(exported["metadata"]["session_state"]["session_id"], name);
    }
    let seen = |who: &'static str, path: String| server.get_as(who, path);
    for (who, last_seq) in [("alice", 1), ("bob", 2)] {
        let record = seen(who, format!("/api/sessions/{name}")).await;
        assert_eq!((&record["session_id"], &record["last_seq"]), (&json!(name), &json!(last_seq)));
        let events = seen(who, format!("/api/sessions/{name}/events?after=0")).await;
        assert_eq!(events["events"][0]["session_id"], name);
    }
    let listed = seen("admin", "/api/sessions".into()).await;
    let ids: Vec<String> = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| text(&record["session_id"]))
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(id.starts_with("name~") && id.ends_with(name), "{id}");
        assert_eq!(seen("admin", format!("/api/sessions/{id}")).await["session_id"], id.as_str());
    }
}
