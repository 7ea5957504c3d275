//! When the store fails everybody who waits is told, and nothing hangs.

use crate::common::*;
use futures_util::FutureExt as _;
use rejoin::core::worker::Publication;
use rejoin::store::Failure;

#[tokio::test(start_paused = true)]
async fn everybody_who_waits_for_a_store_that_fails_gets_an_error() {
    let store = failing::FailingStore::new();
    let (agent, mut seats) = agents::GiveSeats::new();
    let world = world_on(store.clone(), settings(), |b| b.agent(agent)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let tasks_before = tasks();
    let mut reader = world.attach().await;
    let mut seat = soon(seats.recv()).await.unwrap();
    store.hold_writes();

    let (sessions, id) = (world.sessions.clone(), world.id.clone());
    let publication = Publication { events: vec![event("one")], ..said() };
    let publishing = tokio::spawn(async move { sessions.publish(&id, publication).await });
    let (sessions, id) = (world.sessions.clone(), world.id.clone());
    let message = rejoin::core::log::EntryKind::Message;
    let sending =
        tokio::spawn(async move { sessions.send(&id, message, None, body("hello")).await });
    let (sessions, id) = (world.sessions.clone(), world.id.clone());
    let second = client::client(client::after(0));
    let second = tokio::spawn(async move { sessions.attach(&id, second).await.map(drop) });
    until(async || store.waiting() == 3).await;
    store.break_down_and_tell();

    let publish_error = soon(publishing).await.unwrap().unwrap_err();
    assert!(matches!(publish_error, Failure::Unavailable(_)), "{publish_error}");
    let send_error = soon(sending).await.unwrap().unwrap_err();
    assert!(matches!(send_error, Failure::Unavailable(_)), "{send_error}");
    assert_eq!(reader.next().await, "closed 4003");
    let attach_error = soon(second).await.unwrap().unwrap_err();
    assert!(matches!(attach_error, Failure::Unavailable(_)), "{attach_error}");
    assert!(soon(seat.next()).await.is_none(), "the agent is stopped");
    assert!(seat.publish(said()).await.is_err());
    assert!(reader.send("m1", "hello").await.is_err());
    world.quiet().await;
    settle().await;
    assert!(tasks() <= tasks_before, "neither driver nor agent is left");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_failed_before_is_told_to_whoever_comes() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |b| b).await;
    store.break_down();
    let attach = soon(world.sessions.attach(&world.id, client::client(None))).await;
    assert!(matches!(attach, Err(Failure::Unavailable(_))));
    assert!(soon(world.sessions.publish(&world.id, said())).await.is_err());
    assert!(soon(world.sessions.end(&world.id)).await.is_err());
    assert_eq!(world.sessions.live(), 0);
    soon(world.sessions.close()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_fails_ends_the_driver() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |b| b).await;
    let reader = world.attach().await;
    store.break_down();
    drop(reader);
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_on_a_store_that_fails_says_so() {
    let store = failing::FailingStore::new();
    let (hook, mut cleanups) = hooks::GiveAway::new();
    let world = world_on(store.clone(), settings(), |b| b.hook(hook)).await;
    drop(world.attach().await);
    let cleanup = soon(cleanups.recv()).await.unwrap();
    store.break_down();
    assert!(cleanup.run().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_ever_for_a_store_that_stands_still() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |b| b).await;
    store.hold_writes();
    let attaching = world.sessions.attach(&world.id, client::client(client::after(0)));
    assert!(attaching.now_or_never().is_none());
    until(async || store.waiting() == 1).await;
    let started = tokio::time::Instant::now();
    soon(world.sessions.close()).await.unwrap();
    assert!(started.elapsed() < 10 * SECOND);
    assert_eq!(world.sessions.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_takes_nobody_with_it_and_the_next_one_goes_on() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |b| b).await;
    let mut reader = world.attach().await;
    store.panic_once();
    assert!(soon(world.sessions.publish(&world.id, said())).await.is_err());
    world.quiet().await;
    world.say(&["one"]).await;
    assert_eq!(reader.next().await, "live 1=one", "its client is still there");
    let mut reader = world.attach_after(0).await;
    assert_eq!(reader.until("complete").await[1], "replayed 1=one");
}
