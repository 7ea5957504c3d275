//! Making sessions and listing them.

use std::sync::Arc;

use rejoin_core::record::{About, Kind, Record, Status};
use rejoin_core::state::Create;
use rejoin_core::{Generation, InSeq, Principal, Seq, SessionId, Term};

use super::World;
use super::world::{KEEP, ann, bob, refusal, session_id};
use crate::{CreateRefused, Query};

pub async fn a_new_session_is_as_it_was_made(world: World) {
    let create = world.creating();
    let expected = Record {
        about: Arc::new(create.about.clone()),
        status: Status::Active,
        log: create.log,
        epoch: create.epoch.clone(),
        first_epoch: true,
        ack_lost: false,
        named: false,
        generation: Generation::ZERO,
        term: Term::ZERO,
        lease: None,
        attached: None,
        last_activity: world.now,
        last_seen: world.now,
        expires_at: world.now + KEEP,
        reconnect_count: 0,
        head: Seq::ZERO,
        oldest: Seq::new(1),
        acked: Seq::ZERO,
        held_bytes: 0,
        in_head: InSeq::ZERO,
        covered: InSeq::ZERO,
        snapshot: None,
    };
    let id = create.about.id.clone();
    assert_eq!(world.store.create(create).await, Ok(expected.clone()));
    assert_eq!(world.record(&id).await, expected);
    assert_eq!(world.store.session(&session_id("sess_unknown")).await, Ok(None));
}

pub async fn whatever_is_said_about_a_session_is_kept(world: World) {
    let about = About {
        principal: bob(),
        kind: Kind::Mcp,
        client: "{\"name\":\"ünï \\u0000 'quoted'\"}".into(),
        ..world.creating().about
    };
    let id = about.id.clone();
    let create = Create { about: about.clone(), ..world.creating() };
    world.store.create(create).await.unwrap();
    assert_eq!(*world.record(&id).await.about, about);
}

pub async fn an_id_is_taken_once(world: World) {
    let create = world.creating();
    let id = create.about.id.clone();
    world.store.create(create.clone()).await.unwrap();
    world.publish(&id, 2).await;
    let before = world.record(&id).await;
    assert_eq!(refusal(world.store.create(create.clone()).await), CreateRefused::Exists);
    assert_eq!(world.record(&id).await, before);
    world.close(&id).await;
    assert_eq!(refusal(world.store.create(create).await), CreateRefused::Exists);
}

pub async fn sessions_that_go_on_are_counted(world: World) {
    for (id, principal) in [("a", ann()), ("b", ann()), ("c", bob())] {
        make(&world, id, principal).await;
    }
    let count = async |principal: Option<&Principal>| world.store.count(principal).await;
    assert_eq!(count(None).await, Ok(3));
    assert_eq!(count(Some(&ann())).await, Ok(2));
    world.close(&session_id("a")).await;
    assert_eq!(count(None).await, Ok(2));
    assert_eq!(count(Some(&ann())).await, Ok(1));
    assert_eq!(count(Some(&Principal::new("nobody"))).await, Ok(0));
}

/// Byte by byte, as ids compare: an order of some language would skip sessions between two pages.
pub async fn sessions_are_listed_in_the_order_of_their_ids(world: World) {
    for id in ["b", "a_", "B", "a-", "a~", "a.", "aB", "ab", "1", "Z", "a"] {
        make(&world, id, ann()).await;
    }
    let listed = list(&world, &Query { limit: 99, ..Query::default() }).await;
    assert_eq!(listed, ["1", "B", "Z", "a", "a-", "a.", "aB", "a_", "ab", "a~", "b"]);
}

pub async fn a_listing_goes_on_after_the_last_id_of_a_page(world: World) {
    for id in ["a", "b", "c", "d", "e"] {
        make(&world, id, ann()).await;
    }
    let after =
        |after: &str| Query { after: Some(session_id(after)), limit: 2, ..Query::default() };
    assert_eq!(list(&world, &Query { limit: 2, ..Query::default() }).await, ["a", "b"]);
    assert_eq!(list(&world, &after("b")).await, ["c", "d"]);
    assert_eq!(list(&world, &after("d")).await, ["e"]);
    assert_eq!(list(&world, &after("bb")).await, ["c", "d"], "also after an id that is not there");
    assert!(list(&world, &after("e")).await.is_empty());
}

pub async fn sessions_are_listed_by_principal(world: World) {
    for (id, principal) in [("a", ann()), ("b", bob()), ("c", ann()), ("d", bob()), ("e", ann())] {
        make(&world, id, principal).await;
    }
    let of = |principal| Query { principal: Some(principal), limit: 2, ..Query::default() };
    assert_eq!(list(&world, &of(bob())).await, ["b", "d"]);
    assert_eq!(list(&world, &of(ann())).await, ["a", "c"]);
    let further = Query { after: Some(session_id("c")), ..of(ann()) };
    assert_eq!(list(&world, &further).await, ["e"]);
    assert!(list(&world, &of(Principal::new("Ann@example.org"))).await.is_empty());
    assert!(list(&world, &of(Principal::new("%"))).await.is_empty());
}

pub async fn ended_sessions_are_listed_unless_only_active_ones_are_asked_for(world: World) {
    for id in ["a", "b", "c", "d"] {
        make(&world, id, ann()).await;
    }
    world.close(&session_id("b")).await;
    let all = Query { limit: 3, ..Query::default() };
    assert_eq!(list(&world, &all).await, ["a", "b", "c"]);
    let active = Query { active_only: true, ..all };
    assert_eq!(list(&world, &active).await, ["a", "c", "d"]);
    let listed = world.store.sessions(&active).await.unwrap();
    assert_eq!(listed[0], world.record(&session_id("a")).await);
}

async fn make(world: &World, id: &str, principal: Principal) {
    let create = world.creating();
    let about = About { id: session_id(id), principal, ..create.about };
    world.store.create(Create { about, ..create }).await.unwrap();
}

async fn list(world: &World, query: &Query) -> Vec<String> {
    let records = world.store.sessions(query).await.unwrap();
    records.iter().map(Record::id).map(SessionId::to_string).collect()
}
