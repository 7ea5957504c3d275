//! An agent that is a child process: what it is told, what it says, and what becomes of both when it
//! dies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::children::{Puppet, kill, lives};
use crate::common::*;
use rejoin::agents::Command;
use rejoin::core::limits::LogBounds;
use rejoin::core::record::Kind;
use rejoin::store::MemoryStore;
use serde_json::{Value, json};

async fn world_of(puppet: &Puppet) -> World {
    let settings = rejoin::ServerSettings { agent_idle_ttl: HOUR, ..settings() };
    world_with(settings, |b| b.agent(puppet.command())).await
}

#[tokio::test]
async fn a_child_is_told_what_it_goes_on_from_and_then_each_message() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    world.send(r#"{"content":{"text": [1, null]},"message_id":"m-1"}"#).await;
    puppet.until_heard(&["session.start", "user.message 1"]).await;
    let told = puppet.told();
    let id = world.id.as_str();
    let start =
        json!({"session_id": id, "state": null, "in_seq": 0, "state_seq": 0, "last_seq": 0});
    assert_eq!(told[0]["content"], start);
    assert_eq!(told[1]["content"], json!({"text": [1, null]}));
    assert_eq!(told[1]["message_id"], "m-1");
    for line in &told {
        assert_eq!(line["session_id"], id);
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }
}

#[tokio::test]
async fn a_cancel_is_told_in_its_order_with_its_number() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    world.tell(json!("work")).await;
    world.cancel().await;
    world.tell(json!("more")).await;
    let expected = ["session.start", "user.message 1", "user.cancel 2", "user.message 3"];
    puppet.until_heard(&expected).await;
    assert_eq!(puppet.told()[2].get("content"), None);
}

#[tokio::test]
async fn what_a_child_says_reaches_the_client_in_order() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    let mut reader = world.attach().await;
    let said = [
        json!({"event": "agent.thinking", "content": "hm"}),
        json!({"event": "solver.step", "metadata": {"n": 1}, "seq": 77}),
    ];
    world.tell(json!({"print": said})).await;
    let told = reader.until("live").await.pop().unwrap();
    let first = r#"1={"event":"agent.thinking","content":"hm","metadata":{"in_seq":1}}"#;
    let second = r#"2={"event":"solver.step","metadata":{"n":1,"in_seq":1}}"#;
    assert!(told.contains(first), "{told}");
    let told = if told.contains("2=") { told } else { reader.until("live").await.pop().unwrap() };
    assert!(told.contains(second), "{told}");
}

#[tokio::test]
async fn after_a_kill_the_next_child_has_the_state_and_only_the_messages_it_does_not_cover() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    let said = json!({"event": "agent.done", "content": "one", "state": {"k": [1]}, "in_seq": 1});
    world.tell(json!({"print": [said]})).await;
    world.until_head(1).await;
    let record = world.record().await;
    let mark = record.snapshot.unwrap();
    assert_eq!((mark.seq.get(), mark.in_seq.get(), record.covered.get()), (1, 1, 1), "one commit");
    world.tell(json!("two")).await;
    world.tell(json!({"print": [{"event": "agent.said"}]})).await;
    world.until_head(2).await;
    kill(puppet.pids()[0]);
    let again = ["session.start", "user.message 2", "user.message 3"];
    let first = ["session.start", "user.message 1", "user.message 2", "user.message 3"];
    puppet.until_heard(&[&first[..], &again[..]].concat()).await;
    let start = &puppet.told()[4]["content"];
    assert_eq!(start["state"], json!({"k": [1]}));
    assert_eq!((&start["in_seq"], &start["state_seq"]), (&json!(1), &json!(1)));
    assert_eq!(start["last_seq"], 2);
    assert_eq!(world.sessions.agent_counts().restarts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_child_that_is_restarted_is_killed_wherever_it_is_and_the_next_goes_on_from_its_state() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    let said = json!({"event": "agent.done", "state": {"k": 1}, "in_seq": 1});
    world.tell(json!({"print": [said]})).await;
    world.until_head(1).await;
    world.tell(json!({"then": "sleep", "stubborn": true})).await;
    let first = ["session.start", "user.message 1", "user.message 2"];
    puppet.until_heard(&first).await;
    assert!(world.sessions.restart_agent(&world.id).await);
    let again = ["session.start", "user.message 2"];
    puppet.until_heard(&[&first[..], &again[..]].concat()).await;
    assert_eq!(puppet.told()[3]["content"]["state"], json!({"k": 1}));
    until(async || !lives(puppet.pids()[0])).await;
    assert_eq!(world.sessions.agent_counts().restarts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_child_that_never_names_an_entry_gets_only_the_newest_again() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    world.tell(json!({"print": [{"event": "agent.awake"}]})).await;
    for message in ["two", "three"] {
        world.tell(json!(message)).await;
    }
    until(async || world.record().await.covered.get() == 2).await;
    let first = ["session.start", "user.message 1", "user.message 2", "user.message 3"];
    puppet.until_heard(&first).await;
    kill(puppet.pids()[0]);
    let again = ["session.start", "user.message 3"];
    puppet.until_heard(&[&first[..], &again[..]].concat()).await;
}

#[tokio::test]
async fn a_state_can_be_set_alone() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    let said = json!({"event": "session.state", "content": {"step": 4}, "in_seq": 1});
    world.tell(json!({"print": [said]})).await;
    until(async || !world.record().await.has_work()).await;
    let snapshot = world.store.snapshot(&world.id).await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&snapshot.body).unwrap(), json!({"step": 4}));
    assert_eq!(world.record().await.head.get(), 0);
}

#[tokio::test]
async fn lines_that_are_no_events_are_counted_and_ignored() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    let garbage = [
        "hello",
        "[1]",
        r#"{"event":"system.heartbeat"}"#,
        r#"{"event":"agent.session_created"}"#,
        r#"{"event":"session.start"}"#,
        r#"{"event":5}"#,
        r#"{"event":"agent.x","in_seq":"one"}"#,
        "",
    ];
    let print = garbage.map(Value::from).into_iter().chain([json!({"event": "agent.fine"})]);
    world.tell(json!({"print": print.collect::<Vec<_>>()})).await;
    world.until_head(1).await;
    world.tell(json!({"long": 9 * 1024 * 1024})).await;
    world.tell(json!({"print": [{"event": "agent.also_fine"}]})).await;
    world.until_head(2).await;
    assert_eq!(world.event_names().await, ["agent.fine", "agent.also_fine"]);
    assert_eq!(world.sessions.agent_counts().ignored_lines.load(Ordering::Relaxed), 8);
    assert_eq!(puppet.pids().len(), 1, "it lives");
}

#[tokio::test]
async fn a_child_that_dies_five_times_is_given_up_once_and_revived_by_a_message() {
    let world = world_with(settings(), |b| b.agent(Command::shell("exit 1"))).await;
    world.tell(json!("work")).await;
    world.until_head(1).await;
    let failed = world.events().await.remove(0);
    assert_eq!(
        (&failed["event"], &failed["metadata"]["error_code"]),
        (&json!("agent.failed"), &json!("AGENT_FAILED"))
    );
    assert!(failed["content"].as_str().unwrap().contains("died"), "{failed}");
    world.tell(json!("more")).await;
    world.until_head(2).await;
    assert_eq!(world.event_names().await, ["agent.failed", "agent.failed"]);
    let counts = world.sessions.agent_counts();
    assert_eq!(counts.given_up.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_given_up_too() {
    let nothing = Command::new("/nonexistent/agent", [""; 0]);
    let world = world_with(settings(), |b| b.agent(nothing)).await;
    world.tell(json!("work")).await;
    world.until_head(1).await;
    assert_eq!(world.event_names().await, ["agent.failed"]);
}

#[tokio::test]
async fn ten_thousand_lines_at_once_arrive_complete_and_in_order() {
    let puppet = Puppet::new();
    let bounds = LogBounds { events: 20_000, bytes: 64 * 1024 * 1024, ..LogBounds::default() };
    let store = Arc::new(MemoryStore::new(bounds, 10));
    let settings = rejoin::ServerSettings { agent_idle_ttl: HOUR, ..settings() };
    let world = world_on(store, settings, |b| b.agent(puppet.command())).await;
    world.tell(json!({"count": 10_000})).await;
    world.until_head(10_000).await;
    for (number, event) in world.events().await.iter().enumerate() {
        assert_eq!(event["content"], number);
    }
}

#[tokio::test]
async fn a_child_that_does_not_read_holds_up_only_its_own_session() {
    let puppet = Puppet::new();
    let world = world_of(&puppet).await;
    world.tell(json!({"then": "sleep"})).await;
    puppet.until_heard(&["session.start", "user.message 1"]).await;
    let large = "x".repeat(300_000); // more than a pipe holds
    for _ in 0..3 {
        world.tell(json!(large)).await;
    }
    let other = world.sessions.create(&me(), Kind::Agent, "{}").await.unwrap().id().clone();
    let other =
        World { sessions: world.sessions.clone(), store: Arc::clone(&world.store), id: other };
    let asked = Instant::now();
    other.tell(json!({"print": [{"event": "agent.here"}]})).await;
    other.until_head(1).await;
    world.say(&["here"]).await;
    assert_eq!(world.event_names().await, ["said"], "its driver is free too");
    assert!(asked.elapsed() < 10 * SECOND);
    assert_eq!(world.record().await.covered.get(), 1, "what was not written covers nothing");
}
