//! Whose session a sealed state leads to, and that a position which the server does not have drops nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Client, Server, text};

const QUIET: &str = "--auto-export-interval=1h";
const SECRET: &str = "one secret of two servers, long enough";

/// A server of its own data directory under the same secret, where clients choose the ids of sessions.
async fn server_under_the_same_secret() -> Server {
    let (flags, keys) = ([QUIET, "--client-session-ids=true"], Server::api_keys(&["alice", "bob"]));
    Server::start_with(&flags, &keys, &[("MCP_SESSION_SECRET", SECRET)]).await
}

async fn create_named(client: &mut Client, name: &str) {
    client.send(json!({ "event": "user.create_session", "session_id": name })).await;
    assert_eq!(client.next().await["session_id"], name);
}

/// Restores, and everything that comes up to the end of the replay.
async fn restored_with(client: &mut Client, sealed: &Value, last_seq: u64) -> (Value, Vec<Value>) {
    client.ask_restore(sealed, json!({ "last_seq": last_seq })).await;
    let restored = client.next().await;
    assert_eq!(restored["event"], "agent.state_restored", "{restored}");
    let mut frames = Vec::new();
    loop {
        let frame = client.next().await;
        let complete = frame["metadata"]["code"] == "replay_complete";
        frames.push(frame);
        if complete {
            return (restored, frames);
        }
    }
}

fn events(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect()
}

#[tokio::test]
async fn a_state_of_another_store_reaches_no_session_that_has_its_id() {
    let name = "the-same-name-on-two-servers";
    let first = server_under_the_same_secret().await;
    let mut alice = first.connect_as("alice").await;
    create_named(&mut alice, name).await;
    let sealed = alice.checkpoint(name, 3, 7).await;
    let plain = alice.create().await;
    let sealed_plain = alice.checkpoint(&plain, 2, 8).await;

    let second = server_under_the_same_secret().await;
    let mut bob = second.connect_as("bob").await;
    create_named(&mut bob, name).await;
    bob.thoughts(name, 5).await;
    // An id that a server made is a name like any other for a client that chooses it.
    let mut other_bob = second.connect_as("bob").await;
    create_named(&mut other_bob, &plain).await;
    other_bob.thoughts(&plain, 5).await;

    for (sealed, original, step, seq) in [(&sealed, name, 7, 3), (&sealed_plain, &plain, 8, 2)] {
        let mut alice = second.connect_as("alice").await;
        let (restored, frames) = restored_with(&mut alice, sealed, seq).await;
        let metadata = &restored["metadata"];
        assert_eq!(
            (&metadata["original_session_id"], &metadata["restored_step"]),
            (&json!(original), &json!(step))
        );
        assert_eq!(events(&frames), [0_u64; 0], "nothing of bob's");
        let new = text(&restored["session_id"]);
        assert_eq!(alice.thoughts(&new, 1).await[0]["seq"], seq + 1);
        let mut again = second.connect_as("alice").await;
        assert_eq!(
            again.restore(sealed, json!({ "last_seq": seq })).await["session_id"],
            new.as_str()
        );
    }
    assert_eq!(bob.thoughts(name, 1).await[0]["seq"], 6, "bob was not disturbed");
    assert_eq!(other_bob.thoughts(&plain, 1).await[0]["seq"], 6);
}

#[tokio::test]
async fn a_position_beyond_the_head_of_a_living_session_is_unknown_in_a_restore_too() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 3, 1).await;
    client.thoughts(&id, 2).await;
    let (restored, frames) = restored_with(&mut client, &sealed, 50).await;
    assert_eq!(restored["metadata"]["gap"], json!({ "from": null, "to": null }));
    assert_eq!(frames[0]["metadata"]["reason"], "position_unknown");
    assert_eq!(events(&frames), [1, 2, 3, 4, 5], "what is held is sent");
    let new = text(&restored["session_id"]);
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 6);
    // Repeated, it is no other.
    let (again, frames) = restored_with(&mut client, &sealed, 50).await;
    assert_eq!(again["session_id"], new.as_str());
    assert_eq!(again["metadata"]["gap"], json!({ "from": null, "to": null }));
    assert_eq!(events(&frames), [1, 2, 3, 4, 5, 6]);
}

/// A backup is put back. The client has a state, and a position, of a future that this store never had.
#[tokio::test]
async fn events_that_came_after_a_backup_was_put_back_reach_a_client_of_the_lost_future() {
    for said_since in [1, 9] {
        let mut server = Server::start(&[QUIET]).await;
        let mut client = server.connect().await;
        let id = client.create().await;
        client.thoughts(&id, 2).await;
        drop(client);
        server.kill_nine().await;
        let backup = tempfile::tempdir().unwrap();
        copy_files(&server.data(), backup.path());
        server.restart().await;
        let mut client = server.connect().await;
        client.reconnect(&id, json!({ "last_seq": 2 })).await;
        client.notice("replay_complete").await;
        let sealed = client.checkpoint(&id, 4, 1).await;
        drop(client);
        server.kill_nine().await;
        copy_files(backup.path(), &server.data());
        server.restart().await;
        let mut other = server.connect().await;
        other.reconnect(&id, json!({ "last_seq": 2 })).await;
        other.replay().await;
        other.thoughts(&id, said_since).await;

        let everything: Vec<u64> = (1..=2 + said_since).collect();
        for _ in 0..2 {
            let mut client = server.connect().await;
            let (restored, frames) = restored_with(&mut client, &sealed, 6).await;
            assert_eq!(restored["metadata"]["gap"], json!({ "from": null, "to": null }));
            assert_eq!(events(&frames), everything);
        }
    }
}

/// Makes the files of one directory those of another.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    for old in std::fs::read_dir(to).unwrap() {
        let old = old.unwrap().path();
        if old.is_file() {
            std::fs::remove_file(old).unwrap();
        }
    }
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.path().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}
