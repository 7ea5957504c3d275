//! Which ends of a session leave a snapshot of it good: only what its user ended stays ended.

use serde_json::json;

use crate::support::{Hook, Server, text};

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
