//! A restore reaches the caller's own sessions only, and only the one that its snapshot was taken of.

use rejoin_core::identity::StoreIdentity;
use rejoin_core::record::{About, Ending, Kind, Record, Status};
use rejoin_core::state::{Create, Origin, Restore, RestoreRefused};
use rejoin_core::{InSeq, Seq, SessionId, Timestamp};

use super::World;
use super::world::{A_MOMENT, KEEP, bob, refusal};
use crate::{Body, Restoration};

pub async fn a_session_of_another_principal_is_not_restored(world: World) {
    let create = of(&world, |about| about.principal = bob());
    let foreign = Box::pin(made(&world, create)).await;
    for origin in [Origin::Unsaid, sealed_here(&world, &foreign)] {
        let restoring = Restore { origin, ..world.restoring(&foreign, 1, 0) };
        refused_and_unchanged(&world, restoring, &foreign).await;
    }
}

pub async fn a_session_of_another_kind_is_not_restored(world: World) {
    let create = of(&world, |about| about.kind = Kind::Mcp);
    let other_kind = Box::pin(made(&world, create)).await;
    for origin in [Origin::Unsaid, sealed_here(&world, &other_kind)] {
        let restoring = Restore { origin, ..world.restoring(&other_kind, 1, 0) };
        refused_and_unchanged(&world, restoring, &other_kind).await;
    }
}

/// However it came about: each hop is compared, not only the first.
pub async fn a_line_that_leads_to_another_principal_is_not_followed(world: World) {
    let foreign = made(&world, of(&world, |about| about.principal = bob())).await;
    let own = world.session().await;
    world.store.end(&own, world.ending(Ending::Restored { to: foreign.clone() })).await.unwrap();
    refused_and_unchanged(&world, world.restoring(&own, 1, 0), &foreign).await;
}

pub async fn a_snapshot_of_another_store_leaves_the_session_that_has_its_id_alone(world: World) {
    let theirs = made(&world, of(&world, |about| about.principal = bob())).await;
    let own = made(&world, world.creating()).await;
    for taken in [theirs, own] {
        let before = world.record(&taken).await;
        let origin = sealed_elsewhere(&world, &taken, before.about.created_at);
        let restoring = Restore { origin: origin.clone(), ..world.restoring(&taken, 9, 4) };
        let new = new_id(world.store.restore(restoring).await.unwrap());
        assert_eq!(world.record(&taken).await, before);
        let record = world.record(&new).await;
        assert_eq!((record.head, record.held(), record.in_head), (Seq::new(9), 0, InSeq::new(4)));
        assert_eq!(world.state(&new).await.as_deref(), Some("sealed"));

        let again = Restore { origin: origin.clone(), ..world.restoring(&taken, 9, 4) };
        let joined = world.store.restore(again).await.unwrap();
        assert_eq!(joined, Restoration::Joined(Box::new(world.record(&new).await)));
        assert_eq!(world.record(&taken).await, before);
    }
}

pub async fn a_snapshot_of_a_session_whose_id_was_used_again_leaves_the_later_one_alone(
    mut world: World,
) {
    let id = world.session().await;
    let origin = sealed_here(&world, &id);
    world.close(&id).await;
    world.wait(KEEP * 9);
    world.store.forget(&id, world.now).await.unwrap();
    let later = made(&world, of(&world, |about| about.id = id.clone())).await;
    let before = world.record(&later).await;
    let new = new_id(
        world.store.restore(Restore { origin, ..world.restoring(&id, 5, 2) }).await.unwrap(),
    );
    assert_eq!(world.record(&later).await, before);
    assert_eq!(world.record(&new).await.head, Seq::new(5));
}

/// So that the id, which its client may still use, is answered as that of a session which went on elsewhere.
pub async fn a_snapshot_of_another_store_is_remembered_under_its_own_id_where_that_is_free(
    world: World,
) {
    let unknown = super::world::session_id("sess_of_another_store");
    let origin = sealed_elsewhere(&world, &unknown, world.now);
    let restoring = || Restore { origin: origin.clone(), ..world.restoring(&unknown, 3, 1) };
    let new = new_id(world.store.restore(restoring()).await.unwrap());
    let Status::Ended { ending, .. } = world.record(&unknown).await.status else { panic!() };
    assert_eq!(ending, Ending::Restored { to: new.clone() });
    assert_eq!(world.store.restore(restoring()).await.unwrap().record().id(), &new);
}

pub async fn a_restore_says_whether_it_made_a_session_and_which_it_replaces(world: World) {
    let old = world.session().await;
    let first = world.store.restore(world.restoring(&old, 0, 0)).await.unwrap();
    let Restoration::Made { record, replaced: Some(replaced) } = first else { panic!("{first:?}") };
    assert_eq!(*replaced, world.record(&old).await);
    let again = world.store.restore(world.restoring(&old, 0, 0)).await.unwrap();
    assert_eq!(again, Restoration::Joined(record));

    let ended = world.session().await;
    world.store.end(&ended, world.ending(Ending::Expired)).await.unwrap();
    let made = world.store.restore(world.restoring(&ended, 0, 0)).await.unwrap();
    assert!(matches!(made, Restoration::Made { replaced: None, .. }), "{made:?}");
}

/// A backup was put back, a client sent something to what is there now, and another one brings a state that
/// covers messages of the same numbers, which are lost.
pub async fn a_snapshot_of_a_future_that_was_lost_takes_no_newer_message_along(mut world: World) {
    let old = world.session().await;
    world.say(&old, "before").await;
    world.checkpoint(&old, "held").await;
    let restoring = world.restoring(&old, 6, 5);
    world.wait(A_MOMENT);
    world.say(&old, "new").await;
    world.publish(&old, 2).await;
    let restoring = Restore { create: world.creating(), now: world.now, ..restoring };
    let new = new_id(world.store.restore(restoring).await.unwrap());
    assert_eq!((world.seqs(&new).await, world.waiting(&new).await), (vec![1, 2, 3], vec![2]));
    assert_eq!(world.say(&new, "next").await, InSeq::new(3));
}

/// The same when the numbering has passed the snapshot's since: its client must not go on after a number that
/// means another event by now.
pub async fn a_session_whose_future_was_lost_says_so_to_later_snapshots(mut world: World) {
    let old = world.session().await;
    world.publish(&old, 1).await;
    let restoring = world.restoring(&old, 3, 0);
    world.wait(A_MOMENT);
    world.publish(&old, 5).await;
    let before = world.record(&old).await;
    let restoring = Restore { create: world.creating(), now: world.now, ..restoring };
    let new = new_id(world.store.restore(restoring).await.unwrap());
    assert_eq!(world.seqs(&new).await, [1, 2, 3, 4, 5, 6]);
    let after = world.record(&old).await;
    assert_ne!(after.epoch, before.epoch, "positions of the epoch before mean nothing any more");
}

/// A session that is to be made, changed.
fn of(world: &World, change: impl FnOnce(&mut About)) -> Create {
    let mut create = world.creating();
    change(&mut create.about);
    create
}

/// Makes a session with a few events.
async fn made(world: &World, create: Create) -> SessionId {
    let id = create.about.id.clone();
    world.store.create(create).await.unwrap();
    world.checkpoint(&id, "held").await;
    world.publish(&id, 2).await;
    id
}

fn new_id(restored: Restoration) -> SessionId {
    match restored {
        Restoration::Made { record, .. } => record.id().clone(),
        Restoration::Joined(record) => panic!("joined {}", record.id()),
    }
}

fn sealed_here(world: &World, id: &SessionId) -> Origin {
    origin(world, id, world.now, true)
}

fn sealed_elsewhere(world: &World, id: &SessionId, created_at: Timestamp) -> Origin {
    origin(world, id, created_at, false)
}

fn origin(world: &World, id: &SessionId, created_at: Timestamp, in_this_store: bool) -> Origin {
    let (here, ann) = (world.store.identity(), super::world::ann());
    let store = if in_this_store { here.mark() } else { StoreIdentity::new([9; 16]).mark() };
    Origin::Sealed {
        created_at,
        in_this_store,
        stand_in: here.stand_in(&store, id, &ann, created_at),
    }
}

async fn refused_and_unchanged(world: &World, restoring: Restore<Body>, session: &SessionId) {
    let (from, unmade) = (restoring.from.clone(), restoring.create.about.id.clone());
    let all = [session, &from];
    let before: Vec<Record> = [world.record(all[0]).await, world.record(all[1]).await].into();
    let refused = refusal(world.store.restore(restoring).await);
    assert_eq!(refused, RestoreRefused::Foreign { session: session.clone() });
    assert_eq!([world.record(all[0]).await, world.record(all[1]).await].to_vec(), before);
    assert_eq!(world.store.session(&unmade).await, Ok(None));
}
