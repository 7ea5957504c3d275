//! How many sessions there may be: checked as one is made, so that it holds for any number of callers at once.

use std::sync::Arc;

use rejoin_core::SessionId;
use rejoin_core::record::About;
use rejoin_core::state::{Create, NoRoom, Restore, RestoreRefused, Room};
use tokio::task::JoinSet;

use super::World;
use super::world::{ann, bob, refusal};
use crate::CreateRefused;

pub async fn of_many_made_at_once_as_many_are_as_there_is_room_for(world: World) {
    let mut makers = JoinSet::new();
    for _ in 0..40 {
        let (store, create) = (Arc::clone(&world.store), creating(&world, 100, 10));
        makers.spawn(async move { store.create(create).await.is_ok() });
    }
    let made = makers.join_all().await.into_iter().filter(|made| *made).count();
    assert_eq!(made, 10);
    assert_eq!(world.store.count(Some(&ann())).await, Ok(10));
}

pub async fn there_is_a_bound_for_all_and_one_for_each_principal(world: World) {
    let make = async |create| world.store.create(create).await;
    make(creating(&world, 2, 1)).await.unwrap();
    let refused = refusal(make(creating(&world, 2, 1)).await);
    assert_eq!(refused, CreateRefused::NoRoom(NoRoom::Principal));
    make(of_bob(creating(&world, 2, 1))).await.unwrap();
    let refused = refusal(make(of_bob(creating(&world, 2, 9))).await);
    assert_eq!(refused, CreateRefused::NoRoom(NoRoom::Server));
}

pub async fn a_session_that_ends_makes_room(world: World) {
    let id = made(&world, 1).await;
    world.store.create(creating(&world, 9, 1)).await.unwrap_err();
    world.close(&id).await;
    let next = made(&world, 1).await;
    world.store.create(creating(&world, 9, 1)).await.unwrap_err();
    let restoring = Restore { create: creating(&world, 1, 1), ..world.restoring(&next, 0, 0) };
    world.store.restore(restoring).await.unwrap(); // one that lives makes room for the one that goes on
    assert_eq!(world.store.count(None).await, Ok(1));
    world.store.create(creating(&world, 9, 1)).await.unwrap_err();
}

pub async fn going_on_from_a_session_that_is_gone_needs_room(world: World) {
    made(&world, 1).await;
    let gone = super::world::session_id("sess_gone");
    let restoring = Restore { create: creating(&world, 9, 1), ..world.restoring(&gone, 0, 0) };
    let refused = refusal(world.store.restore(restoring).await);
    assert_eq!(refused, RestoreRefused::NoRoom(NoRoom::Principal));
    assert_eq!(world.store.session(&gone).await, Ok(None));
    let restoring = Restore { create: creating(&world, 9, 2), ..world.restoring(&gone, 0, 0) };
    world.store.restore(restoring).await.unwrap();
}

pub(super) fn creating(world: &World, all: usize, of_principal: usize) -> Create {
    Create { room: Room { all, of_principal }, ..world.creating() }
}

fn of_bob(create: Create) -> Create {
    Create { about: About { principal: bob(), ..create.about }, ..create }
}

pub(super) async fn made(world: &World, room: usize) -> SessionId {
    let record = world.store.create(creating(world, room, room)).await.unwrap();
    record.id().clone()
}
