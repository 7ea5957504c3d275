//! The lease: at most one process runs a session's agent, and whoever lost it is fenced.

use rejoin_core::Term;
use rejoin_core::record::{Ending, Lease};
use rejoin_core::state::{Append, LeaseHeld};

use super::World;
use super::world::{A_MOMENT, LEASE, event, refusal, session_id};
use crate::Failure;

pub async fn the_first_holder_gets_term_one(world: World) {
    let id = world.session().await;
    assert_eq!(world.record(&id).await.term, Term::ZERO);
    let take = world.taking(1);
    let lease = Lease { holder: take.holder.clone(), until: world.now + LEASE };
    assert_eq!(world.store.take_lease(&id, take).await, Ok(Term::new(1)));
    let record = world.record(&id).await;
    assert_eq!((record.term, record.lease), (Term::new(1), Some(lease)));
}

pub async fn the_holder_keeps_its_term_and_extends_its_lease(mut world: World) {
    let id = world.session().await;
    world.lease(&id).await;
    for pause in [LEASE / 2, LEASE * 5] {
        world.wait(pause);
        assert_eq!(world.lease(&id).await, Term::new(1));
        assert_eq!(world.record(&id).await.lease.unwrap().until, world.now + LEASE);
    }
}

pub async fn another_process_waits_until_the_lease_has_run_out(mut world: World) {
    let id = world.session().await;
    world.lease(&id).await;
    let lease = world.record(&id).await.lease.unwrap();
    world.wait(LEASE - A_MOMENT);
    let refused = refusal(world.store.take_lease(&id, world.taking(2)).await);
    assert_eq!(refused, LeaseHeld::ByOther(lease));
    world.wait(A_MOMENT);
    assert_eq!(world.store.take_lease(&id, world.taking(2)).await, Ok(Term::new(2)));
    assert!(matches!(
        refusal(world.store.take_lease(&id, world.taking(1)).await),
        LeaseHeld::ByOther(lease) if lease.holder == world.taking(2).holder
    ));
}

pub async fn a_lease_that_was_given_up_is_free_under_the_next_term(world: World) {
    let id = world.session().await;
    let term = world.lease(&id).await;
    world.store.give_up_lease(&id, term).await.unwrap();
    let record = world.record(&id).await;
    assert_eq!((record.lease, record.term), (None, term));
    assert_eq!(world.store.take_lease(&id, world.taking(2)).await, Ok(Term::new(2)));
}

pub async fn giving_up_an_older_term_does_nothing(mut world: World) {
    let id = world.session().await;
    let older = world.lease(&id).await;
    world.wait(LEASE);
    world.store.take_lease(&id, world.taking(2)).await.unwrap();
    let before = world.record(&id).await;
    world.store.give_up_lease(&id, older).await.unwrap();
    assert_eq!(world.record(&id).await, before);
    world.store.give_up_lease(&session_id("sess_unknown"), older).await.unwrap();
}

/// Two connections are told apart by the generation, two processes by the term. A client that comes
/// back must not fence the agent that works for it.
pub async fn attaching_does_not_change_the_term(world: World) {
    let id = world.session().await;
    let append = Append { events: vec![event("x")], ..world.appending(&id).await };
    world.attach(&id).await;
    world.attach(&id).await;
    assert_eq!(world.record(&id).await.term, Term::new(1));
    world.store.append(&id, append).await.unwrap();
}

pub async fn an_ended_session_has_no_lease(world: World) {
    let id = world.session().await;
    world.lease(&id).await;
    world.close(&id).await;
    assert_eq!(world.record(&id).await.lease, None);
    let refused = refusal(world.store.take_lease(&id, world.taking(1)).await);
    assert_eq!(refused, LeaseHeld::Ended(Ending::Closed));
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.take_lease(&unknown, world.taking(1)).await, Err(Failure::NotFound));
}
