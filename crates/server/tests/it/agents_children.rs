//! Children come and go with their sessions: none is left behind, none is kept for nothing, and there
//! are never too many.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use crate::common::children::{Puppet, is_known, kill, lives};
use crate::common::*;
use rejoin::ServerSettings;
use rejoin::core::Principal;
use rejoin::core::record::Kind;
use serde_json::json;
use std::time::Duration;

async fn world_of(puppet: &Puppet, places: usize, idle_ttl: Duration) -> World {
    let settings = ServerSettings { agent_idle_ttl: idle_ttl, ..settings() };
    let command = puppet.command().max_children(places);
    world_with(settings, |b| b.agent(command)).await
}

/// Another session of the same server.
async fn another(world: &World) -> World {
    let id = world.sessions.create(&me(), Kind::Agent, "{}").await.unwrap().id().clone();
    World { sessions: world.sessions.clone(), store: Arc::clone(&world.store), id }
}

/// What a child says that has dealt with the entry.
fn done(in_seq: u64) -> serde_json::Value {
    json!({"event": "agent.done", "in_seq": in_seq, "state": {"done": in_seq}})
}

async fn gone(pids: Vec<u32>) {
    assert!(!pids.is_empty());
    until(async || pids.iter().all(|pid| !lives(*pid))).await;
}

#[tokio::test]
async fn a_session_that_ends_tells_its_child_and_takes_the_whole_group_along() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, HOUR).await;
    world.tell(json!({"spawn": true})).await;
    until(async || puppet.grandchildren().len() == 1).await;
    world.sessions.end(&world.id).await.unwrap();
    let heard = ["session.start", "user.message 1", "session.end", "end of input"];
    puppet.until_heard(&heard).await;
    world.quiet().await;
    assert!(!is_known(puppet.pids()[0]), "not even a zombie");
    gone(puppet.grandchildren()).await;
}

#[tokio::test]
async fn a_child_that_neither_reads_nor_heeds_signals_is_killed_with_its_session() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, HOUR).await;
    world.tell(json!({"spawn": true, "stubborn": true, "then": "sleep"})).await;
    until(async || puppet.grandchildren().len() == 1).await;
    world.sessions.end(&world.id).await.unwrap();
    world.quiet().await;
    assert!(!is_known(puppet.pids()[0]), "not even a zombie");
    gone(puppet.grandchildren()).await;
}

#[tokio::test]
async fn a_server_that_closes_ends_its_children_and_not_their_sessions() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, HOUR).await;
    world.tell(json!({"spawn": true})).await;
    until(async || puppet.grandchildren().len() == 1).await;
    world.sessions.close().await.unwrap();
    assert_eq!(puppet.heard(), ["session.start", "user.message 1", "end of input"]);
    assert!(!is_known(puppet.pids()[0]), "not even a zombie");
    gone(puppet.grandchildren()).await;
}

#[tokio::test]
async fn a_child_that_dies_leaves_nobody_behind() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, HOUR).await;
    world.tell(json!({"print": [done(1)], "spawn": true, "then": "die"})).await;
    world.until_head(1).await;
    until(async || puppet.grandchildren().len() == 1).await;
    gone(puppet.grandchildren()).await;
    until(async || !is_known(puppet.pids()[0])).await;
}

#[tokio::test]
async fn a_child_with_nothing_to_do_is_stopped_after_a_while_and_started_again_when_needed() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, Duration::from_millis(300)).await;
    world.tell(json!({"print": [done(1)]})).await;
    world.until_head(1).await;
    assert_eq!(world.sessions.live(), 1, "it is kept for a while");
    world.quiet().await;
    gone(puppet.pids()).await;
    world.tell(json!({"print": [done(2)]})).await;
    world.until_head(2).await;
    assert_eq!(puppet.pids().len(), 2);
    let mut started = puppet.told().into_iter().filter(|line| line["event"] == "session.start");
    assert_eq!(started.next_back().unwrap()["content"]["state"], json!({"done": 1}));
}

#[tokio::test]
async fn a_child_with_a_client_is_not_stopped() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 8, Duration::ZERO).await;
    let reader = world.attach().await;
    puppet.until_heard(&["session.start"]).await;
    reader.send("m1", &json!({"content": {"print": [done(1)]}}).to_string()).await.unwrap();
    world.until_head(1).await;
    reader.send("m2", &json!({"content": {"print": [done(2)]}}).to_string()).await.unwrap();
    world.until_head(2).await;
    assert_eq!(puppet.pids().len(), 1);
    drop(reader);
    gone(puppet.pids()).await;
}

#[tokio::test]
async fn when_there_are_too_many_the_one_idle_longest_makes_room() {
    let puppet = Puppet::new();
    let first = world_of(&puppet, 2, HOUR).await;
    first.tell(json!({"print": [done(1)]})).await;
    first.until_head(1).await;
    let second = another(&first).await;
    second.tell(json!({"print": [done(1)]})).await;
    second.until_head(1).await;
    let third = another(&first).await;
    third.tell(json!({"print": [done(1)]})).await;
    third.until_head(1).await;
    let pids = puppet.pids();
    assert_eq!(pids.len(), 3);
    assert_eq!((lives(pids[0]), lives(pids[1]), lives(pids[2])), (false, true, true));
    first.tell(json!({"print": [done(2)]})).await;
    first.until_head(2).await;
    assert!(!lives(pids[1]), "then the second had been idle longest");
    assert_eq!(
        first.sessions.agent_counts().restarts.load(std::sync::atomic::Ordering::Relaxed),
        0
    );
}

#[tokio::test]
async fn a_child_whose_client_is_there_makes_room_for_work_and_not_for_company() {
    let puppet = Puppet::new();
    let first = world_of(&puppet, 1, HOUR).await;
    let _first_reader = first.attach().await;
    first.tell(json!({"print": [done(1)]})).await;
    first.until_head(1).await;
    let second = another(&first).await;
    let _second_reader = second.attach().await;
    pass(Duration::from_millis(300)).await;
    assert_eq!(puppet.pids().len(), 1, "the second session has nothing to do");
    second.tell(json!({"print": [done(1)]})).await;
    second.until_head(1).await;
    assert!(!lives(puppet.pids()[0]));
    first.tell(json!({"print": [done(2)]})).await;
    first.until_head(2).await;
}

#[tokio::test]
async fn when_there_are_too_many_and_all_work_a_session_waits_for_a_place() {
    let puppet = Puppet::new();
    let first = world_of(&puppet, 1, HOUR).await;
    first.tell(json!("named from here on")).await;
    first.tell(json!({"print": [{"event": "session.state", "content": 1, "in_seq": 1}]})).await;
    until(async || first.record().await.snapshot.is_some()).await;
    let second = another(&first).await;
    second.tell(json!({"print": [done(1)]})).await;
    second.tell(json!({"print": [done(2)]})).await;
    second.cancel().await;
    pass(Duration::from_millis(300)).await;
    assert_eq!((puppet.pids().len(), second.record().await.head.get()), (1, 0), "it waits");
    assert_eq!(second.record().await.covered.get(), 0, "and nothing counts as taken");
    first.tell(json!({"print": [done(3)]})).await;
    second.until_head(2).await;
    assert_eq!(second.record().await.covered.get(), 2);
}

#[tokio::test]
async fn a_session_that_waits_for_a_place_can_end() {
    let puppet = Puppet::new();
    let first = world_of(&puppet, 1, HOUR).await;
    first.tell(json!({"then": "sleep"})).await;
    puppet.until_heard(&["session.start", "user.message 1"]).await;
    let second = another(&first).await;
    second.tell(json!("work")).await;
    until(async || first.sessions.live() == 2).await;
    second.sessions.end(&second.id).await.unwrap();
    until(async || first.sessions.live() == 1).await;
    first.sessions.close().await.unwrap();
    gone(puppet.pids()).await;
}

/// Not a test of its own: the server that the next test kills.
#[tokio::test]
#[ignore = "it is run by another test"]
async fn serve_until_killed() {
    let puppet = Puppet::new();
    let world = world_of(&puppet, 1, HOUR).await;
    world.tell(json!({"then": "sleep"})).await;
    until(async || puppet.heard().len() == 2).await;
    let note = std::env::var("REJOIN_TEST_NOTE").unwrap();
    std::fs::write(note, puppet.pids()[0].to_string()).unwrap();
    std::future::pending::<()>().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_that_is_killed_takes_its_children_along() {
    let home = tempfile::tempdir().unwrap();
    let note = home.path().join("pid");
    let mut server = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agents_children::serve_until_killed", "--ignored"])
        .env("REJOIN_TEST_NOTE", &note)
        .spawn()
        .unwrap();
    let child = || std::fs::read_to_string(&note).ok().and_then(|pid| pid.parse().ok());
    until(async || child().is_some()).await;
    assert!(lives(child().unwrap()));
    kill(server.id());
    server.wait().unwrap();
    gone(vec![child().unwrap()]).await;
}

#[tokio::test]
async fn a_principal_that_has_its_share_leaves_the_rest_to_others() {
    let puppet = Puppet::new();
    let command = puppet.command().max_children(4).max_children_per_principal(2);
    let first = world_with(settings(), |b| b.agent(command)).await;
    let mut mine = vec![first];
    for _ in 0..5 {
        mine.push(another(&mine[0]).await);
    }
    for world in &mine {
        world.tell(json!({"then": "sleep"})).await;
    }
    until(async || puppet.pids().len() == 2).await;
    let other = Principal::new("other");
    let id = mine[0].sessions.create(&other, Kind::Agent, "{}").await.unwrap().id().clone();
    let theirs =
        World { sessions: mine[0].sessions.clone(), store: Arc::clone(&mine[0].store), id };
    theirs.tell(json!({"print": [done(1)]})).await;
    theirs.until_head(1).await;
    assert_eq!(puppet.pids().len(), 3, "the first principal has no more than two");
}

#[tokio::test]
async fn who_has_its_share_gets_the_place_of_an_idle_child_of_its_own() {
    let puppet = Puppet::new();
    let command = puppet.command().max_children(4).max_children_per_principal(1);
    let settings = ServerSettings { agent_idle_ttl: HOUR, ..settings() };
    let first = world_with(settings, |b| b.agent(command)).await;
    first.tell(json!({"print": [done(1)]})).await;
    first.until_head(1).await;
    let second = another(&first).await;
    second.tell(json!({"print": [done(1)]})).await;
    second.until_head(1).await;
    assert!(!lives(puppet.pids()[0]));
}
