//! The built-in agent: it goes on where it was, whatever happens to the server or the client.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use rejoin::agents::Example;
use rejoin::core::worker::Publication;
use rejoin::store::{MemoryStore, Store};
use rejoin::{Clock, Sessions};
use serde_json::{Value, json};

async fn example() -> World {
    world_with(settings(), |b| b.agent(Example::default())).await
}

async fn answered(world: &World) {
    soon(async {
        while world.record().await.has_work() {
            pass(SECOND).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_plans_thinks_calls_a_tool_and_answers() {
    let world = example().await;
    world.send(r#"{"content":"How are you?","message_id":"m-1"}"#).await;
    answered(&world).await;
    let mut names = world.event_names().await;
    names.dedup();
    let expected = ["plan", "thinking", "tool_call", "tool_result", "answer_delta", "final_answer"];
    assert_eq!(names, expected.map(|name| format!("agent.{name}")));
    let events = world.events().await;
    let steps = events.len();
    for (index, event) in events.iter().enumerate() {
        let metadata = json!({"message_id": "m-1", "in_seq": 1, "step": index + 1, "steps": steps});
        assert_eq!(event["metadata"], metadata);
    }
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn its_state_says_where_it_is() {
    let world = example().await;
    world.tell(json!("How are you?")).await;
    pass(Duration::from_millis(700)).await;
    let state = async || {
        let snapshot = world.store.snapshot(&world.id).await.unwrap().unwrap();
        serde_json::from_slice::<Value>(&snapshot.body).unwrap()
    };
    let planning = state().await;
    assert_eq!((&planning["stage"], &planning["current_step"]), (&json!("planning"), &json!(1)));
    assert_eq!(planning["plan_context"]["question"], "How are you?");
    answered(&world).await;
    let answered = state().await;
    assert_eq!((&answered["stage"], &answered["plan_context"]), (&json!("answered"), &json!(null)));
    assert_eq!(answered["memory_snapshot"], json!({"answered": 1, "questions": ["How are you?"]}));
}

#[tokio::test(start_paused = true)]
async fn messages_that_come_while_it_works_are_answered_afterwards_in_order() {
    let world = example().await;
    for message in ["one", "two", "three"] {
        world.tell(json!(message)).await;
    }
    answered(&world).await;
    let events = world.events().await;
    let order: Vec<u64> =
        events.iter().map(|event| event["metadata"]["in_seq"].as_u64().unwrap()).collect();
    assert!(order.is_sorted());
    let finals = events.iter().filter(|event| event["event"] == "agent.final_answer");
    assert_eq!(finals.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_stops_at_once_what_was_sent_before_it_and_nothing_after() {
    let world = example().await;
    world.tell(json!("one")).await;
    world.tell(json!("two")).await;
    pass(SECOND).await;
    let before = world.events().await.len();
    world.cancel().await;
    settle().await;
    let events = world.events().await;
    assert_eq!(events.len(), before + 1, "at once");
    let cancelled = events.last().unwrap();
    assert_eq!(cancelled["event"], "agent.cancelled");
    assert_eq!(cancelled["metadata"], json!({"in_seq": 3, "cancelled": [1, 2]}));
    assert!(!world.record().await.has_work());
    world.tell(json!("three")).await;
    answered(&world).await;
    let last = world.events().await.pop().unwrap();
    assert_eq!(
        (&last["event"], &last["metadata"]["in_seq"]),
        (&json!("agent.final_answer"), &json!(4))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_with_nothing_to_cancel_is_answered_too() {
    let world = example().await;
    world.cancel().await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(world.event_names().await, ["agent.cancelled"]);
}

/// What a client gets to see of two messages if the server is killed every `life`.
async fn seen_with_kills(life: Duration) -> (Vec<Value>, usize) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let clock = Clock::start();
    let start = || {
        let builder = Sessions::builder(Arc::clone(&store)).clock(clock);
        builder.agent(Example::default()).start().unwrap()
    };
    let world = world_on(Arc::clone(&store), settings(), |b| b.clock(clock)).await;
    world.tell(json!("How are you?")).await;
    world.tell(json!("And now?")).await;
    let mut lives = 0;
    while world.record().await.has_work() {
        lives += 1;
        assert!(lives < 1_000, "it does not get anywhere");
        let sessions = start();
        sessions.resume_work().await.unwrap();
        pass(life).await;
        drop(sessions);
        settle().await;
    }
    (world.events().await, lives)
}

#[tokio::test(start_paused = true)]
async fn killed_in_the_middle_it_goes_on_without_a_hole_or_a_repetition() {
    let (undisturbed, lives) = seen_with_kills(MINUTE).await;
    assert_eq!(lives, 1);
    for millis in [1_250, 1_900, 3_333] {
        let (seen, lives) = seen_with_kills(Duration::from_millis(millis)).await;
        assert!(lives > 4, "{lives}");
        assert_eq!(seen, undisturbed);
    }
}

#[tokio::test(start_paused = true)]
async fn restarted_whenever_somebody_likes_it_goes_on_without_a_hole_or_a_repetition() {
    let (undisturbed, _) = seen_with_kills(MINUTE).await;
    let world = example().await;
    world.tell(json!("How are you?")).await;
    world.tell(json!("And now?")).await;
    let mut restarts = 0;
    while world.record().await.has_work() {
        pass(Duration::from_millis(1_250)).await;
        restarts += u64::from(world.sessions.restart_agent(&world.id).await);
        assert!(restarts < 1_000, "it does not get anywhere");
    }
    assert!(restarts > 5, "{restarts}: more often than an agent may die");
    assert_eq!(world.events().await, undisturbed);
}

#[tokio::test(start_paused = true)]
async fn with_its_state_alone_where_the_logs_are_gone_it_finishes_what_it_was_at() {
    let old = example().await;
    old.send(r#"{"content":"How are you?","message_id":"m-1"}"#).await;
    pass(5 * SECOND).await;
    let snapshot = old.store.snapshot(&old.id).await.unwrap().unwrap();
    let said_before = old.events().await.len();
    answered(&old).await;

    let new = example().await;
    new.publish(Publication { state: Some(snapshot.body), ..said() }).await;
    let _client = new.attach().await;
    let whole = old.events().await;
    until(async || new.events().await.len() + said_before == whole.len()).await;
    assert_eq!(new.events().await, whole[said_before..]);
    new.tell(json!("And now?")).await;
    answered(&new).await;
    let last = new.events().await.pop().unwrap();
    assert!(last["content"].as_str().unwrap().contains("I had answered 1 in"), "{last}");
}

#[tokio::test]
async fn at_no_pace_it_takes_no_time() {
    let world = world_with(settings(), |b| b.agent(Example::at_pace(0.0))).await;
    world.tell(json!("quick")).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(world.event_names().await.last().unwrap(), "agent.final_answer");
}
