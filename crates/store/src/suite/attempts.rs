//! Attempts in the audit trail: written in the same commit as what they changed.

use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::limits::TOKEN_GRACE;
use rejoin_core::state::{Attach, Renew, Restore};
use rejoin_core::{Principal, SessionId};

use super::world::{KEEP, ann, bob, refusal};
use super::{AUDIT_MAX, World};
use crate::audit::{AuditQuery, AuditRecord, RevokesTokens as _};

pub async fn the_use_of_a_token_is_in_the_trail(world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, attaching(&world, &id, "one", "two")).await.unwrap();
    assert_eq!(trail(&world).await, [record(&world, &id, Reason::Reconnected)]);
    world.store.renew(&id, renewing(&world, &id, "two", "three")).await.unwrap();
    assert_eq!(trail(&world).await.len(), 2);
    world.store.attach(&id, world.attaching()).await.unwrap();
    assert_eq!(trail(&world).await.len(), 2, "without an attempt there is nothing to write");
}

pub async fn the_revocation_by_a_reused_token_is_in_the_trail(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.renew(&id, renewing(&world, &id, "one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE * 2);
    assert!(
        refusal(world.store.renew(&id, renewing(&world, &id, "one", "x")).await).revokes_tokens()
    );
    assert!(
        refusal(world.store.attach(&id, attaching(&world, &id, "one", "x")).await).revokes_tokens()
    );
    let reused = record(&world, &id, Reason::TokenReused);
    assert_eq!(trail(&world).await[..2], [reused.clone(), reused]);
}

/// The caller writes those down: it may have more to say than the store knows.
pub async fn a_refusal_that_changes_nothing_is_not_in_the_trail(world: World) {
    let id = world.session().await;
    let foreign = Attach { principal: bob(), ..attaching(&world, &id, "never", "x") };
    world.store.attach(&id, foreign).await.unwrap_err();
    world.store.attach(&id, attaching(&world, &id, "never", "x")).await.unwrap_err();
    world.store.renew(&id, renewing(&world, &id, "never", "x")).await.unwrap_err();
    world.close(&id).await;
    world.store.attach(&id, attaching(&world, &id, "never", "x")).await.unwrap_err();
    assert_eq!(trail(&world).await, []);
}

pub async fn a_restore_is_in_the_trail_if_it_makes_a_session(world: World) {
    let old = world.session().await;
    let attempt = Some(Box::new(attempt(&world, &old)));
    let restoring = Restore { attempt, ..world.restoring(&old, 0, 0) };
    world.store.restore(restoring.clone()).await.unwrap();
    assert_eq!(trail(&world).await, [record(&world, &old, Reason::Reconnected)]);
    let again = Restore { create: world.creating(), ..restoring };
    world.store.restore(again).await.unwrap();
    assert_eq!(trail(&world).await.len(), 1, "it came back to the session that was made");
}

pub async fn no_caller_pushes_anothers_records_out_of_the_trail(world: World) {
    let write = async |principal: Principal, address: &str, number: usize| {
        let mut record = super::audit::record(&world, None, number);
        (record.attempt.principal, record.attempt.address) = (principal, Some(address.into()));
        world.store.audit(record).await.unwrap();
    };
    write(ann(), "192.0.2.1", 100).await;
    write(bob(), "192.0.2.2", 101).await;
    for number in 0..10 * AUDIT_MAX {
        write(bob(), "192.0.2.1", number).await;
    }
    let left: Vec<usize> = trail(&world)
        .await
        .iter()
        .rev()
        .map(|record| record.attempt.action.parse().unwrap())
        .collect();
    assert_eq!(left[..2], [100, 101]);
    assert_eq!(left[2..], [74, 75, 76, 77, 78, 79]);
}

fn attempt(world: &World, id: &SessionId) -> Attempt {
    Attempt {
        at: world.now,
        session_id: Some(id.clone()),
        principal: ann(),
        address: Some("192.0.2.1".into()),
        transport: "http".into(),
        action: "reconnect".into(),
    }
}

fn record(world: &World, id: &SessionId, reason: Reason) -> AuditRecord {
    AuditRecord { attempt: attempt(world, id), reason }
}

pub(super) fn attaching(world: &World, id: &SessionId, word: &str, successor: &str) -> Attach {
    let attempt = Some(Box::new(attempt(world, id)));
    Attach { attempt, ..world.attaching_with(word, successor) }
}

pub(super) fn renewing(world: &World, id: &SessionId, word: &str, successor: &str) -> Renew {
    let (token, attempt) = (world.using(word, successor), Some(Box::new(attempt(world, id))));
    Renew { principal: ann(), token, attempt, keep_for: KEEP, now: world.now }
}

/// The whole trail, newest first.
pub(super) async fn trail(world: &World) -> Vec<AuditRecord> {
    let query = AuditQuery { limit: 99, ..AuditQuery::default() };
    world.store.audit_trail(&query).await.unwrap().records
}
