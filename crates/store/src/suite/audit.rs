//! The audit trail: newest first, page by page, within its bound.

use rejoin_core::SessionId;
use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;

use super::world::{A_MOMENT, REMEMBER, ann, bob, session_id};
use super::{AUDIT_MAX, World};
use crate::audit::{AuditPage, AuditQuery, AuditRecord};

pub async fn the_trail_is_read_newest_first(world: World) {
    assert_eq!(world.store.audit_trail(&page_of(9)).await, Ok(AuditPage::default()));
    write(&world, &[None, None, None]).await;
    let page = world.store.audit_trail(&page_of(9)).await.unwrap();
    assert_eq!((actions(&page), page.next), (vec![2, 1, 0], None));
}

pub async fn audit_records_come_back_as_they_were_written(world: World) {
    let plain = record(&world, None, 0);
    let attempt = Attempt {
        at: world.now + A_MOMENT,
        session_id: Some(session_id("sess_that.never~existed")),
        principal: bob(),
        address: Some("[2001:db8::1]:443".into()),
        transport: "websocket".into(),
        action: "reconnect".into(),
    };
    let full = AuditRecord { attempt, reason: Reason::TokenReused };
    for record in [&plain, &full] {
        world.store.audit(record.clone()).await.unwrap();
    }
    let page = world.store.audit_trail(&page_of(9)).await.unwrap();
    assert_eq!(page.records, [full, plain]);
}

pub async fn every_reason_can_be_written_down(world: World) {
    for reason in Reason::ALL {
        let record = AuditRecord { reason: *reason, ..record(&world, None, 0) };
        world.store.audit(record).await.unwrap();
        let page = world.store.audit_trail(&page_of(1)).await.unwrap();
        assert_eq!(page.records[0].reason, *reason);
    }
}

pub async fn the_trail_is_read_page_by_page(world: World) {
    write(&world, &[None; 5]).await;
    let first = world.store.audit_trail(&page_of(2)).await.unwrap();
    assert_eq!(actions(&first), [4, 3]);
    write(&world, &[None]).await; // what is new does not shift the pages that follow
    let second = world.store.audit_trail(&before(first.next)).await.unwrap();
    assert_eq!(actions(&second), [2, 1]);
    let third = world.store.audit_trail(&before(second.next)).await.unwrap();
    assert_eq!((actions(&third), third.next), (vec![0], None));
}

pub async fn a_page_that_ends_with_the_trail_has_no_next(world: World) {
    write(&world, &[None; 4]).await;
    let first = world.store.audit_trail(&page_of(2)).await.unwrap();
    let second = world.store.audit_trail(&before(first.next)).await.unwrap();
    assert_eq!((actions(&second), second.next), (vec![1, 0], None));
}

pub async fn a_page_of_the_trail_ends_early_where_its_records_are_large(world: World) {
    write(&world, &[None; 5]).await;
    let bytes = record(&world, None, 0).shown_bytes();
    let large = AuditQuery { max_bytes: 2 * bytes, ..page_of(9) };
    let first = world.store.audit_trail(&large).await.unwrap();
    assert_eq!(actions(&first), [4, 3]);
    let second = AuditQuery { before: first.next, max_bytes: 1, ..page_of(9) };
    let second = world.store.audit_trail(&second).await.unwrap();
    assert_eq!(actions(&second), [2], "one is there however large");
    let third = AuditQuery { before: second.next, ..large };
    let third = world.store.audit_trail(&third).await.unwrap();
    assert_eq!((actions(&third), third.next), (vec![1, 0], None));
}

pub async fn the_trail_of_one_session_is_read_alone(world: World) {
    let (a, b) = (session_id("sess_a"), session_id("sess_b"));
    write(&world, &[Some(&a), Some(&b), None, Some(&a), Some(&b), Some(&a)]).await;
    let query = AuditQuery { session_id: Some(a), ..page_of(2) };
    let first = world.store.audit_trail(&query).await.unwrap();
    assert_eq!(actions(&first), [5, 3]);
    let further = AuditQuery { before: first.next, ..query.clone() };
    let second = world.store.audit_trail(&further).await.unwrap();
    assert_eq!((actions(&second), second.next), (vec![0], None));
    let other = AuditQuery { session_id: Some(session_id("sess_c")), ..query };
    assert!(world.store.audit_trail(&other).await.unwrap().records.is_empty());
}

pub async fn the_trail_keeps_to_its_bound_and_loses_the_oldest(world: World) {
    write(&world, &[None; AUDIT_MAX]).await;
    let first = world.store.audit_trail(&page_of(2)).await.unwrap();
    assert_eq!(actions(&first), [7, 6]);
    write(&world, &[None; 3]).await;
    let page = world.store.audit_trail(&page_of(99)).await.unwrap();
    assert_eq!(page.records.len(), AUDIT_MAX);
    assert_eq!((actions(&page), page.next), (vec![2, 1, 0, 7, 6, 5, 4, 3], None));
    let further = AuditQuery { limit: 99, ..before(first.next) };
    let further = world.store.audit_trail(&further).await.unwrap();
    assert_eq!((actions(&further), further.next), (vec![5, 4, 3], None));
}

/// Forgetting is for sessions. What was tried with them stays on record.
pub async fn the_trail_of_a_forgotten_session_stays(world: World) {
    let id = world.session().await;
    write(&world, &[Some(&id)]).await;
    world.close(&id).await;
    world.store.forget(&id, world.now + REMEMBER).await.unwrap();
    assert_eq!(world.store.session(&id).await, Ok(None));
    let query = AuditQuery { session_id: Some(id), ..page_of(9) };
    assert_eq!(world.store.audit_trail(&query).await.unwrap().records.len(), 1);
}

/// An attempt that is known by its number.
pub(super) fn record(world: &World, session_id: Option<&SessionId>, number: usize) -> AuditRecord {
    let attempt = Attempt {
        at: world.now,
        session_id: session_id.cloned(),
        principal: ann(),
        address: None,
        transport: "http".into(),
        action: number.to_string().into(),
    };
    AuditRecord { attempt, reason: Reason::Reconnected }
}

/// Writes one record for each, numbered from zero.
async fn write(world: &World, sessions: &[Option<&SessionId>]) {
    for (number, id) in sessions.iter().enumerate() {
        world.store.audit(record(world, *id, number)).await.unwrap();
    }
}

fn page_of(limit: usize) -> AuditQuery {
    AuditQuery { limit, ..AuditQuery::default() }
}

fn before(place: Option<u64>) -> AuditQuery {
    assert!(place.is_some(), "there is more to read");
    AuditQuery { before: place, ..page_of(2) }
}

fn actions(page: &AuditPage) -> Vec<usize> {
    page.records.iter().map(|record| record.attempt.action.parse().unwrap()).collect()
}
