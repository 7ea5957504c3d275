//! `user.reconnect_with_state` with a sealed state: going on from a snapshot.

use serde_json::json;

use crate::support::client::seqs;
use crate::support::{Cut, Server, text, until};

const QUIET: &str = "--auto-export-interval=1h";

both_ways!(
    a_session_that_lives_goes_on_in_a_new_one_as_it_is_now,
    repeating_a_restore_comes_back_to_the_same_session,
    two_devices_with_different_snapshots_meet_in_one_session,
    messages_that_the_state_does_not_cover_go_along,
    message_ids_go_along,
    a_session_ended_by_its_user_does_not_come_back,
);

async fn a_session_that_lives_goes_on_in_a_new_one_as_it_is_now(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, epoch) = (text(&created["session_id"]), &created["metadata"]["epoch"]);
    let sealed = client.checkpoint(&id, 3, 5).await;
    // Work goes on after the snapshot.
    client
        .tell(&id, json!({ "count": 2, "state": { "stage": "writing", "current_step": 6 } }))
        .await;
    while client.until("agent.thinking").await["seq"] != 5 {}
    server.cut(client, cut).await;

    let mut client = server.connect().await;
    let restored = client.restore(&sealed, json!({ "last_seq": 3, "epoch": epoch })).await;
    let metadata = &restored["metadata"];
    let new = text(&metadata["new_session_id"]);
    assert_eq!(restored["content"], "State restored successfully");
    assert_eq!(metadata["original_session_id"], id.as_str());
    assert_ne!(new, id);
    assert_ne!(metadata["epoch"], *epoch, "a restored session has its own");
    assert_eq!(metadata["gap"], json!(null));
    assert_eq!((&metadata["replayed"], &metadata["replay_from"]), (&json!(2), &json!(4)));
    assert_eq!(metadata["last_seq"], 5);
    assert_eq!(metadata["generation"], 1);
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), [4, 5], "they keep their numbers");
    assert!(frames[..2].iter().all(|frame| frame["session_id"] == new.as_str()));
    assert!(frames[..2].iter().all(|frame| frame["metadata"]["replayed"] == true));
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 6);
    // Restoring never undoes work: the state is the later one.
    let exported = client.export(&new, json!({})).await;
    assert_eq!(exported["metadata"]["session_state"]["current_step"], 6);
    assert_eq!(exported["metadata"]["session_state"]["session_id"], new.as_str());
    // Never two copies: the old session is over.
    client.ask_back(&id, json!({})).await;
    client.error("SESSION_CLOSED").await;
    // The new one can be come back to like any other.
    let epoch = metadata["epoch"].clone();
    let back = client.reconnect(&new, json!({ "last_seq": 5, "epoch": epoch })).await;
    assert_eq!(back["metadata"]["gap"], json!(null));
    assert_eq!(seqs(&client.replay().await), [6]);
}

async fn repeating_a_restore_comes_back_to_the_same_session(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 2, 1).await;
    server.cut(client, cut).await;
    let mut first = server.connect().await;
    let new = text(&first.restore(&sealed, json!({ "last_seq": 2 })).await["session_id"]);
    first.notice("replay_complete").await;
    first.thoughts(&new, 1).await;
    server.cut(first, cut).await; // its reply was lost, say
    let mut second = server.connect().await;
    let again = second.restore(&sealed, json!({ "last_seq": 2 })).await;
    assert_eq!(again["session_id"], new.as_str());
    assert_eq!(again["metadata"]["original_session_id"], id.as_str());
    assert_eq!(again["metadata"]["generation"], 2);
    assert_eq!(seqs(&second.replay().await), [3]);
    let mut third = server.connect().await;
    assert_eq!(third.restore(&sealed, json!({ "last_seq": 3 })).await["session_id"], new.as_str());
    assert_eq!(second.closed().await.code, 4100);
}

async fn two_devices_with_different_snapshots_meet_in_one_session(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let older = client.checkpoint(&id, 2, 1).await;
    let newer = client.checkpoint(&id, 2, 2).await;
    server.cut(client, cut).await;
    let mut phone = server.connect().await;
    let new = text(&phone.restore(&older, json!({ "last_seq": 2 })).await["session_id"]);
    assert_eq!(seqs(&phone.replay().await), [3, 4]);
    phone.thoughts(&new, 1).await;
    let mut laptop = server.connect().await;
    let met = laptop.restore(&newer, json!({ "last_seq": 4 })).await;
    assert_eq!(met["session_id"], new.as_str());
    assert_eq!(seqs(&laptop.replay().await), [5]);
    assert_eq!(phone.notice("superseded").await["session_id"], new.as_str());
    assert_eq!(phone.closed().await.code, 4100);
    // A snapshot of the new session is of the same line.
    let sealed = laptop.export(&new, json!({})).await["metadata"]["signed_state"].clone();
    let third = laptop.restore(&sealed, json!({ "last_seq": 5 })).await;
    let third = text(&third["session_id"]);
    laptop.notice("replay_complete").await;
    let mut phone = server.connect().await;
    assert_eq!(phone.restore(&older, json!({ "last_seq": 5 })).await["session_id"], third.as_str());
}

async fn messages_that_the_state_does_not_cover_go_along(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "say": [{ "event": "agent.answer" }] })).await;
    server.puppet.until_heard(&["session.start", "user.message 1", "user.message 2"]).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    let new = text(&client.restore(&sealed, json!({ "last_seq": 1 })).await["session_id"]);
    gate.open();
    let answer = client.until("agent.answer").await;
    assert_eq!((&answer["seq"], &answer["session_id"]), (&json!(2), &json!(new)));
    // The old session's agent may come to read what it was told only now.
    let mut told = server.puppet.told();
    told.retain(|line| line["session_id"] == new.as_str());
    assert_eq!(told[0]["event"], "session.start");
    assert_eq!(told[0]["content"]["state"]["current_step"], 1);
    assert_eq!(told[0]["content"]["in_seq"], 1);
    assert_eq!(told[1]["in_seq"], 2);
}

async fn message_ids_go_along(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let message = |session: &str| {
        let content = json!({ "say": [{ "event": "agent.answer" }] });
        json!({ "event": "user.message", "session_id": session, "message_id": "m1", "content": content })
    };
    client.send(message(&id)).await;
    client.until("agent.answer").await;
    let sealed = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    let new = text(&client.restore(&sealed, json!({ "last_seq": 1 })).await["session_id"]);
    client.notice("replay_complete").await;
    client.send(message(&new)).await;
    let accepted = client.next().await;
    assert_eq!(accepted["content"], json!({ "message_id": "m1", "in_seq": 1, "duplicate": true }));
}

async fn a_session_ended_by_its_user_does_not_come_back(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    client.end(&id).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_SUPERSEDED").await;
}

#[tokio::test]
async fn a_line_whose_newer_session_has_ended_does_not_come_back() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    let new = text(&client.restore(&sealed, json!({ "last_seq": 1 })).await["session_id"]);
    client.notice("replay_complete").await;
    client.end(&new).await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_SUPERSEDED").await;
}

#[tokio::test]
async fn an_expired_session_goes_on_from_the_state_alone() {
    let server = Server::start(&["--disconnect-ttl=1ms", QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 4, 7).await;
    drop(client);
    server.expired(&id).await;
    let mut client = server.connect().await;
    let restored = client.restore(&sealed, json!({ "last_seq": 4 })).await;
    let metadata = &restored["metadata"];
    assert_eq!((&metadata["restored_step"], &metadata["replayed"]), (&json!(7), &json!(0)));
    let new = text(&restored["session_id"]);
    client.notice("no_buffered_events").await;
    let complete = client.notice("replay_complete").await;
    assert_eq!(complete["metadata"]["replayed"], 0);
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 5, "the numbering goes on");
    let start = server.puppet.told().into_iter().rfind(|line| line["event"] == "session.start");
    let content = &start.unwrap()["content"];
    assert_eq!(content["session_id"], new.as_str());
    assert_eq!(
        (&content["state"]["current_step"], &content["state"]["notes"]),
        (&json!(7), &json!(["kept"]))
    );
    // The client keeps its connection, so that the session made of it lives; the same state leads there.
    let mut other = server.connect().await;
    assert_eq!(other.restore(&sealed, json!({ "last_seq": 5 })).await["session_id"], new.as_str());
}

#[tokio::test]
async fn what_the_client_has_seen_beyond_the_state_is_believed() {
    let server = Server::start(&["--disconnect-ttl=1ms", QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 2, 1).await;
    drop(client);
    server.expired(&id).await;
    let mut client = server.connect().await;
    client.ask_restore(&sealed, json!({ "last_seq": 1_000_003 })).await;
    client.error("INVALID_MESSAGE").await;
    let restored = client.restore(&sealed, json!({ "last_seq": 1_000_002 })).await;
    let new = text(&restored["session_id"]);
    client.notice("no_buffered_events").await;
    client.notice("replay_complete").await;
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 1_000_003);
}

#[tokio::test]
async fn without_last_seq_it_goes_on_after_the_last_ack() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 5, 1).await;
    client.ack(&id, 3).await;
    until("the ack is stored", async || {
        server.http("GET", &format!("/api/sessions/{id}")).await.contains(r#""last_acked_seq":3"#)
    })
    .await;
    let restored = client.restore(&sealed, json!({})).await;
    assert_eq!(restored["metadata"]["replay_from"], 4);
    assert_eq!(seqs(&client.replay().await), [4, 5]);
}

#[tokio::test]
async fn evicted_events_are_told_in_a_restore_as_well() {
    let server = Server::start(&[QUIET, "--buffer-size=3"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 2, 1).await;
    client.tell(&id, json!({ "count": 6 })).await;
    client.until_seq(8).await;
    let mut client = server.connect().await;
    let restored = client.restore(&sealed, json!({ "last_seq": 2 })).await;
    assert_eq!(restored["metadata"]["gap"], json!({ "from": 3, "to": 5 }));
    let gap = client.notice("gap").await;
    assert_eq!(gap["metadata"]["lost"], json!({ "from": 3, "to": 5 }), "the state stands for 2");
    assert_eq!(client.next().await["event"], "agent.state_exported");
    assert_eq!(seqs(&client.replay().await), [6, 7, 8]);
}

#[tokio::test]
async fn an_expired_state_is_refused() {
    let server = Server::start(&["--state-ttl=1s", QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    // Nothing reports that a second has passed.
    tokio::time::sleep(std::time::Duration::from_millis(1_300)).await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    let refused = client.error("STATE_EXPIRED").await;
    assert_eq!(refused["content"], "State snapshot is too old");
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn a_state_changed_in_a_bit_is_refused_and_the_session_goes_on() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = text(&client.checkpoint(&id, 1, 1).await);
    let mut forged = vec![
        String::new(),
        "eyJhbGciOi".into(),
        "v1.x.y".into(),
        sealed[..sealed.len() - 4].to_owned(),
        format!("{sealed}A"),
    ];
    // One character changed at the beginning, in the middle and near the end.
    for at in [sealed.find('.').unwrap_or(0) + 1, sealed.len() / 2, sealed.len() - 3] {
        let mut bytes = sealed.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        forged.push(String::from_utf8(bytes).unwrap());
    }
    for forged in forged {
        client.ask_restore(&json!(forged), json!({ "last_seq": 1 })).await;
        let refused = client.error("STATE_VERIFICATION_FAILED").await;
        assert!(text(&refused["content"]).starts_with("Invalid or tampered state: "));
    }
    client.thoughts(&id, 1).await;
    let mut other = server.connect().await;
    other.restore(&json!(sealed), json!({ "last_seq": 2 })).await;
}

#[tokio::test]
async fn a_state_of_another_principal_or_server_is_refused() {
    let server = Server::start_with_keys(&[QUIET], &["alice", "bob"]).await;
    let mut alice = server.connect_as("alice").await;
    let id = alice.create().await;
    let sealed = alice.checkpoint(&id, 1, 1).await;
    let mut bob = server.connect_as("bob").await;
    bob.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    bob.error("STATE_VERIFICATION_FAILED").await;
    let elsewhere = Server::start_with_keys(&[], &["alice"]).await;
    let mut client = elsewhere.connect_as("alice").await;
    client.ask_restore(&sealed, json!({ "last_seq": 1 })).await;
    client.error("STATE_VERIFICATION_FAILED").await;
    alice.thoughts(&id, 1).await;
}

#[tokio::test]
async fn a_restore_can_be_asked_in_batches() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 3, 1).await;
    client.thoughts(&id, 4).await;
    let restored = client.restore(&sealed, json!({ "last_seq": 3, "batch": true })).await;
    let batch = client.notice("replay").await;
    let events = batch["content"]["events"].as_array().unwrap();
    assert_eq!(seqs(events), [4, 5, 6, 7]);
    assert!(events.iter().all(|event| event["session_id"] == restored["session_id"]));
    client.notice("replay_complete").await;
}
