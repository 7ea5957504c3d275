//! A restore among other clients of the same line: who is superseded, who may, and where it goes on.

use serde_json::json;

use crate::support::client::seqs;
use crate::support::{Server, text};

const QUIET: &str = "--auto-export-interval=1h";

#[tokio::test]
async fn the_client_of_a_session_that_was_restored_elsewhere_is_superseded() {
    let server = Server::start(&[QUIET]).await;
    let mut old = server.connect().await;
    let id = old.create().await;
    let sealed = old.checkpoint(&id, 1, 1).await;
    let mut client = server.connect().await;
    client.restore(&sealed, json!({ "last_seq": 1 })).await;
    assert_eq!(old.notice("superseded").await["session_id"], id.as_str());
    assert_eq!(old.closed().await.code, 4100);
    let record = server.record(&id).await;
    assert_eq!(
        (&record["status"], &record["ended_reason"]),
        (&json!("closed"), &json!("restored"))
    );
}

#[tokio::test]
async fn takeover_reject_keeps_a_restore_from_superseding_unless_it_brings_a_token() {
    let server = Server::start(&[QUIET, "--takeover=reject"]).await;
    let mut first = server.connect().await;
    let created = first.created().await;
    let (id, token) = (text(&created["session_id"]), &created["metadata"]["reconnect_token"]);
    let sealed = first.checkpoint(&id, 1, 1).await;
    // Where the session itself goes on.
    let mut second = server.connect().await;
    second.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    second.error("SESSION_ALREADY_ACTIVE").await;
    second.ask_restore(&sealed, json!({ "last_seq": 1, "reconnect_token": "x" })).await;
    second.error("TOKEN_INVALID").await;
    first.thoughts(&id, 1).await;
    let asked = json!({ "last_seq": 2, "reconnect_token": token });
    let restored = second.restore(&sealed, asked.clone()).await;
    let (new, token) = (text(&restored["session_id"]), &restored["metadata"]["reconnect_token"]);
    second.notice("replay_complete").await;
    assert_eq!(first.closed().await.code, 4100);
    // Where the one that was made of it does.
    let mut third = server.connect().await;
    for content in [json!({ "last_seq": 2 }), asked] {
        third.ask_restore(&sealed, content).await;
        third.error("SESSION_ALREADY_ACTIVE").await;
    }
    second.thoughts(&new, 1).await;
    let asked = json!({ "last_seq": 2, "reconnect_token": token });
    assert_eq!(third.restore(&sealed, asked).await["session_id"], new.as_str());
    assert_eq!(second.closed().await.code, 4100);
    drop(third);
    // With nobody attached, none is needed.
    crate::support::until("nobody is attached", async || {
        server.record(&new).await["attached"] == false
    })
    .await;
    let mut fourth = server.connect().await;
    assert_eq!(fourth.restore(&sealed, json!({})).await["session_id"], new.as_str());
}

#[tokio::test]
async fn repeated_without_a_position_a_restore_goes_on_after_the_last_ack() {
    let secret = [("MCP_SESSION_SECRET", "a secret that two servers have in common")];
    let sealed = {
        let lost = Server::start_with(&[QUIET], "", &secret).await;
        let mut client = lost.connect().await;
        let id = client.create().await;
        client.checkpoint(&id, 3, 5).await
    };
    // The first server's data is gone, and with it the session; the state is all there is.
    let server = Server::start_with(&[QUIET], "", &secret).await;
    let mut client = server.connect().await;
    let new = text(&client.restore(&sealed, json!({ "last_seq": 3 })).await["session_id"]);
    client.notice("no_buffered_events").await;
    client.notice("replay_complete").await;
    client.thoughts(&new, 3).await;
    client.ack(&new, 5).await;
    client.settled().await;
    let again = client.restore(&sealed, json!({})).await;
    assert_eq!(again["session_id"], new.as_str());
    assert_eq!(again["metadata"]["gap"], json!(null));
    assert_eq!(again["metadata"]["replay_from"], 6);
    assert_eq!(seqs(&client.replay().await), [6]);
}

#[tokio::test]
async fn the_restored_step_is_that_of_the_state_in_force() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let new = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    let sealed = client.checkpoint(&id, 1, 5).await;
    client.checkpoint(&id, 1, 6).await;
    let restored = client.restore(&sealed, json!({ "last_seq": 2 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 6);
    client.notice("replay_complete").await;
    let restored = client.restore(&new, json!({ "last_seq": 2 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 6);
    client.notice("replay_complete").await;
    // Of an agent that has stored nothing it is what an export says.
    let id = client.create().await;
    let sealed = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    let restored = client.restore(&sealed, json!({})).await;
    assert_eq!(restored["metadata"]["restored_step"], 0);
    let exported = client.export(&text(&restored["session_id"]), json!({})).await;
    assert_eq!(exported["metadata"]["current_operation"], "new");
}

#[tokio::test]
async fn a_newer_state_counts_although_an_older_one_was_restored_before_it() {
    let secret = [("MCP_SESSION_SECRET", "a secret that two servers have in common")];
    let (older, newer) = {
        let lost = Server::start_with(&[QUIET], "", &secret).await;
        let mut client = lost.connect().await;
        let id = client.create().await;
        (client.checkpoint(&id, 1, 1).await, client.checkpoint(&id, 3, 9).await)
    };
    // The first server's data is gone; two clients of the line kept what they had.
    let server = Server::start_with(&[QUIET], "", &secret).await;
    let mut first = server.connect().await;
    let restored = first.restore(&older, json!({ "last_seq": 1 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 1);
    let mut second = server.connect().await;
    let restored = second.restore(&newer, json!({ "last_seq": 4 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 9);
    let id = text(&restored["session_id"]);
    assert_eq!(first.closed().await.code, 4100);
    // Whatever is brought from now on meets there, and undoes nothing.
    let said = second.thoughts(&id, 1).await;
    assert_eq!(seqs(&said), [5]);
    for sealed in [&older, &newer] {
        let mut third = server.connect().await;
        let restored = third.restore(sealed, json!({ "last_seq": 4 })).await;
        assert_eq!(restored["session_id"], id.as_str());
        assert_eq!(restored["metadata"]["restored_step"], 9);
    }
}

#[tokio::test]
async fn the_same_holds_where_the_session_has_expired_and_is_remembered() {
    let server = Server::start(&[QUIET, "--disconnect-ttl=100ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let (older, newer) = (client.checkpoint(&id, 1, 1).await, client.checkpoint(&id, 3, 9).await);
    drop(client);
    server.expired(&id).await;
    let mut first = server.connect().await;
    let restored = first.restore(&older, json!({ "last_seq": 1 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 1);
    let mut second = server.connect().await;
    let restored = second.restore(&newer, json!({ "last_seq": 4 })).await;
    assert_eq!(restored["metadata"]["restored_step"], 9);
    assert_eq!(first.closed().await.code, 4100);
    // Nothing is left of what the old one said; whoever brings the state again is told so again.
    second.notice("no_buffered_events").await;
    let mut third = server.connect().await;
    third.restore(&newer, json!({ "last_seq": 4 })).await;
    third.notice("no_buffered_events").await;
}
