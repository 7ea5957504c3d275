//! created → attached ⇄ parked → closed or expired; and a driver only while there is a reason for one.

use crate::common::*;
use futures_util::FutureExt as _;
use rejoin::core::record::{Ending, Kind};
use rejoin::core::state::Takeover;
use rejoin::store::{Failure, MemoryStore};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn a_session_is_created_attached_parked_attached_again_and_closed() {
    let world = world().await;
    assert!(world.is_parked().await);
    let first = world.attach().await;
    assert!(!world.is_parked().await);
    drop(first);
    world.parked().await;
    let mut second = world.attach().await;
    assert_eq!(world.record().await.reconnect_count, 1);
    world.sessions.end(&world.id).await.unwrap();
    assert_eq!(second.until("closed").await, ["ended", "closed 4101"]);
    assert_eq!(world.ending().await, Some(Ending::Closed));
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_expires_and_is_forgotten_when_its_time_comes() {
    let world = world().await;
    drop(world.attach().await);
    world.parked().await;
    pass(SESSION_TTL - SECOND).await;
    assert_eq!(world.ending().await, None);
    pass(SECOND).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
    assert_eq!(world.refused().await, "the session has ended");
    pass(settings().remember_for() - MINUTE).await;
    assert!(world.store.session(&world.id).await.unwrap().is_some());
    pass(MINUTE).await;
    assert!(world.store.session(&world.id).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_attached_session_never_expires() {
    let world = world().await;
    let mut reader = world.attach().await;
    for _ in 0..(2 * SESSION_TTL.as_secs() / 30) {
        assert_eq!(reader.next().await, "heartbeat");
        reader.attachment.heard();
    }
    assert_eq!(world.ending().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_without_work_has_no_driver() {
    let world = world().await;
    world.say(&["one"]).await;
    world.quiet().await;
    let reader = world.attach().await;
    world.quiet().await; // nor has one that a client is attached to
    drop(reader);
    world.parked().await;
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_refused_keeps_no_driver() {
    let world = world().await;
    world.sessions.end(&world.id).await.unwrap();
    assert_eq!(world.refused().await, "the session has ended");
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_only_a_backend_can_do_keeps_no_driver() {
    let world = world().await;
    world.send("do it").await;
    world.quiet().await;
    assert!(world.record().await.has_work());
    world.cover(1).await;
    assert!(!world.record().await.has_work());
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn the_later_connection_wins_and_the_earlier_has_no_effect_any_more() {
    let world = world().await;
    world.say(&["one"]).await;
    let mut first = world.attach().await;
    let mut second = world.attach().await;
    assert_eq!(first.until("closed").await, ["superseded", "closed 4100"]);
    let refused = first.send("m1", "too late").await.unwrap_err();
    assert!(matches!(refused, Failure::Refused(_)), "{refused}");
    first.attachment.ack(rejoin::core::Seq::new(1), false);
    settle().await;
    drop(first);
    settle().await;
    let record = world.record().await;
    assert_eq!((record.in_head.get(), record.acked.get()), (0, 0));
    assert!(record.attached.is_some(), "the one that left was not the one that is attached");
    world.say(&["two"]).await;
    assert_eq!(second.next().await, "live 2=two");
}

#[tokio::test(start_paused = true)]
async fn where_takeover_is_rejected_the_earlier_connection_stays() {
    let settings = rejoin::ServerSettings { takeover: Takeover::Reject, ..settings() };
    let world = world_with(settings, |builder| builder).await;
    let mut first = world.attach().await;
    assert_eq!(world.refused().await, "another connection is attached to the session");
    settle().await;
    world.say(&["one"]).await;
    assert_eq!(first.next().await, "live 1=one");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_not_heard_of_is_parked() {
    let world = world().await;
    let mut silent = world.attach().await;
    assert_eq!(silent.until("closed").await, ["heartbeat", "closed 4001"]);
    world.parked().await;
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_before_it_is_confirmed_leaves_nothing_behind() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |builder| builder).await;
    store.hold_writes();
    let attaching = world.sessions.attach(&world.id, client::client(client::after(0)));
    assert!(attaching.now_or_never().is_none(), "the store has not answered, and it is gone");
    until(async || store.waiting() == 1).await;
    store.go_on();
    until(async || world.record().await.generation.get() == 1).await;
    world.parked().await;
    assert_eq!(world.record().await.generation.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_takes_anything_is_cut_off() {
    let world = world().await;
    let mut silent = world.attach_after(0).await;
    let told = tokio::spawn(async move { while silent.attachment.next().await.is_some() {} });
    for number in 0..1_000 {
        world.say(&[&format!("event {number}")]).await;
    }
    pass(2 * MINUTE).await;
    world.parked().await;
    world.quiet().await;
    told.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_task_tells_clients_to_come_back_and_keeps_sessions() {
    let store = failing::FailingStore::new();
    let (agent, _seats) = agents::GiveSeats::new();
    let (hook, _cleanups) = hooks::GiveAway::new();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let immediate = policy(rejoin::core::lifetime::OnDisconnect::Immediate, None);
    let world = world_on(store.clone(), immediate, |b| b.agent(agent).hook(hook)).await;
    let mut reader = world.attach().await;
    settle().await;
    store.hold_writes();
    let (sessions, id) = (world.sessions.clone(), world.id.clone());
    let publication = rejoin::core::worker::Publication { events: vec![event("last")], ..said() };
    let publishing = tokio::spawn(async move { sessions.publish(&id, publication).await });
    until(async || store.waiting() == 1).await;
    let (closing, gate) = (world.sessions.clone(), store.clone());
    let closed = tokio::spawn(async move { closing.close().await });
    pass(SECOND).await;
    gate.go_on();
    closed.await.unwrap().unwrap();
    assert_eq!(publishing.await.unwrap().unwrap().last.get(), 1, "it was on its way");
    assert_eq!(reader.until("closed").await, ["closed 4000"]);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
    assert_eq!(world.sessions.live(), 0);
    assert!(world.sessions.attach(&world.id, client::client(None)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_every_task_and_no_session() {
    let store = Arc::new(MemoryStore::default());
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let World { sessions, store, id } =
        world_on(store, settings(), |b| b.agent(agents::Echo)).await;
    let reader = client::Reader::attach(&sessions, &id, None).await;
    settle().await;
    drop(sessions);
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until(async || alive() == before).await;
    assert!(store.session(&id).await.unwrap().unwrap().is_active());
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_somebody_else_is_not_attached_to() {
    let world = world().await;
    let other = rejoin::core::Principal::new("somebody");
    let id = world.sessions.create(&other, Kind::Agent, "{}").await.unwrap().id().clone();
    assert!(world.sessions.attach(&id, client::client(None)).await.is_err());
    assert_eq!(world.sessions.live(), 0);
}
