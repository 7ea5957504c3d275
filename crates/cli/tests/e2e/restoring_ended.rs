//! Which ends of a session leave a snapshot of it good: only what its user ended stays ended.

use std::time::Duration;

use serde_json::json;

use crate::support::{Hook, Server, text, until};

const QUIET: &str = "--auto-export-interval=1h";

#[tokio::test]
async fn a_session_that_a_policy_ended_goes_on_from_a_snapshot() {
    for policy in ["--on-disconnect=immediate", "--on-disconnect=while_pending"] {
        let server = Server::start(&[policy, QUIET]).await;
        let mut client = server.connect().await;
        let id = client.create().await;
        let sealed = client.checkpoint(&id, 2, 7).await;
        drop(client);
        assert_eq!(server.over(&id).await["ended_reason"], "policy");
        let mut client = server.connect().await;
        let restored = client.restore(&sealed, json!({ "last_seq": 2 })).await;
        assert_eq!(restored["metadata"]["restored_step"], 7);
        client.notice("no_buffered_events").await;
        client.notice("replay_complete").await;
        let new = text(&restored["session_id"]);
        assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 3);
    }
}

#[tokio::test]
async fn a_session_that_the_hook_cleaned_up_goes_on_from_a_snapshot() {
    let hook = Hook::start().await;
    hook.answer(json!({ "cleanup": true }));
    let server = Server::start(&[&hook.flag(), QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    drop(client);
    assert_eq!(server.over(&id).await["status"], "closed");
    let mut client = server.connect().await;
    client.restore(&sealed, json!({ "last_seq": 1 })).await;
    assert_eq!(server.record(&id).await["ended_reason"], "restored");
}

#[tokio::test]
async fn a_session_that_was_deleted_does_not_come_back() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    server.http("DELETE", &format!("/api/sessions/{id}")).await;
    assert_eq!(server.over(&id).await["ended_reason"], "user");
    let mut client = server.connect().await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_SUPERSEDED").await;
}

#[tokio::test]
async fn a_session_that_was_deleted_does_not_come_back_when_state_ttl_is_changed() {
    let mut server = Server::start(&[QUIET, "--token-ttl=1s"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    drop(client);
    server.kill_nine().await;
    server.restart_with(&["--state-ttl=1s"]).await;
    let path = format!("/api/sessions/{id}");
    server.http("DELETE", &path).await;
    until("it is forgotten", async || server.http("GET", &path).await.contains(" 404 ")).await;
    let mut client = server.connect().await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_EXPIRED").await;
    server.kill_nine().await;
    server.restart_with(&["--state-ttl=24h"]).await;
    let mut client = server.connect().await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_SUPERSEDED").await;
}

#[tokio::test]
async fn a_state_is_good_for_no_longer_than_the_present_state_ttl() {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let before = client.checkpoint(&id, 1, 1).await;
    drop(client);
    server.kill_nine().await;
    server.restart_with(&["--state-ttl=3s"]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut client = server.connect().await;
    client.ask_restore(&before, json!({ "last_seq": 1 })).await;
    client.error("STATE_EXPIRED").await;
    // The state is as old as before; what counts is when it was exported.
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    client.notice("replay_complete").await;
    let exported = client.export(&id, json!({})).await;
    client.restore(&exported["metadata"]["signed_state"], json!({ "last_seq": 1 })).await;
}
