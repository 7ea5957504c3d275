//! The agent's state on its way out: on request, and by itself after a change.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Cut, Server, text};

/// A state with everything an export can leave out.
fn full_state() -> Value {
    json!({
        "stage": "solving", "current_step": 5,
        "plan_context": { "question": "why", "tasks": [1, 2] },
        "memory_snapshot": ["a", "b"],
        "current_task": { "name": "sums" }, "completed_tasks": ["reading"],
    })
}

const QUIET: &str = "--auto-export-interval=1h";

/// A session whose agent has stored that state with its second event. The export that comes by itself is
/// taken out of the way.
async fn with_state(client: &mut Client) -> String {
    let id = client.create().await;
    client.tell(&id, json!({ "count": 2, "state": full_state() })).await;
    client.until("agent.state_exported").await;
    id
}

#[tokio::test]
async fn before_the_first_checkpoint_the_state_is_new() {
    let server = Server::start(&["--state-ttl=36h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let exported = client.export(&id, json!(null)).await;
    let (metadata, state) = (&exported["metadata"], &exported["metadata"]["session_state"]);
    assert_eq!(exported["session_id"], id.as_str());
    assert_eq!((&state["stage"], &state["current_step"]), (&json!("new"), &json!(0)));
    assert_eq!(state["session_id"], id.as_str());
    for null in ["plan_context", "memory_snapshot"] {
        assert_eq!(state.get(null), Some(&json!(null)), "{state}");
    }
    assert!(text(&state["timestamp"]).ends_with('Z'));
    assert_eq!((&metadata["seq"], &metadata["session_id"]), (&json!(0), &json!(id)));
    assert_eq!(metadata["expire_after_hours"], 36);
    assert_eq!(metadata["current_operation"], "new");
}

both_ways!(the_state_of_the_last_checkpoint_is_exported_whole);

async fn the_state_of_the_last_checkpoint_is_exported_whole(cut: Cut) {
    let mut server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = with_state(&mut client).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 2 })).await;
    let exported = client.export(&id, json!({})).await;
    let (metadata, state) = (&exported["metadata"], &exported["metadata"]["session_state"]);
    for (key, value) in full_state().as_object().unwrap() {
        assert_eq!(state[key], *value);
    }
    assert_eq!(state["session_id"], id.as_str());
    assert_eq!(metadata["seq"], 2);
    assert_eq!(metadata["expire_after_hours"], 24);
    assert!(text(&metadata["snapshot_time"]) <= text(&metadata["exported_at"]));
    assert!(text(&metadata["exported_at"]) < text(&metadata["valid_until"]));
    let sealed = text(&metadata["signed_state"]);
    for secret in ["solving", "question", "reading", id.as_str()] {
        assert!(!sealed.contains(secret), "it is encrypted");
    }
}

#[tokio::test]
async fn filters_leave_parts_out_of_both_copies() {
    let server = Server::start(&[QUIET]).await;
    let mut client = server.connect().await;
    let id = with_state(&mut client).await;
    let always = ["current_step", "session_id", "stage", "timestamp"];
    let work = ["completed_tasks", "current_task"];
    let cases = [
        (json!({}), vec!["memory_snapshot", "plan_context", work[0], work[1]]),
        (json!({ "include_memory": false }), vec!["plan_context", work[0], work[1]]),
        (json!({ "include_plan": false }), vec!["memory_snapshot", work[0], work[1]]),
        (json!({ "include_work": false }), vec!["memory_snapshot", "plan_context"]),
        (json!({ "include_memory": false, "include_plan": false, "include_work": false }), vec![]),
        (
            json!({ "include_memory": true, "include_work": null }),
            vec!["memory_snapshot", "plan_context", work[0], work[1]],
        ),
    ];
    let mut sizes = Vec::new();
    for (content, parts) in cases {
        let exported = client.export(&id, content.clone()).await;
        let state = exported["metadata"]["session_state"].as_object().unwrap();
        let mut keys: Vec<&str> = state.keys().map(String::as_str).collect();
        let mut expected: Vec<&str> = always.into_iter().chain(parts).collect();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected, "{content}");
        sizes.push(exported["metadata"]["state_size"].as_u64().unwrap());
    }
    assert!(sizes[4] < sizes[0], "the sealed copy is smaller too: {sizes:?}");
    client.send(json!({ "event": "user.request_state", "session_id": id, "content": { "include_plan": "no" } })).await;
    client.error("INVALID_MESSAGE").await;
}

#[tokio::test]
async fn an_export_that_comes_by_itself_comes_after_the_event_it_stands_for() {
    let server = Server::start(&["--auto-export-interval=0s"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let (mut last_seq, mut exports) = (0, 0);
    for step in 1..=20 {
        let state = json!({ "stage": "at it", "current_step": step });
        let content = json!({ "count": 2, "state": state });
        client.send(json!({ "event": "user.message", "session_id": id, "content": content })).await;
    }
    while last_seq < 40 || exports == 0 {
        let frame = client.next().await;
        last_seq = frame["seq"].as_u64().unwrap_or(last_seq);
        if frame["event"] == "agent.state_exported" {
            exports += 1;
            let stands_for = frame["metadata"]["seq"].as_u64().unwrap();
            assert!(stands_for <= last_seq, "{stands_for} came before {last_seq}");
        }
    }
}

#[tokio::test]
async fn what_was_left_out_is_not_in_the_sealed_copy() {
    let server = Server::start(&["--disconnect-ttl=1ms", QUIET]).await;
    let mut client = server.connect().await;
    let id = with_state(&mut client).await;
    let exported = client.export(&id, json!({ "include_memory": false })).await;
    // The server's own copy would be better, so it has to go: the session expires.
    drop(client);
    let mut client = server.connect().await;
    server.expired(&id).await;
    let restored = client.restore(&exported["metadata"]["signed_state"], json!({})).await;
    let new = text(&restored["session_id"]);
    let again = client.export(&new, json!({})).await;
    let state = &again["metadata"]["session_state"];
    assert_eq!(state["plan_context"]["question"], "why");
    assert!(state.get("memory_snapshot").is_none_or(Value::is_null), "{state}");
}

#[tokio::test]
async fn a_state_that_is_too_large_is_refused_and_the_session_goes_on() {
    let server = Server::start(&["--max-state-bytes=2KiB", QUIET]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    // Random enough not to be compressed away.
    let noise: String =
        (0..9_000_u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    client
        .tell(&id, json!({ "count": 1, "state": { "stage": "big", "memory_snapshot": noise } }))
        .await;
    client.until_seq(1).await;
    // The export that comes by itself, after the event that the state was stored with.
    let refused = client.until("agent.error").await;
    assert_eq!(refused["metadata"]["error_code"], "STATE_TOO_LARGE");
    client.send(json!({ "event": "user.request_state", "session_id": id })).await;
    let refused = client.until("agent.error").await;
    assert_eq!(refused["metadata"]["error_code"], "STATE_TOO_LARGE");
    let exported = client.export(&id, json!({ "include_memory": false })).await;
    assert_eq!(exported["metadata"]["session_state"]["stage"], "big");
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn a_changed_state_is_exported_by_itself_once_an_interval_and_the_last_one_counts() {
    let interval = Duration::from_millis(1_500);
    let server = Server::start(&["--auto-export-interval=1500ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let step = |step: u64| json!({ "count": 1, "state": { "stage": "s", "current_step": step } });
    client.tell(&id, step(1)).await;
    let first = client.until("agent.state_exported").await;
    assert_eq!(first["metadata"]["session_state"]["current_step"], 1);
    let begun = Instant::now();
    for number in 2..=4 {
        client.tell(&id, step(number)).await;
    }
    let mut names = Vec::new();
    let last = loop {
        let frame = client.next().await;
        names.push(text(&frame["event"]));
        if frame["event"] == "agent.state_exported" {
            break frame;
        }
    };
    assert_eq!(last["metadata"]["session_state"]["current_step"], 4, "{names:?}");
    assert!(begun.elapsed() > interval / 2, "it came too soon: {:?}", begun.elapsed());
    assert_eq!(last["metadata"]["seq"], 4);
    // No change, no export: the next thing is the answer to this.
    client
        .send(json!({ "event": "user.message", "session_id": id, "content": { "count": 1 } }))
        .await;
    assert_eq!(client.next().await["event"], "system.accepted");
    assert_eq!(client.next().await["event"], "agent.thinking");
}

#[tokio::test]
async fn a_state_can_only_be_had_on_the_connection_of_its_session() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let mut other = server.connect().await;
    other.send(json!({ "event": "user.request_state", "session_id": id })).await;
    let refused = other.error("SESSION_NOT_OWNED").await;
    assert_eq!(refused["content"], "Session does not belong to this connection");
    other.send(json!({ "event": "user.request_state", "session_id": "sess_unknown" })).await;
    other.error("SESSION_NOT_FOUND").await;
    other.send(json!({ "event": "user.request_state" })).await;
    other.error("MISSING_SESSION_ID").await;
    client.export(&id, json!({})).await;
}
