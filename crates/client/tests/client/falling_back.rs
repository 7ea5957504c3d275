//! The session is gone: from it to the snapshot, from there to a new session.

use rejoin_client::{ErrorCode, Incoming, Joined, MemoryKeep, Session, Status, StopReason};
use serde_json::{Value, json};

use crate::fake_server::{FakeServer, last_item, next_seqs, read_on, until_status};

/// A session whose snapshot was kept, on a connection that has just broken after event 1.
async fn with_snapshot(server: &FakeServer, keep: &MemoryKeep) -> Session {
    let builder = Session::builder(server.url()).keep(keep.clone());
    let mut session = builder.start().await.unwrap();
    let mut peer = server.create().await;
    session.handle().request_state();
    peer.expect("user.request_state").await;
    let metadata = json!({ "signed_state": "sealed", "seq": 0, "session_state": {} });
    peer.send(json!({ "event": "agent.state_exported", "metadata": metadata })).await;
    peer.event(1).await;
    while session.next_event().await.is_none() {}
    peer.reset();
    session
}

fn not_found() -> Value {
    json!({ "error_code": "SESSION_NOT_FOUND", "recovery_action": "create_new_session" })
}

#[tokio::test]
async fn a_refused_session_is_restored_from_the_snapshot() {
    let (server, keep) = (FakeServer::start().await, MemoryKeep::new());
    let mut session = with_snapshot(&server, &keep).await;
    let mut peer = server.greet().await;
    peer.expect("user.reconnect").await;
    peer.refused("agent.error", not_found()).await;
    let asked = peer.expect("user.reconnect_with_state").await;
    assert_eq!(asked["signed_state"], "sealed");
    assert_eq!(asked["content"], json!({ "last_seq": 1, "epoch": "e1", "batch": true }));
    peer.send(json!({
        "event": "agent.state_restored", "content": "State restored successfully",
        "metadata": { "original_session_id": "sess_first", "new_session_id": "sess_second",
            "epoch": "e2", "replay_from": 2, "gap": null, "reconnect_token": "token-9" },
    }))
    .await;
    peer.event(2).await;
    until_status(&mut session, |status| *status == Status::Restoring).await;
    let restored =
        |status: &Status| matches!(status, Status::Connected { how: Joined::Restored, .. });
    until_status(&mut session, restored).await;
    assert_eq!(next_seqs(&mut session, 1).await, [2]);
    read_on(session);
    peer.expect_ack(2).await;
    let saved = keep.saved().unwrap();
    assert_eq!(saved.session_id.unwrap().as_str(), "sess_second");
    assert_eq!(saved.position.unwrap().epoch.as_str(), "e2");
    assert_eq!(saved.token.unwrap().reveal(), "token-9");
    assert_eq!(saved.snapshot, None);
}

#[tokio::test]
async fn where_the_snapshot_is_refused_too_a_new_session_is_created() {
    let server = FakeServer::start().await;
    let mut session = with_snapshot(&server, &MemoryKeep::new()).await;
    let mut peer = server.greet().await;
    peer.expect("user.reconnect").await;
    peer.refused("agent.error", not_found()).await;
    peer.expect("user.reconnect_with_state").await;
    peer.refused("error.recovery_failed", json!({ "error_code": "STATE_EXPIRED" })).await;
    peer.expect("user.create_session").await;
    peer.created_as("sess_third", "e3").await;
    peer.event(1).await;
    let expired = Status::Expired { code: ErrorCode::StateExpired };
    until_status(&mut session, |status| *status == expired).await;
    let created =
        |status: &Status| matches!(status, Status::Connected { how: Joined::Created, .. });
    until_status(&mut session, created).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1], "its events begin anew");
}

#[tokio::test]
async fn who_wants_no_other_session_is_told_that_it_is_lost() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).create_when_lost(false);
    let mut session = builder.start().await.unwrap();
    server.create().await.reset();
    let mut peer = server.greet().await;
    peer.expect("user.reconnect").await;
    peer.refused("agent.error", not_found()).await;
    let reason = StopReason::Lost { code: ErrorCode::SessionNotFound };
    let last = last_item(&mut session).await;
    assert!(matches!(last, Some(Incoming::Status(Status::Stopped { reason: r })) if r == reason));
}
