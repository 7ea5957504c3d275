//! What a client is told, and in which order; whatever its pace.

use std::sync::Arc;

use crate::common::*;
use futures_util::FutureExt as _;
use rejoin::core::limits::LogBounds;
use rejoin::core::worker::Publication;
use rejoin::store::{MemoryStore, Store};

fn store_of(events: usize) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(LogBounds { events, ..LogBounds::default() }, 10))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_is_told_everything_in_order() {
    let world = world_on(store_of(3), settings(), |builder| builder).await;
    world.say(&["one", "two", "three"]).await;
    world.publish(Publication { state: Some(body("state")), ..said() }).await;
    world.say(&["four", "five"]).await;
    let mut reader = world.attach_after(1).await;
    let gap = "gap Evicted { missing: SeqRange { from: Seq(2), to: Seq(2) }, lost: None }";
    let told = reader.until("complete").await;
    let expected =
        ["confirmed from 3", gap, "state", "replayed 3=three 4=four 5=five", "complete 3-5"];
    assert_eq!(told, expected);
    world.say(&["six"]).await;
    assert_eq!(reader.next().await, "live 6=six");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_everything_is_told_so() {
    let world = world().await;
    world.say(&["one"]).await;
    let mut reader = world.attach_after(1).await;
    assert_eq!(reader.until("complete").await, ["confirmed from 2", "complete"]);
}

#[tokio::test(start_paused = true)]
async fn events_that_come_while_a_client_is_replayed_to_follow_live() {
    let world = world().await;
    let many: Vec<String> = (1..=300).map(|number| number.to_string()).collect();
    world.say(&many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut reader = world.attach_after(0).await;
    reader.next().await;
    reader.next().await;
    world.say(&["new"]).await;
    let told = reader.until("live").await;
    assert!(told[0].starts_with("replayed 257=257") && told[0].ends_with("300=300"), "{told:?}");
    assert_eq!(told[1..], ["complete 1-300", "live 301=new"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_everything_and_never_has_more_than_a_page_waiting() {
    let world = world().await;
    let mut reader = world.attach().await;
    for number in 1..=900 {
        world.say(&[&number.to_string()]).await;
    }
    settle().await;
    let mut next = 1;
    while next <= 900 {
        let told = reader.next_without_taking().await;
        settle().await;
        let more = reader.attachment.next().now_or_never();
        assert!(more.is_none(), "nothing more before it has taken that, but {more:?}");
        for event in told.strip_prefix("live ").unwrap().split(' ') {
            assert_eq!(event, format!("{next}={next}"));
            next += 1;
        }
        reader.attachment.taken();
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_overtaken_by_eviction_is_told_the_gap() {
    let world = world_on(store_of(10), settings(), |builder| builder).await;
    let mut reader = world.attach().await;
    world.say(&["1"]).await;
    assert_eq!(reader.next_without_taking().await, "live 1=1");
    for number in 2..=30 {
        world.say(&[&number.to_string()]).await;
    }
    reader.attachment.taken();
    let gap = reader.next().await;
    assert!(gap.contains("missing: SeqRange { from: Seq(2), to: Seq(20) }"), "{gap}");
    assert!(reader.next().await.starts_with("live 21=21 22=22"));
}

#[tokio::test(start_paused = true)]
async fn acks_are_stored_and_what_was_never_sent_is_not_acked() {
    let world = world().await;
    world.say(&["one", "two"]).await;
    let mut reader = world.attach_after(0).await;
    reader.until("complete").await;
    reader.attachment.ack(rejoin::core::Seq::new(9), false);
    assert_eq!(reader.next().await, "ack ahead of 2");
    reader.attachment.ack(rejoin::core::Seq::new(1), false);
    assert!(reader.attachment.next().now_or_never().is_none());
    until(async || world.record().await.acked.get() == 1).await;
    reader.attachment.ack(rejoin::core::Seq::new(1), true);
    assert_eq!(reader.next().await, "replayed 2=two");
}

#[tokio::test(start_paused = true)]
async fn of_a_flood_of_acks_only_the_last_waits_for_the_store_and_heartbeats_go_on() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |builder| builder).await;
    let many: Vec<String> = (1..=900).map(|number| number.to_string()).collect();
    world.say(&many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut reader = world.attach_after(900).await;
    reader.until("complete").await;
    store.hold_writes();
    for seq in 1..=900 {
        reader.attachment.ack(rejoin::core::Seq::new(seq), false);
        assert!(reader.attachment.next().now_or_never().is_none());
    }
    assert_eq!(reader.next_without_taking().await, "heartbeat");
    assert_eq!(store.acks_asked(), 1, "the rest waits, and is one");
    store.go_on();
    reader.attachment.heard();
    assert_eq!(reader.next_without_taking().await, "heartbeat");
    assert_eq!(store.acks_asked(), 2);
    until(async || world.record().await.acked.get() == 900).await;
}
