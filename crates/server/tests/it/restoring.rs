//! What a restore does to those who are attached.

use crate::common::*;
use rejoin::core::page::Body;
use rejoin::core::record::{About, Kind};
use rejoin::core::state::{Create, NewSnapshot, Origin, Restore, Room, Takeover};
use rejoin::core::{Epoch, InSeq, LogId, Seq, SessionId};

/// A snapshot of the world's session that is gone on from only if it has come no further than this.
fn restore_at(world: &World, only_at: Option<(Seq, InSeq)>) -> Restore<Body> {
    let now = world.sessions.clock().now();
    let (id, kind) = (SessionId::from_random([7; 16]), Kind::Agent);
    let about = About { id, principal: me(), kind, client: "{}".into(), created_at: now };
    let (log, epoch) = (LogId::from_random([7; 8]), Epoch::from_random([7; 6]));
    Restore {
        from: world.id.clone(),
        origin: Origin::Unsaid,
        create: Create { about, log, epoch, keep_for: SESSION_TTL, room: Room::UNLIMITED },
        epoch: Epoch::from_text("the snapshot's"),
        seq: Seq::ZERO,
        in_seq: InSeq::ZERO,
        taken_at: now,
        state: NewSnapshot { size: 2, body: body("{}") },
        last_seq: None,
        takeover: Takeover::Replace,
        remember_for: SESSION_TTL,
        only_at,
        attempt: None,
        now,
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_restore_joins_goes_on_with_those_who_are_attached() {
    let world = world().await;
    let mut reader = world.attach().await;
    world.say(&["one"]).await;
    reader.until("live 1=one").await;
    let has_moved = restore_at(&world, Some((Seq::ZERO, InSeq::ZERO)));
    let joined = world.sessions.restore(has_moved).await.unwrap();
    assert_eq!(*joined.id(), world.id);
    world.say(&["two"]).await;
    let told = reader.until("live 2=two").await;
    assert!(!told.iter().any(|told| told.contains("uperseded")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_restore_replaces_loses_those_who_are_attached() {
    let world = world().await;
    let mut reader = world.attach().await;
    let made = world.sessions.restore(restore_at(&world, None)).await.unwrap();
    assert_ne!(*made.id(), world.id);
    reader.until("superseded").await;
}
