//! What a crash leaves of the audit trail and of the numbers that bound it and the sessions.

use rejoin_core::codes::Reason;
use rejoin_core::limits::TOKEN_GRACE;
use rejoin_core::state::NoRoom;

use super::attempts::{attaching, renewing, trail};
use super::audit::record;
use super::room::{creating, made};
use super::world::{bob, refusal};
use super::{AUDIT_MAX, World};
use crate::CreateRefused;

/// What a crash leaves: the use of the token and its record, or neither.
pub async fn a_record_is_there_after_a_crash_as_what_it_is_about(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, attaching(&world, &id, "one", "two")).await.unwrap();
    let before = trail(&world).await;
    world.crash().await;
    assert_eq!((before.len(), trail(&world).await), (1, before));
    world.wait(TOKEN_GRACE * 2);
    world.store.renew(&id, renewing(&world, &id, "one", "x")).await.unwrap_err();
    world.crash().await;
    assert_eq!(trail(&world).await[0].reason, Reason::TokenReused);
}

pub async fn the_largest_share_of_the_trail_gives_way_after_a_crash_too(mut world: World) {
    let loud = |number| {
        let mut record = record(&world, None, number);
        record.attempt.principal = bob();
        record
    };
    let quiet = record(&world, None, 100);
    let loud: Vec<_> = (0..2 * AUDIT_MAX).map(loud).collect();
    world.store.audit(quiet.clone()).await.unwrap();
    for (number, record) in loud.into_iter().enumerate() {
        if number == AUDIT_MAX {
            world.crash().await;
        }
        world.store.audit(record).await.unwrap();
    }
    let left = trail(&world).await;
    assert_eq!((left.len(), left.last()), (AUDIT_MAX, Some(&quiet)));
}

pub async fn room_is_counted_on_from_what_a_crash_left(mut world: World) {
    let id = made(&world, 2).await;
    made(&world, 2).await;
    world.close(&id).await;
    world.crash().await;
    made(&world, 2).await;
    let refused = refusal(world.store.create(creating(&world, 9, 2)).await);
    assert_eq!(refused, CreateRefused::NoRoom(NoRoom::Principal));
}
