//! The sessions whose time has come: what the clean-up works through.

use std::time::Duration;

use rejoin_core::lifetime::Lifetime;
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{Create, Detach, Enter, Keep};
use rejoin_core::{Generation, SessionId, Timestamp};

use super::World;
use super::world::{A_MOMENT, KEEP, REMEMBER};

pub async fn nothing_is_due_in_an_empty_store(world: World) {
    assert_eq!(due(&world, world.now, 9).await, (vec![], None));
}

pub async fn sessions_are_due_soonest_first(world: World) {
    let c = kept_for(&world, 3).await;
    let a = kept_for(&world, 1).await;
    let d = kept_for(&world, 4).await;
    let b = kept_for(&world, 2).await;
    assert_eq!(due(&world, world.now, 9).await, (vec![], Some(after(&world, 1))));
    let at_three = due(&world, after(&world, 3), 9).await;
    assert_eq!(at_three, (vec![a.clone(), b.clone(), c.clone()], Some(after(&world, 4))));
    assert_eq!(due(&world, after(&world, 9), 9).await, (vec![a, b, c, d], None));
}

pub async fn the_moment_of_the_deadline_counts(world: World) {
    let id = kept_for(&world, 10).await;
    let deadline = after(&world, 10);
    assert_eq!(due(&world, deadline - A_MOMENT, 9).await, (vec![], Some(deadline)));
    assert_eq!(due(&world, deadline, 9).await, (vec![id], None));
}

/// Whoever works through them in pages must not sleep while there are more.
pub async fn a_full_page_says_when_the_next_one_is_due(world: World) {
    let a = kept_for(&world, 1).await;
    let b = kept_for(&world, 2).await;
    kept_for(&world, 3).await;
    let page = due(&world, after(&world, 9), 2).await;
    assert_eq!(page, (vec![a, b], Some(after(&world, 3))));
}

pub async fn sessions_due_at_the_same_time_are_all_listed(world: World) {
    let ids = [kept_for(&world, 5).await, kept_for(&world, 5).await, kept_for(&world, 5).await];
    let (mut listed, next) = due(&world, after(&world, 5), 9).await;
    listed.sort();
    assert_eq!((listed, next), (ids.to_vec(), None));
}

pub async fn an_attached_session_is_never_due(world: World) {
    let id = kept_for(&world, 5).await;
    let generation = world.attach(&id).await;
    assert_eq!(due(&world, after(&world, 999_999), 9).await, (vec![], None));
    let detach = Detach { lifetime: Lifetime::keeping(secs(7)), ..world.detaching(generation) };
    world.store.detach(&id, detach).await.unwrap();
    assert_eq!(due(&world, after(&world, 7), 9).await, (vec![id], None));
}

pub async fn keeping_and_messages_move_the_deadline(world: World) {
    let id = kept_for(&world, 5).await;
    let keep = Keep { generation: Generation::ZERO, until: after(&world, 2) };
    world.store.keep(&id, keep).await.unwrap();
    assert_eq!(due(&world, after(&world, 2), 9).await, (vec![id.clone()], None));
    let message = Enter { keep_for: secs(8), ..world.entering(None, "hello") };
    world.store.enter(&id, message).await.unwrap();
    assert_eq!(due(&world, after(&world, 7), 9).await, (vec![], Some(after(&world, 8))));
}

pub async fn an_ended_session_is_due_when_it_may_be_forgotten(world: World) {
    let id = kept_for(&world, 5).await;
    world.close(&id).await;
    let forget_at = world.now + REMEMBER;
    assert_eq!(due(&world, forget_at - A_MOMENT, 9).await, (vec![], Some(forget_at)));
    assert_eq!(due(&world, forget_at, 9).await, (vec![id.clone()], None));
    let keep = Keep { generation: Generation::ZERO, until: world.now + KEEP };
    world.store.keep(&id, keep).await.unwrap();
    assert_eq!(due(&world, forget_at, 9).await, (vec![id.clone()], None));
    world.store.forget(&id, forget_at).await.unwrap();
    assert_eq!(due(&world, forget_at + KEEP, 9).await, (vec![], None));
}

pub async fn what_is_due_comes_with_its_record(world: World) {
    let active = kept_for(&world, 5).await;
    let ended = kept_for(&world, 900).await;
    world.store.end(&ended, world.ending(Ending::Expired)).await.unwrap();
    let listed = world.store.due(world.now + REMEMBER, 9).await.unwrap().records;
    assert_eq!(listed, [world.record(&active).await, world.record(&ended).await]);
}

pub async fn a_restore_leaves_the_old_session_to_be_forgotten(world: World) {
    let id = kept_for(&world, 5).await;
    let new =
        world.store.restore(world.restoring(&id, 0, 0)).await.unwrap().into_record().id().clone();
    let (forget_at, expires_at) = (world.now + REMEMBER, world.now + KEEP);
    assert_eq!(due(&world, after(&world, 5), 9).await, (vec![], Some(forget_at)));
    assert_eq!(due(&world, forget_at, 9).await, (vec![id.clone()], Some(expires_at)));
    assert_eq!(due(&world, expires_at, 9).await, (vec![id, new], None));
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn after(world: &World, seconds: u64) -> Timestamp {
    world.now + secs(seconds)
}

async fn kept_for(world: &World, seconds: u64) -> SessionId {
    let create = Create { keep_for: secs(seconds), ..world.creating() };
    world.store.create(create).await.unwrap().id().clone()
}

async fn due(world: &World, now: Timestamp, limit: usize) -> (Vec<SessionId>, Option<Timestamp>) {
    let due = world.store.due(now, limit).await.unwrap();
    (due.records.iter().map(Record::id).cloned().collect(), due.next)
}
