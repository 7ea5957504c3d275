//! The client's side: attaching, acking and going, each under its generation.

use rejoin_core::lifetime::Lifetime;
use rejoin_core::record::{Ending, Transport};
use rejoin_core::state::{Ack, AckRefused, Attach, AttachRefused, Detach, Stale, Takeover};
use rejoin_core::{Generation, Seq};

use super::World;
use super::world::{A_MOMENT, KEEP, bob, refusal, session_id};
use crate::Failure;

pub async fn attaching_raises_the_generation_by_one(world: World) {
    let id = world.session().await;
    assert_eq!(world.record(&id).await.generation, Generation::ZERO);
    for generation in 1..=3 {
        let attached = world.store.attach(&id, world.attaching()).await.unwrap();
        assert_eq!(attached.record.generation, Generation::new(generation));
        assert_eq!(attached.record, world.record(&id).await);
    }
}

pub async fn the_later_client_supersedes_the_one_before(world: World) {
    let id = world.session().await;
    let first = world.store.attach(&id, world.attaching()).await.unwrap();
    assert!(!first.superseded);
    assert_eq!(first.record.attached, Some(Transport::WebSocket));
    let over_sse = Attach { transport: Transport::Sse, ..world.attaching() };
    let second = world.store.attach(&id, over_sse).await.unwrap();
    assert!(second.superseded);
    assert_eq!(second.record.attached, Some(Transport::Sse));
    world.store.detach(&id, world.detaching(second.record.generation)).await.unwrap();
    assert!(!world.store.attach(&id, world.attaching()).await.unwrap().superseded);
}

pub async fn coming_back_is_counted_and_coming_first_is_not(world: World) {
    let id = world.session().await;
    for count in 0..3 {
        world.attach(&id).await;
        assert_eq!(world.record(&id).await.reconnect_count, count);
    }
}

pub async fn nobody_attaches_to_the_session_of_another(world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    let before = world.record(&id).await;
    let attach = Attach { principal: bob(), ..world.attaching() };
    assert_eq!(refusal(world.store.attach(&id, attach).await), AttachRefused::Foreign);
    assert_eq!(world.record(&id).await, before);
}

pub async fn a_foreign_session_says_nothing_else_of_itself(world: World) {
    let id = world.session().await;
    world.close(&id).await;
    let attach = Attach { principal: bob(), ..world.attaching_with("unknown", "next") };
    assert_eq!(refusal(world.store.attach(&id, attach).await), AttachRefused::Foreign);
}

pub async fn where_the_later_does_not_win_it_is_refused_without_a_token(world: World) {
    let id = world.session().await;
    let reject = Attach { takeover: Takeover::Reject, ..world.attaching() };
    let first = world.store.attach(&id, reject.clone()).await.unwrap();
    let before = world.record(&id).await;
    let refused = refusal(world.store.attach(&id, reject.clone()).await);
    assert_eq!(refused, AttachRefused::AlreadyAttached);
    assert_eq!(world.record(&id).await, before);
    world.store.detach(&id, world.detaching(first.record.generation)).await.unwrap();
    world.store.attach(&id, reject).await.unwrap();
}

pub async fn where_the_later_does_not_win_a_token_lets_it_in(world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    world.put_token(&id, "one").await;
    let attach = Attach { takeover: Takeover::Reject, ..world.attaching_with("one", "two") };
    let attached = world.store.attach(&id, attach).await.unwrap();
    assert!(attached.superseded && attached.token.is_some());
    assert_eq!(attached.record.generation, Generation::new(2));
}

pub async fn an_ended_session_is_not_attached_to(world: World) {
    let closed = world.session().await;
    world.close(&closed).await;
    let refused = refusal(world.store.attach(&closed, world.attaching()).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Closed));

    let expired = world.session().await;
    world.store.end(&expired, world.ending(Ending::Expired)).await.unwrap();
    let refused = refusal(world.store.attach(&expired, world.attaching()).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Expired));

    let unknown = session_id("sess_unknown");
    let nothing = world.store.attach(&unknown, world.attaching()).await.unwrap_err();
    assert_eq!(nothing, Failure::NotFound);
}

/// Its time has run out, also if no clean-up has come by yet: when that happens must not matter.
pub async fn a_session_whose_time_has_run_out_is_not_attached_to(mut world: World) {
    let id = world.session().await;
    world.wait(KEEP - A_MOMENT);
    let generation = world.attach(&id).await;
    world.store.detach(&id, world.detaching(generation)).await.unwrap();
    world.wait(KEEP);
    let refused = refusal(world.store.attach(&id, world.attaching()).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Expired));
    assert_eq!(world.record(&id).await.generation, generation);
}

pub async fn an_attached_session_does_not_run_out_of_time(mut world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    world.wait(KEEP * 100);
    assert_eq!(world.attach(&id).await, Generation::new(2));
}

pub async fn going_parks_the_session_and_sets_its_deadline(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.wait(KEEP * 2);
    let detach = Detach { lifetime: Lifetime::keeping(KEEP * 3), ..world.detaching(generation) };
    world.store.detach(&id, detach).await.unwrap();
    let record = world.record(&id).await;
    assert_eq!((record.attached, record.generation), (None, generation));
    assert_eq!((record.last_activity, record.expires_at), (world.now, world.now + KEEP * 3));
}

/// The last words of a connection that was replaced must not park the session under its successor.
pub async fn a_client_that_was_replaced_parks_nothing_when_it_goes(world: World) {
    let id = world.session().await;
    let named = world.attach(&id).await;
    let current = world.attach(&id).await;
    let before = world.record(&id).await;
    let refused = refusal(world.store.detach(&id, world.detaching(named)).await);
    assert_eq!(refused, Stale { named, current });
    assert_eq!(world.record(&id).await, before);
    let unknown = session_id("sess_unknown");
    let nothing = world.store.detach(&unknown, world.detaching(named)).await;
    assert_eq!(nothing, Err(Failure::NotFound));
}

pub async fn acks_only_grow(world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 5).await;
    for (acked, then) in [(3, 3), (1, 3), (0, 3), (5, 5), (4, 5)] {
        world.store.ack(&id, Ack { generation, seq: Seq::new(acked) }).await.unwrap();
        assert_eq!(world.record(&id).await.acked, Seq::new(then));
    }
}

pub async fn an_ack_of_what_was_never_sent_is_refused(world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 2).await;
    let (acked, head) = (Seq::new(3), Seq::new(2));
    let refused = refusal(world.store.ack(&id, Ack { generation, seq: acked }).await);
    assert_eq!(refused, AckRefused::Ahead { acked, head });
    assert_eq!(world.record(&id).await.acked, Seq::ZERO);
}

pub async fn an_ack_of_a_client_that_was_replaced_does_nothing(world: World) {
    let id = world.session().await;
    let named = world.attach(&id).await;
    world.publish(&id, 2).await;
    let current = world.attach(&id).await;
    let late = Ack { generation: named, seq: Seq::new(2) };
    let refused = refusal(world.store.ack(&id, late).await);
    assert_eq!(refused, AckRefused::Stale(Stale { named, current }));
    assert_eq!(world.record(&id).await.acked, Seq::ZERO);
    let nothing = world.store.ack(&session_id("sess_unknown"), late).await;
    assert_eq!(nothing, Err(Failure::NotFound));
}

pub async fn acks_stay_when_the_client_comes_back(world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 3).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    world.store.detach(&id, world.detaching(generation)).await.unwrap();
    world.attach(&id).await;
    assert_eq!(world.record(&id).await.acked, Seq::new(2));
    assert_eq!(world.seqs(&id).await, [1, 2, 3]);
}
