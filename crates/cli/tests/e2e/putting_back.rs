//! A backup of the data directory is put back. Numbers of events are given out a second time, and a client that has seen
//! the first ones must be told, whatever it comes back with and however far the new ones have come.

use serde_json::{Value, json};

use crate::restoring_own::copy_files;
use crate::support::client::seqs;
use crate::support::{Client, Server, text};

const QUIET: &str = "--auto-export-interval=1h";

/// A server whose session has said so much again since a backup with two events was put back, and what a client knows
/// that has seen six events before that.
async fn put_back(said_since: u64) -> (Server, String, Value) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    client.thoughts(&id, 2).await;
    drop(client);
    server.kill_nine().await;
    let backup = tempfile::tempdir().unwrap();
    copy_files(&server.data(), backup.path());
    server.restart().await;
    let mut client = server.connect().await;
    let epoch = client.reconnect(&id, json!({ "last_seq": 2 })).await["metadata"]["epoch"].clone();
    assert_eq!(epoch, created["metadata"]["epoch"], "a restart alone keeps the epoch");
    client.notice("replay_complete").await;
    client.thoughts(&id, 4).await;
    drop(client);
    server.kill_nine().await;
    copy_files(backup.path(), &server.data());
    server.restart().await;
    let mut other = server.connect().await;
    other.reconnect(&id, json!({})).await;
    other.replay().await;
    other.thoughts(&id, said_since).await;
    (server, id, epoch)
}

/// Comes back, and expects to be told that its position means nothing, and everything that there is.
async fn hears_everything(client: &mut Client, frame: Value, epoch: &Value, head: u64) {
    client.send(frame).await;
    let back = client.until("agent.session_created").await;
    assert_eq!(back["metadata"]["gap"], json!({ "from": null, "to": null }), "{back}");
    assert_ne!(&back["metadata"]["epoch"], epoch);
    let gap = client.notice("gap").await;
    assert_eq!(gap["metadata"]["reason"], "position_unknown");
    assert_eq!(seqs(&client.replay().await), (1..=head).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_client_of_the_lost_future_is_told_and_gets_what_was_said_since() {
    for said_since in [1, 4, 9] {
        let (server, id, epoch) = put_back(said_since).await;
        for event in ["user.reconnect", "user.reconnect_with_state"] {
            for content in [json!({ "last_seq": 6, "epoch": epoch }), json!({ "last_seq": 6 })] {
                let mut client = server.connect().await;
                let frame = json!({ "event": event, "session_id": id, "content": content });
                hears_everything(&mut client, frame, &epoch, 2 + said_since).await;
            }
        }
        let page = server.get(&format!("/api/sessions/{id}/events?after=6")).await;
        assert!(page["gap"].is_object(), "{page}");
        assert_eq!(page["events"].as_array().unwrap().len() as u64, 2 + said_since, "{page}");
    }
}

#[tokio::test]
async fn a_data_directory_that_was_moved_is_the_same() {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    client.thoughts(&id, 2).await;
    drop(client);
    server.kill_nine().await;
    let elsewhere = server.data().with_extension("moved");
    std::fs::rename(server.data(), &elsewhere).unwrap();
    std::fs::rename(&elsewhere, server.data()).unwrap();
    server.restart().await;
    let mut client = server.connect().await;
    let back = client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(back["metadata"]["epoch"], created["metadata"]["epoch"]);
    assert_eq!(seqs(&client.replay().await), [2]);
}
