//! What becomes of a session whose connection is gone: immediate, ttl, while_pending.

use crate::common::*;
use rejoin::core::lifetime::OnDisconnect::{Immediate, Ttl, WhilePending};
use rejoin::core::record::Ending;

#[tokio::test(start_paused = true)]
async fn immediate_ends_the_session_with_its_connection() {
    let world = world_with(policy(Immediate, None), |b| b).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    drop(reader);
    assert_eq!(world.ended().await, Ending::CleanedUp);
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn ttl_keeps_the_session_for_as_long() {
    let world = world_with(policy(Ttl, Some(HOUR)), |b| b).await;
    drop(world.attach().await);
    world.parked().await;
    pass(HOUR - SECOND).await;
    assert!(world.is_parked().await);
    pass(SECOND).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn while_pending_ends_a_session_without_work_at_once() {
    let world = world_with(policy(WhilePending, None), |b| b).await;
    drop(world.attach().await);
    assert_eq!(world.ended().await, Ending::CleanedUp);
}

#[tokio::test(start_paused = true)]
async fn while_pending_ends_a_session_in_the_same_way_once_its_work_is_done() {
    let world = world_with(policy(WhilePending, None), |b| b).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    drop(reader);
    world.parked().await;
    pass(HOUR).await;
    world.cover(1).await;
    assert_eq!(world.ended().await, Ending::CleanedUp);
    let record = world.record().await;
    assert!(record.expires_at <= world.sessions.clock().now(), "its time is not to come");
}

#[tokio::test(start_paused = true)]
async fn work_keeps_a_session_and_the_ttl_begins_when_it_is_done() {
    for on_disconnect in [Ttl, WhilePending] {
        let world = world_with(policy(on_disconnect, Some(MINUTE)), |b| b).await;
        let reader = world.attach().await;
        reader.send("m1", "work").await.unwrap();
        drop(reader);
        world.parked().await;
        pass(5 * HOUR).await;
        assert!(world.is_parked().await, "{on_disconnect:?}");
        world.cover(1).await;
        pass(MINUTE - SECOND).await;
        assert!(world.is_parked().await, "{on_disconnect:?}");
        pass(SECOND).await;
        assert_eq!(world.ending().await, Some(Ending::Expired), "{on_disconnect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_never_done_keeps_a_session_no_longer_than_session_ttl() {
    let world = world_with(policy(WhilePending, None), |b| b).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    drop(reader);
    world.parked().await;
    pass(SESSION_TTL - SECOND).await;
    assert!(world.is_parked().await);
    pass(2 * SECOND).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
}

#[tokio::test(start_paused = true)]
async fn the_driver_of_a_session_that_expires_at_work_is_told() {
    let (agent, mut seats) = agents::GiveSeats::new();
    let world = world_with(policy(WhilePending, None), |b| b.agent(agent)).await;
    world.send("work that never ends").await;
    let mut seat = soon(seats.recv()).await.unwrap();
    assert!(soon(seat.next()).await.is_some());
    pass(SESSION_TTL - SECOND).await;
    assert_eq!(world.sessions.live(), 1);
    pass(2 * SECOND).await;
    assert_eq!(world.ending().await, Some(Ending::Expired));
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_has_attached_to_yet_is_not_ended_when_its_work_is_done() {
    let world = world_with(policy(WhilePending, None), |b| b).await;
    world.send("work").await;
    world.cover(1).await;
    pass(SESSION_TTL - MINUTE).await;
    assert_eq!(world.ending().await, None);
}
