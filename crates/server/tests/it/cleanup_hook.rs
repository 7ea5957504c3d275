//! The hook decides when a session is cleaned up: now, later, on a condition; never after a client
//! has come back, and never later than session_ttl.

use std::sync::Arc;

use crate::common::*;
use rejoin::core::lifetime::OnDisconnect::{Ttl, WhilePending};
use rejoin::core::record::Ending;
use rejoin::store::Failure;
use rejoin::{CleanedUp, Cleanup, Clock, ServerSettings, Sessions};
use tokio::sync::{mpsc, oneshot};

type Cleanups = mpsc::UnboundedReceiver<Cleanup>;

async fn world_with_hook(settings: ServerSettings) -> (World, Cleanups) {
    let (hook, cleanups) = hooks::GiveAway::new();
    (world_with(settings, |b| b.hook(hook)).await, cleanups)
}

async fn disconnect(world: &World, cleanups: &mut Cleanups) -> Cleanup {
    drop(world.attach().await);
    soon(cleanups.recv()).await.expect("the hook lives")
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_is_run_ends_the_session() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let cleanup = disconnect(&world, &mut cleanups).await;
    assert_eq!(cleanup.session(), Some(&world.id));
    assert_eq!(cleanup.run().await.unwrap(), CleanedUp::Ended);
    assert_eq!(world.ending().await, Some(Ending::CleanedUp));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_cleanup_counts_from_the_disconnect_and_survives_a_restart() {
    let (hook, mut cleanups) = hooks::GiveAway::new();
    let clock = Clock::start();
    let world = world_with(settings(), |b| b.hook(hook).clock(clock)).await;
    let cleanup = disconnect(&world, &mut cleanups).await;
    pass(MINUTE).await;
    cleanup.after(HOUR).await.unwrap();
    let World { sessions, store, id } = world;
    drop(sessions);
    settle().await;
    let sessions = Sessions::builder(Arc::clone(&store)).clock(clock).start().unwrap();
    let world = World { sessions, store, id };
    pass(HOUR - 2 * MINUTE).await;
    assert!(world.is_parked().await);
    pass(MINUTE).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_on_a_condition_waits_for_it() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let cleanup = disconnect(&world, &mut cleanups).await;
    let (fulfil, condition) = oneshot::channel::<()>();
    let waiting = tokio::spawn(cleanup.when(async { condition.await.unwrap() }));
    pass(5 * HOUR).await;
    assert!(world.is_parked().await);
    fulfil.send(()).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), CleanedUp::Ended);
    assert_eq!(world.ending().await, Some(Ending::CleanedUp));
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_on_a_condition_gives_up_once_a_client_is_back() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let cleanup = disconnect(&world, &mut cleanups).await;
    let waiting = tokio::spawn(cleanup.when(std::future::pending()));
    let _reader = world.attach().await;
    let outcome = tokio::time::timeout(5 * MINUTE, waiting).await;
    assert_eq!(outcome.unwrap().unwrap().unwrap(), CleanedUp::Stale);
}

#[tokio::test(start_paused = true)]
async fn a_stale_cleanup_does_nothing_to_an_attached_or_parked_session() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let first = disconnect(&world, &mut cleanups).await;
    let second = disconnect(&world, &mut cleanups).await;
    let third = disconnect(&world, &mut cleanups).await;
    let longest = world.record().await.expires_at;
    first.after(SECOND).await.unwrap();
    assert_eq!(world.record().await.expires_at, longest);
    let reader = world.attach().await;
    assert_eq!(second.run().await.unwrap(), CleanedUp::Stale);
    drop(third);
    pass(SECOND).await;
    assert!(world.record().await.attached.is_some());
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_is_dropped_falls_back_to_the_ttl() {
    let (world, mut cleanups) = world_with_hook(policy(Ttl, Some(HOUR))).await;
    drop(disconnect(&world, &mut cleanups).await);
    pass(HOUR - SECOND).await;
    assert!(world.is_parked().await);
    pass(SECOND).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_is_held_for_ever_is_overtaken_by_session_ttl() {
    let (world, mut cleanups) = world_with_hook(policy(Ttl, Some(HOUR))).await;
    let cleanup = disconnect(&world, &mut cleanups).await;
    pass(SESSION_TTL - MINUTE).await;
    assert!(world.is_parked().await, "the hook has not decided");
    pass(MINUTE).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
    assert_eq!(cleanup.run().await.unwrap(), CleanedUp::Stale);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_does_not_overrule_the_hook() {
    let (world, mut cleanups) = world_with_hook(policy(WhilePending, None)).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    drop(reader);
    let cleanup = soon(cleanups.recv()).await.unwrap();
    world.cover(1).await;
    pass(HOUR).await;
    assert!(world.is_parked().await, "the hook has not decided");
    cleanup.after(2 * HOUR).await.unwrap();
    pass(HOUR - MINUTE).await;
    assert!(world.is_parked().await);
    pass(MINUTE).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn after_a_dropped_cleanup_work_that_is_done_begins_the_ttl() {
    let (world, mut cleanups) = world_with_hook(policy(WhilePending, Some(MINUTE))).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    drop(reader);
    drop(soon(cleanups.recv()).await.unwrap());
    pass(HOUR).await;
    assert!(world.is_parked().await, "work is under way");
    world.cover(1).await;
    pass(MINUTE).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_leaves_the_session_to_the_ttl() {
    let world = world_with(policy(Ttl, Some(HOUR)), |b| b.hook(hooks::Panics)).await;
    drop(world.attach().await);
    world.parked().await;
    world.quiet().await;
    pass(HOUR).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_holds_nobody_up() {
    let world = world_with(policy(Ttl, Some(HOUR)), |b| b.hook(hooks::Hangs)).await;
    for _ in 0..3 {
        drop(world.attach().await);
        world.quiet().await;
    }
    let world_closed = world.sessions.close();
    let started = tokio::time::Instant::now();
    world_closed.await.unwrap();
    assert!(started.elapsed() < SECOND, "nobody waits for a hook that hangs");
}

#[tokio::test(start_paused = true)]
async fn hooks_that_hang_do_not_pile_up_for_ever() {
    let world = world_with(policy(Ttl, Some(HOUR)), |b| b.hook(hooks::Hangs)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..10 {
        drop(world.attach().await);
        world.quiet().await;
    }
    assert_eq!(tasks(), before + 10);
    pass(SESSION_TTL + SECOND).await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn the_hook_is_not_asked_about_a_session_that_was_ended() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let reader = world.attach().await;
    world.sessions.end(&world.id).await.unwrap();
    drop(reader);
    world.quiet().await;
    assert!(cleanups.try_recv().is_err());
}

/// Whoever is first: either the clean-up ends the session and the client is refused, or the client is
/// attached and the clean-up is stale. Never both, never neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_and_reattach_never_both_win() {
    let (world, mut cleanups) = world_with_hook(settings()).await;
    let (mut ended, mut attached) = (0, 0);
    for round in 0..1_000 {
        let kind = rejoin::core::record::Kind::Agent;
        let id = world.sessions.create(&me(), kind, "{}").await.unwrap().id().clone();
        let world = World { id, sessions: world.sessions.clone(), store: world.store.clone() };
        let cleanup = disconnect(&world, &mut cleanups).await;
        let running = tokio::spawn(async move {
            for _ in 0..round % 8 {
                tokio::task::yield_now().await;
            }
            cleanup.run().await.unwrap()
        });
        let reader = world.sessions.attach(&world.id, client::client(client::after(0))).await;
        match running.await.unwrap() {
            CleanedUp::Ended => {
                assert!(matches!(reader, Err(Failure::Refused(_))), "{reader:?}");
                assert!(!world.record().await.is_active());
                ended += 1;
            }
            CleanedUp::Stale => {
                assert!(reader.is_ok(), "{reader:?}");
                assert!(world.record().await.attached.is_some());
                attached += 1;
            }
        }
        drop(reader);
        if world.record().await.is_active() {
            drop(soon(cleanups.recv()).await.unwrap());
        }
    }
    assert!(ended > 0 && attached > 0, "{ended} ended and {attached} attached: that was no race");
}
