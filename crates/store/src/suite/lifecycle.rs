//! How sessions end, are remembered, kept and forgotten, and how a store is closed.

use std::time::Duration;

use rejoin_core::record::{Ending, Status};
use rejoin_core::state::{Ack, Append, End, EndRefused, Keep, Renew, Stale};
use rejoin_core::{Generation, InSeq, Seq, SessionId};

use super::World;
use super::world::{A_MOMENT, KEEP, REMEMBER, ann, refusal, session_id};
use crate::audit::AuditQuery;
use crate::{Failure, PageLimit, Query, Unavailable};

pub async fn ending_deletes_the_logs_and_the_state_and_remembers_the_rest(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.say(&id, "hello").await;
    world.checkpoint(&id, "state").await;
    world.say(&id, "more").await;
    world.publish(&id, 2).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    let before = world.record(&id).await;
    world.wait(A_MOMENT);

    let ended = world.store.end(&id, world.ending(Ending::Closed)).await.unwrap();
    assert_eq!(ended, world.record(&id).await);
    let forget_at = world.now + REMEMBER;
    assert_eq!(ended.status, Status::Ended { ending: Ending::Closed, at: world.now, forget_at });
    assert_eq!((ended.attached, &ended.lease, ended.snapshot), (None, &None, None));
    assert_eq!((ended.held(), ended.held_bytes), (0, 0));
    assert_eq!(
        (ended.head, ended.acked, ended.in_head),
        (before.head, before.acked, before.in_head)
    );
    assert_eq!(
        (ended.generation, ended.term, ended.epoch),
        (generation, before.term, before.epoch)
    );
    assert_eq!(ended.about, before.about);
    assert!(world.seqs(&id).await.is_empty() && world.waiting(&id).await.is_empty());
    assert_eq!(world.state(&id).await, None);
}

pub async fn a_session_ends_once(world: World) {
    let id = world.session().await;
    world.close(&id).await;
    let before = world.record(&id).await;
    let again = world.ending(Ending::Expired);
    assert_eq!(refusal(world.store.end(&id, again.clone()).await), EndRefused::Already);
    assert_eq!(world.record(&id).await, before);
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.end(&unknown, again).await, Err(Failure::NotFound));
}

/// A clean-up decided on a session that was parked then; a client may have come back since.
pub async fn a_clean_up_leaves_a_session_alone_that_a_client_came_back_to(world: World) {
    let id = world.session().await;
    let named = world.attach(&id).await;
    world.store.detach(&id, world.detaching(named)).await.unwrap();
    let clean_up =
        |generation| End { only_parked: Some(generation), ..world.ending(Ending::Expired) };
    let current = world.attach(&id).await;
    let before = world.record(&id).await;
    let refused = refusal(world.store.end(&id, clean_up(named)).await);
    assert_eq!(refused, EndRefused::Stale(Stale { named, current }));
    let refused = refusal(world.store.end(&id, clean_up(current)).await);
    assert_eq!(refused, EndRefused::Attached);
    assert_eq!(world.record(&id).await, before);

    world.store.detach(&id, world.detaching(current)).await.unwrap();
    let refused = refusal(world.store.end(&id, clean_up(named)).await);
    assert_eq!(refused, EndRefused::Stale(Stale { named, current }));
    world.store.end(&id, clean_up(current)).await.unwrap();
}

pub async fn a_session_that_expires_does_so_only_when_its_time_has_come(mut world: World) {
    let id = world.session().await;
    let deadline = world.record(&id).await.expires_at;
    world.wait(KEEP - A_MOMENT);
    let expire = End { only_due: true, ..world.ending(Ending::Expired) };
    let refused = refusal(world.store.end(&id, expire.clone()).await);
    assert_eq!(refused, EndRefused::NotDue(deadline));
    assert!(world.record(&id).await.is_active());
    world.wait(A_MOMENT);
    let ended = world.store.end(&id, End { now: world.now, ..expire }).await.unwrap();
    assert!(!ended.is_active());
}

/// So nobody who follows from one session to the next ever comes back to where it was.
pub async fn a_session_goes_on_only_in_one_that_is_active(world: World) {
    let ids = [world.session().await, world.session().await, world.session().await];
    let into = |to: &SessionId| world.ending(Ending::Restored { to: to.clone() });
    let [a, b, c] = &ids;
    assert_eq!(world.store.end(a, into(a)).await.err(), Some(Failure::NotFound));
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.end(a, into(&unknown)).await.err(), Some(Failure::NotFound));
    let (one, other) = tokio::join!(world.store.end(a, into(b)), world.store.end(b, into(a)));
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
    let (left, stays) = if one.is_ok() { (a, b) } else { (b, a) };
    assert!(world.record(stays).await.is_active());
    assert_eq!(world.store.end(stays, into(left)).await.err(), Some(Failure::NotFound));
    world.store.end(stays, into(c)).await.unwrap();
    assert_eq!(world.store.end(c, into(left)).await.err(), Some(Failure::NotFound));
    assert!(world.record(c).await.is_active());
}

pub async fn keeping_sets_the_deadline_of_a_parked_session(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.store.detach(&id, world.detaching(generation)).await.unwrap();
    for until in [world.now + KEEP * 5, world.now + KEEP / 5] {
        world.store.keep(&id, Keep { generation, until }).await.unwrap();
        assert_eq!(world.record(&id).await.expires_at, until);
    }
    world.wait(KEEP / 5);
    world.store.attach(&id, world.attaching()).await.unwrap_err();
}

pub async fn keeping_an_older_generation_does_nothing(world: World) {
    let id = world.session().await;
    let named = world.attach(&id).await;
    let current = world.attach(&id).await;
    let before = world.record(&id).await;
    let keep = Keep { generation: named, until: world.now + KEEP * 5 };
    assert_eq!(refusal(world.store.keep(&id, keep).await), Stale { named, current });
    assert_eq!(world.record(&id).await, before);
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.keep(&unknown, keep).await, Err(Failure::NotFound));
}

pub async fn a_session_is_forgotten_only_after_its_time(mut world: World) {
    let create = world.creating();
    let id = create.about.id.clone();
    world.store.create(create.clone()).await.unwrap();
    world.put_token(&id, "one").await;
    world.close(&id).await;
    world.wait(REMEMBER - A_MOMENT);
    world.store.forget(&id, world.now).await.unwrap();
    assert!(!world.record(&id).await.is_active());
    world.wait(A_MOMENT);
    world.store.forget(&id, world.now).await.unwrap();
    assert_eq!(world.store.session(&id).await, Ok(None));
    assert_eq!(world.store.read(&id, Seq::ZERO, PageLimit::default()).await, Ok(None));
    world.store.forget(&id, world.now).await.unwrap();

    world.store.create(create).await.expect("its id is free again");
    let attach = world.attaching_with("one", "two");
    world.store.attach(&id, attach).await.expect_err("the tokens of its namesake are not its own");
}

pub async fn a_session_that_goes_on_is_not_forgotten(mut world: World) {
    let id = world.session().await;
    world.publish(&id, 1).await;
    world.wait(KEEP * 100);
    world.store.forget(&id, world.now).await.unwrap();
    assert!(world.record(&id).await.is_active());
    assert_eq!(world.seqs(&id).await, [1]);
}

/// Times stop at the end of the calendar instead of wrapping; a store must be able to keep that one.
pub async fn a_session_may_be_kept_for_ever(mut world: World) {
    let mut create = world.creating();
    create.keep_for = Duration::MAX;
    let id = create.about.id.clone();
    let for_ever = world.store.create(create).await.unwrap().expires_at;
    assert_eq!(for_ever.as_millis(), u64::MAX);
    assert_eq!(world.record(&id).await.expires_at, for_ever);
    assert_eq!(world.store.due(world.now, 9).await.unwrap().next, Some(for_ever));
    world.wait(KEEP * 1_000_000);
    assert!(world.store.due(world.now, 9).await.unwrap().records.is_empty());
    assert_eq!(world.attach(&id).await, Generation::new(1));
}

pub async fn a_closed_store_refuses_every_call(world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    let append = Append { covers: Some(InSeq::ZERO), ..world.appending(&id).await };
    let (term, generation) = (append.term, Generation::ZERO);
    world.store.close().await.unwrap();

    let store = &world.store;
    let (query, trail) = (Query { limit: 1, ..Query::default() }, AuditQuery::default());
    let (create, restore) = (world.creating(), world.restoring(&id, 0, 0));
    let keep = Keep { generation, until: world.now };
    let ack = Ack { generation, seq: Seq::ZERO };
    let token = world.using("one", "two");
    let renew = Renew { principal: ann(), token, attempt: None, keep_for: KEEP, now: world.now };
    let message = world.entering(None, "");
    let end = world.ending(Ending::Closed);
    let audit = super::audit::record(&world, Some(&id), 0);

    refused_call(store.create(create).await);
    refused_read(store.session(&id).await);
    refused_read(store.sessions(&query).await);
    refused_read(store.due(world.now, 1).await);
    refused_call(store.attach(&id, world.attaching()).await);
    refused_call(store.detach(&id, world.detaching(generation)).await);
    refused_call(store.ack(&id, ack).await);
    refused_call(store.enter(&id, message).await);
    refused_call(store.take_lease(&id, world.taking(1)).await);
    refused_read(store.give_up_lease(&id, term).await);
    refused_call(store.append(&id, append).await);
    refused_read(store.read(&id, Seq::ZERO, PageLimit::default()).await);
    refused_read(store.entries(&id, InSeq::ZERO, 1).await);
    refused_read(store.snapshot(&id).await);
    refused_call(store.put_token(&id, world.token("two"), world.now).await);
    refused_call(store.renew(&id, renew).await);
    refused_call(store.keep(&id, keep).await);
    refused_call(store.end(&id, end).await);
    refused_read(store.forget(&id, world.now).await);
    refused_call(store.restore(restore).await);
    refused_read(store.audit(audit).await);
    refused_read(store.audit_trail(&trail).await);
}

#[track_caller]
fn refused_read<T>(result: Result<T, Unavailable>) {
    assert!(result.is_err(), "a closed store answered");
}

#[track_caller]
fn refused_call<T, R>(result: Result<T, Failure<R>>) {
    assert!(matches!(result, Err(Failure::Unavailable(_))), "a closed store answered");
}
