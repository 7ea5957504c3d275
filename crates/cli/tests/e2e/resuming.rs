//! Coming back by session id: `user.reconnect`, and `user.reconnect_with_state` without a state. Whatever
//! the position, the order is the same: confirmation, gap, state, events, `replay_complete`, live events.

use serde_json::{Value, json};

use crate::support::client::seqs;
use crate::support::{Client, Cut, Server, text};

/// A session whose client has seen `seen` of `count` events and lost its connection then.
struct Lost {
    server: Server,
    id: String,
    epoch: String,
    /// The events as they were first sent, those that were seen.
    seen: Vec<Value>,
}

impl Lost {
    async fn after(seen: u64, of: u64, flags: &[&str], cut: Cut) -> Self {
        let mut server = Server::start(flags).await;
        let mut client = server.connect().await;
        let created = client.created().await;
        let (id, epoch) = (text(&created["session_id"]), text(&created["metadata"]["epoch"]));
        let seen = client.thoughts(&id, seen).await;
        if of > seen.len() as u64 {
            let missed = of - seen.len() as u64;
            client.tell(&id, json!({ "count": missed })).await;
            let mut witness = seqs(&seen);
            while witness.last() != Some(&of) {
                witness.push(client.until("agent.thinking").await["seq"].as_u64().unwrap());
            }
        }
        server.cut(client, cut).await;
        Self { server, id, epoch, seen }
    }

    async fn back(&self, content: Value) -> (Client, Value) {
        let mut client = self.server.connect().await;
        let confirmed = client.reconnect(&self.id, content).await;
        (client, confirmed)
    }
}

fn assert_complete(notice: &Value, replayed: u64, from: Option<u64>, to: Option<u64>) {
    assert_eq!(notice["event"], "system.notice");
    let metadata = &notice["metadata"];
    assert_eq!(metadata["code"], "replay_complete");
    let counts = (&metadata["replayed"], &metadata["from"], &metadata["to"]);
    assert_eq!(counts, (&json!(replayed), &json!(from), &json!(to)));
}

both_ways!(
    what_was_missed_comes_again_in_order_and_then_live,
    every_event_is_the_same_the_second_time,
    a_client_that_has_everything_is_told_so,
    without_a_position_it_goes_on_after_the_last_ack,
    an_event_id_stands_for_its_position,
    an_unknown_event_id_is_as_good_as_none,
    the_position_of_another_epoch_is_unknown,
    a_position_beyond_the_head_is_unknown,
    from_zero_everything_that_is_held_comes_again,
    coming_back_with_a_position_is_the_same,
    batches_hold_the_same_events,
);

async fn what_was_missed_comes_again_in_order_and_then_live(cut: Cut) {
    let lost = Lost::after(3, 8, &[], cut).await;
    let (mut client, confirmed) = lost.back(json!({ "last_seq": 3, "epoch": lost.epoch })).await;
    let metadata = &confirmed["metadata"];
    assert_eq!(confirmed["session_id"], lost.id.as_str());
    assert_eq!(metadata["generation"], 2);
    assert_eq!(metadata["epoch"], lost.epoch.as_str(), "a log that is not lost keeps its epoch");
    assert_eq!((&metadata["last_seq"], &metadata["replay_from"]), (&json!(8), &json!(4)));
    assert_eq!(metadata["gap"], json!(null));
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), [4, 5, 6, 7, 8]);
    assert!(frames[..5].iter().all(|frame| frame["metadata"]["replayed"] == true));
    assert_complete(&frames[5], 5, Some(4), Some(8));
    let live = client.thoughts(&lost.id, 2).await;
    assert_eq!(seqs(&live), [9, 10]);
    assert!(live.iter().all(|frame| frame["metadata"].get("replayed").is_none()));
}

async fn every_event_is_the_same_the_second_time(cut: Cut) {
    let lost = Lost::after(4, 4, &[], cut).await;
    let (mut client, _) = lost.back(json!({ "last_seq": 0 })).await;
    let frames = client.replay().await;
    for (first, mut again) in lost.seen.iter().zip(frames) {
        assert_eq!(again["metadata"]["replayed"].take(), true);
        again["metadata"].as_object_mut().unwrap().remove("replayed");
        assert_eq!(again, *first);
    }
}

async fn a_client_that_has_everything_is_told_so(cut: Cut) {
    let lost = Lost::after(3, 3, &[], cut).await;
    let (mut client, confirmed) = lost.back(json!({ "last_seq": 3 })).await;
    assert_eq!(confirmed["metadata"]["replay_from"], 4, "head + 1");
    assert_complete(&client.next().await, 0, None, None);
    assert_eq!(client.thoughts(&lost.id, 1).await[0]["seq"], 4);
}

async fn without_a_position_it_goes_on_after_the_last_ack(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 6).await;
    client.ack(&id, 2).await;
    client.ack(&id, 4).await;
    client.ack(&id, 1).await; // acks only go forward
    client.settled().await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    // The barest form: a session id and nothing else.
    client.send(json!({ "event": "user.reconnect", "session_id": id })).await;
    let confirmed = client.next().await;
    let from = confirmed["metadata"]["replay_from"].as_u64().unwrap();
    match cut {
        Cut::Connection => assert_eq!(from, 5),
        // Acks are not waited for: one that a crash swallowed means that more is sent again.
        Cut::Server => assert!((1..=5).contains(&from), "{from}"),
    }
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), (from..=6).collect::<Vec<u64>>());
    assert_complete(&frames[frames.len() - 1], 7 - from, Some(from), Some(6));
}

async fn an_event_id_stands_for_its_position(cut: Cut) {
    let lost = Lost::after(3, 6, &[], cut).await;
    let (mut client, _) = lost.back(json!({ "last_event_id": lost.seen[1]["event_id"] })).await;
    assert_eq!(seqs(&client.replay().await), [3, 4, 5, 6]);
    // If both are given, last_seq decides.
    let content = json!({ "last_event_id": lost.seen[1]["event_id"], "last_seq": 5 });
    let (mut client, _) = lost.back(content).await;
    assert_eq!(seqs(&client.replay().await), [6]);
}

async fn an_unknown_event_id_is_as_good_as_none(cut: Cut) {
    let lost = Lost::after(3, 3, &[], cut).await;
    for unknown in ["evt_999", "nonsense", ""] {
        let (mut client, confirmed) = lost.back(json!({ "last_event_id": unknown })).await;
        assert_eq!(confirmed["metadata"]["gap"], json!(null));
        assert_eq!(seqs(&client.replay().await), [1, 2, 3], "nothing was acked");
    }
}

async fn the_position_of_another_epoch_is_unknown(cut: Cut) {
    let lost = Lost::after(2, 5, &[], cut).await;
    let (mut client, confirmed) = lost.back(json!({ "last_seq": 2, "epoch": "elsewhere" })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": null, "to": null }));
    assert_eq!(confirmed["metadata"]["replay_from"], 1);
    unknown_position(&mut client, &[1, 2, 3, 4, 5]).await;
}

async fn a_position_beyond_the_head_is_unknown(cut: Cut) {
    let lost = Lost::after(2, 2, &[], cut).await;
    let (mut client, _) = lost.back(json!({ "last_seq": 3 })).await;
    unknown_position(&mut client, &[1, 2]).await;
    assert_eq!(client.thoughts(&lost.id, 1).await[0]["seq"], 3);
}

async fn unknown_position(client: &mut Client, expected: &[u64]) {
    let gap = client.notice("gap").await;
    let metadata = &gap["metadata"];
    assert_eq!(metadata["reason"], "position_unknown");
    assert_eq!((&metadata["from"], &metadata["to"]), (&json!(null), &json!(null)));
    let frames = client.replay().await;
    // The state comes first, if there is one.
    let events = frames.iter().filter(|frame| frame["event"] != "agent.state_exported").cloned();
    let events: Vec<Value> = events.collect();
    assert_eq!(seqs(&events), expected);
    let count = expected.len() as u64;
    assert_complete(&events[expected.len()], count, Some(1), Some(count));
}

async fn from_zero_everything_that_is_held_comes_again(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 5).await;
    client.ack(&id, 5).await;
    client.settled().await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0 })).await;
    assert_eq!(seqs(&client.replay().await), [1, 2, 3, 4, 5], "acked events are still held");
}

async fn coming_back_with_a_position_is_the_same(cut: Cut) {
    let lost = Lost::after(2, 4, &[], cut).await;
    let mut client = lost.server.connect().await;
    let content = json!({ "last_seq": 2 });
    let event = "user.reconnect_with_state";
    client.send(json!({ "event": event, "session_id": lost.id, "content": content })).await;
    let confirmed = client.next().await;
    assert_eq!(confirmed["event"], "agent.session_created");
    assert_eq!(confirmed["content"], "Session reconnected successfully");
    assert_eq!(confirmed["metadata"]["resumed"], true);
    assert_eq!(seqs(&client.replay().await), [3, 4]);
    client.send(json!({ "event": event, "session_id": "sess_unknown", "content": content })).await;
    client.recovery_failed("SESSION_NOT_FOUND").await;
    client.send(json!({ "event": event, "content": content })).await;
    client.recovery_failed("MISSING_SESSION_ID").await;
}

async fn batches_hold_the_same_events(cut: Cut) {
    let lost = Lost::after(3, 30, &[], cut).await;
    let (mut client, _) = lost.back(json!({ "last_seq": 0, "batch": true })).await;
    let frames = client.replay().await;
    let (last, batches) = frames.split_last().unwrap();
    let mut events = Vec::new();
    for batch in batches {
        assert_eq!(batch["metadata"]["code"], "replay");
        events.extend(batch["content"]["events"].as_array().unwrap().iter().cloned());
    }
    assert_eq!(seqs(&events), (1..=30).collect::<Vec<u64>>());
    for event in &events {
        assert_eq!(
            (&event["metadata"]["replayed"], &event["session_id"]),
            (&json!(true), &json!(lost.id))
        );
    }
    assert_eq!(events[0]["event_id"], lost.seen[0]["event_id"]);
    assert_complete(last, 30, Some(1), Some(30));
    // What is live comes one to a frame again.
    assert_eq!(client.thoughts(&lost.id, 1).await[0]["seq"], 31);
}

#[tokio::test]
async fn batches_are_at_most_256_kib_and_a_larger_event_is_alone() {
    let server = Server::start(&["--buffer-bytes=8MiB"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 40, "bytes": 20_000 })).await;
    client.tell(&id, json!({ "count": 1, "bytes": 300 * 1024 })).await;
    client.tell(&id, json!({ "count": 10, "bytes": 20_000 })).await;
    client.until_seq(51).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0, "batch": true })).await;
    let frames = client.replay().await;
    let (_, batches) = frames.split_last().unwrap();
    let mut seen = Vec::new();
    for batch in batches {
        let events = batch["content"]["events"].as_array().unwrap();
        seen.extend(seqs(events));
        let size = batch.to_string().len();
        match seqs(events)[..] {
            [41] => assert!(size > 300 * 1024),
            _ => assert!(size <= 256 * 1024 && !seqs(events).contains(&41), "{size} bytes"),
        }
    }
    assert_eq!(seen, (1..=51).collect::<Vec<u64>>());
    assert!((5..=20).contains(&batches.len()), "{} frames", batches.len());
}

/// A session of which only the last five of twelve events are held, with a state as of `state_at`.
async fn evicted(state_at: Option<u64>, cut: Cut) -> (Server, String) {
    let mut server = Server::start(&["--buffer-size=5", "--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let first = state_at.unwrap_or(0);
    if first > 0 {
        let state = json!({ "stage": "solving", "current_step": first });
        client.tell(&id, json!({ "count": first, "state": state })).await;
    }
    client.tell(&id, json!({ "count": 12 - first })).await;
    client.until_seq(12).await;
    server.cut(client, cut).await;
    (server, id)
}

both_ways!(
    evicted_events_are_told_and_the_state_says_what_they_led_to,
    what_the_state_does_not_reach_is_told_as_lost,
    without_a_state_everything_evicted_is_lost,
);

async fn evicted_events_are_told_and_the_state_says_what_they_led_to(cut: Cut) {
    let (server, id) = evicted(Some(9), cut).await;
    let mut client = server.connect().await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": 3 })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": 4, "to": 7 }));
    assert_eq!(confirmed["metadata"]["replay_from"], 8);
    let gap = client.notice("gap").await;
    let metadata = &gap["metadata"];
    assert_eq!((&metadata["from"], &metadata["to"]), (&json!(4), &json!(7)));
    assert_eq!((&metadata["reason"], &metadata["lost"]), (&json!("evicted"), &json!(null)));
    let state = client.next().await;
    assert_eq!(state["event"], "agent.state_exported");
    assert_eq!(state["metadata"]["seq"], 9);
    assert_eq!(state["metadata"]["session_state"]["current_step"], 9);
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), [8, 9, 10, 11, 12]);
    assert_complete(&frames[5], 5, Some(8), Some(12));
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 13);
}

async fn what_the_state_does_not_reach_is_told_as_lost(cut: Cut) {
    let (server, id) = evicted(Some(5), cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 3 })).await;
    let gap = client.notice("gap").await;
    assert_eq!((&gap["metadata"]["from"], &gap["metadata"]["to"]), (&json!(4), &json!(7)));
    assert_eq!(gap["metadata"]["lost"], json!({ "from": 6, "to": 7 }));
    assert_eq!(client.next().await["metadata"]["seq"], 5);
    assert_eq!(seqs(&client.replay().await), [8, 9, 10, 11, 12]);
}

async fn without_a_state_everything_evicted_is_lost(cut: Cut) {
    let (server, id) = evicted(None, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 3 })).await;
    let gap = client.notice("gap").await;
    assert_eq!(gap["metadata"]["lost"], json!({ "from": 4, "to": 7 }));
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), [8, 9, 10, 11, 12]);
    // A position within what is held has no gap.
    let confirmed = client.reconnect(&id, json!({ "last_seq": 7 })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!(null));
    assert_eq!(seqs(&client.replay().await), [8, 9, 10, 11, 12]);
}

#[tokio::test]
async fn an_event_larger_than_the_buffer_is_kept_alone() {
    let server = Server::start(&["--buffer-bytes=64KiB"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 3).await;
    client.tell(&id, json!({ "count": 1, "bytes": 100 * 1024 })).await;
    client.until("agent.thinking").await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": 0 })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": 1, "to": 3 }));
    assert_eq!(seqs(&client.replay().await), [4]);
}

both_ways!(the_agent_works_on_while_nobody_is_there);

async fn the_agent_works_on_while_nobody_is_there(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "count": 5 })).await;
    server.puppet.until_heard(&["session.start", "user.message 1"]).await;
    server.cut(client, cut).await;
    gate.open();
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0 })).await;
    // Replayed or live, each comes once.
    let mut got = Vec::new();
    while got.len() < 5 {
        got.extend(client.next().await["seq"].as_u64());
    }
    assert_eq!(got, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn coming_back_on_the_same_connection_begins_anew() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 2).await;
    for generation in 2..=4 {
        let confirmed = client.reconnect(&id, json!({ "last_seq": 1 })).await;
        assert_eq!(confirmed["metadata"]["generation"], generation);
        assert_eq!(seqs(&client.replay().await), [2]);
    }
}
