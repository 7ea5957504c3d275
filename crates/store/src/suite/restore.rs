//! Going on from a snapshot that a client kept: never undoing work, however often it is repeated.

use rejoin_core::limits::BELIEVED_PAST_SNAPSHOT;
use rejoin_core::record::{Ending, Record, Status};
use rejoin_core::state::{Ack, AttachRefused, Entered, Restore, RestoreRefused};
use rejoin_core::{Generation, InSeq, Seq, SessionId, Term};

use super::World;
use super::world::{KEEP, REMEMBER, refusal, session_id};
use crate::Restoration;

pub async fn a_living_session_hands_all_it_has_to_the_new_one(world: World) {
    let old = world.session().await;
    let generation = world.attach(&old).await;
    send(&world, &old, "m1").await;
    world.checkpoint(&old, "held").await;
    send(&world, &old, "m2").await;
    world.publish(&old, 3).await;
    world.store.ack(&old, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    let before = world.record(&old).await;

    let restore = world.restoring(&old, 1, 1);
    let (about, epoch) = (restore.create.about.clone(), restore.create.epoch.clone());
    let record = world.store.restore(restore).await.unwrap().into_record();
    let new = record.id().clone();
    assert_eq!(record, world.record(&new).await);
    assert_eq!((&*record.about, record.epoch, record.log), (&about, epoch, before.log));
    assert_eq!(
        (record.head, record.oldest, record.acked),
        (before.head, before.oldest, before.acked)
    );
    assert_eq!((record.in_head, record.covered), (before.in_head, before.covered));
    assert_eq!((record.generation, record.term), (Generation::ZERO, Term::ZERO));
    assert_eq!(record.expires_at, world.now + KEEP);

    assert_eq!((world.seqs(&new).await, world.waiting(&new).await), (vec![1, 2, 3, 4], vec![2]));
    assert_eq!(world.state(&new).await.as_deref(), Some("held"));
    assert!(send(&world, &new, "m1").await.duplicate && send(&world, &new, "m2").await.duplicate);
    world.publish(&new, 1).await;
    assert_eq!(world.seqs(&new).await, [1, 2, 3, 4, 5]);
    assert_eq!(world.say(&new, "next").await, InSeq::new(3));
}

/// Never two copies at work: whoever still holds the old session learns where it went.
pub async fn the_old_session_ends_and_says_where_it_goes_on(world: World) {
    let old = world.session().await;
    world.attach(&old).await;
    world.checkpoint(&old, "held").await;
    let new = restore(&world, &old, 1, 1).await;
    let record = world.record(&old).await;
    let (ending, at) = (Ending::Restored { to: new }, world.now);
    let forget_at = world.now + REMEMBER;
    assert_eq!(record.status, Status::Ended { ending: ending.clone(), at, forget_at });
    assert_eq!((record.attached, &record.lease, record.snapshot), (None, &None, None));
    assert!(world.seqs(&old).await.is_empty() && world.state(&old).await.is_none());
    let refused = refusal(world.store.attach(&old, world.attaching()).await);
    assert_eq!(refused, AttachRefused::Ended(ending));
}

/// Nobody has cleaned it up yet, so the server still has its work.
pub async fn a_session_whose_time_ran_out_unnoticed_hands_over_what_it_has(mut world: World) {
    let old = world.session().await;
    world.checkpoint(&old, "held").await;
    world.publish(&old, 2).await;
    world.wait(KEEP * 2);
    let new = restore(&world, &old, 0, 0).await;
    assert_eq!(world.seqs(&new).await, [1, 2, 3]);
    assert_eq!(world.state(&new).await.as_deref(), Some("held"));
}

pub async fn an_older_snapshot_does_not_undo_the_state_that_is_held(world: World) {
    for (seq, in_seq) in [(0, 1), (1, 0), (1, 1)] {
        let old = world.session().await;
        world.say(&old, "one").await;
        world.checkpoint(&old, "held").await;
        let new = restore(&world, &old, seq, in_seq).await;
        assert_eq!(world.state(&new).await.as_deref(), Some("held"), "sealed at {seq}, {in_seq}");
        assert!(world.waiting(&new).await.is_empty());
    }
}

pub async fn a_newer_snapshot_replaces_the_state_that_is_held(world: World) {
    let old = world.session().await;
    world.checkpoint(&old, "held").await;
    for text in ["one", "two", "three"] {
        world.say(&old, text).await;
    }
    world.publish(&old, 2).await;
    let new = restore(&world, &old, 2, 2).await;
    assert_eq!(world.state(&new).await.as_deref(), Some("sealed"));
    assert_eq!((world.seqs(&new).await, world.waiting(&new).await), (vec![1, 2, 3], vec![3]));
    let mark = world.record(&new).await.snapshot.unwrap();
    assert_eq!((mark.seq, mark.in_seq, mark.at), (Seq::new(2), InSeq::new(2), world.now));
}

/// The server lost more than the client did, as with a backup that was put back. The state is used; what has
/// been said since may be unknown to the client, so it stays, and the entries are numbered on.
pub async fn a_snapshot_beyond_a_living_log_takes_no_event_out_of_it(world: World) {
    let old = world.session().await;
    world.say(&old, "one").await;
    world.publish(&old, 2).await;
    let new = restore(&world, &old, 7, 5).await;
    let record = world.record(&new).await;
    assert_eq!((record.head, record.oldest, record.held()), (Seq::new(2), Seq::new(1), 2));
    assert_eq!((record.in_head, record.covered), (InSeq::new(5), InSeq::new(5)));
    assert_eq!(record.snapshot.map(|mark| mark.seq), Some(Seq::new(2)));
    assert_eq!(world.state(&new).await.as_deref(), Some("sealed"));
    world.publish(&new, 1).await;
    assert_eq!(world.seqs(&new).await, [1, 2, 3]);
    assert_eq!(world.say(&new, "six").await, InSeq::new(6));
    assert_eq!(world.waiting(&new).await, [6]);
}

pub async fn the_same_snapshot_again_comes_back_to_the_same_session(world: World) {
    let old = world.session().await;
    world.checkpoint(&old, "held").await;
    let new = restore(&world, &old, 1, 0).await;
    world.publish(&new, 1).await;
    let before = world.record(&new).await;
    for (seq, in_seq) in [(1, 0), (0, 0), (9, 9)] {
        let again = world.restoring(&old, seq, in_seq);
        let unmade = again.create.about.id.clone();
        let joined = Restoration::Joined(Box::new(before.clone()));
        assert_eq!(world.store.restore(again).await, Ok(joined));
        assert_eq!(world.store.session(&unmade).await, Ok(None));
    }
    assert_eq!(world.record(&new).await, before);
}

pub async fn snapshots_of_one_line_meet_in_its_last_session(world: World) {
    let first = world.session().await;
    world.publish(&first, 1).await;
    let second = restore(&world, &first, 1, 0).await;
    let third = restore(&world, &second, 1, 0).await;
    assert_eq!(restore(&world, &first, 1, 0).await, third);
    assert_eq!(restore(&world, &second, 1, 0).await, third);
    assert_eq!(world.seqs(&third).await, [1]);
}

pub async fn a_session_that_was_closed_is_not_brought_back(world: World) {
    let old = world.session().await;
    world.close(&old).await;
    assert_eq!(refused(&world, &old).await, RestoreRefused::Superseded);
}

/// A snapshot may outlive the memory of its session: `state_ttl` may have been longer when it was sealed.
pub async fn a_closed_session_is_not_brought_back_once_it_was_forgotten(mut world: World) {
    let (old, other) = (world.session().await, world.session().await);
    let sealed = world.restoring(&old, 0, 0);
    world.close(&old).await;
    world.store.end(&other, world.ending(Ending::Expired)).await.unwrap();
    world.wait(REMEMBER);
    for id in [&old, &other] {
        world.store.forget(id, world.now).await.unwrap();
        assert_eq!(world.store.session(id).await, Ok(None));
    }
    assert_eq!(refusal(world.store.restore(sealed).await), RestoreRefused::Superseded);
    let later = Restore { taken_at: world.now, ..world.restoring(&other, 0, 0) };
    assert!(world.store.restore(later).await.is_ok(), "what was taken since was not closed");
}

pub async fn a_snapshot_before_a_forgotten_successor_is_not_brought_back(mut world: World) {
    let old = world.session().await;
    let sealed = world.restoring(&old, 0, 0);
    let new = restore(&world, &old, 0, 0).await;
    world.close(&new).await;
    world.wait(REMEMBER);
    for id in [&old, &new] {
        world.store.forget(id, world.now).await.unwrap();
    }
    assert_eq!(refusal(world.store.restore(sealed).await), RestoreRefused::Superseded);
}

pub async fn a_session_whose_successor_was_closed_is_not_brought_back(world: World) {
    let old = world.session().await;
    let new = restore(&world, &old, 0, 0).await;
    world.close(&new).await;
    assert_eq!(refused(&world, &old).await, RestoreRefused::Superseded);
    assert_eq!(refused(&world, &new).await, RestoreRefused::Superseded);
}

pub async fn a_session_whose_successor_has_gone_is_not_brought_back(mut world: World) {
    let old = world.session().await;
    let restoring = Restore { remember_for: KEEP * 9, ..world.restoring(&old, 0, 0) };
    let new = world.store.restore(restoring).await.unwrap().into_record().id().clone();
    world.wait(KEEP);
    assert_eq!(refused(&world, &old).await, RestoreRefused::Superseded, "its time ran out");
    world.store.end(&new, world.ending(Ending::Expired)).await.unwrap();
    assert_eq!(refused(&world, &old).await, RestoreRefused::Superseded, "it has expired");
    world.wait(REMEMBER);
    world.store.forget(&new, world.now).await.unwrap();
    assert_eq!(refused(&world, &old).await, RestoreRefused::Superseded, "it was forgotten");
}

pub async fn an_expired_session_is_made_anew_from_the_sealed_state(world: World) {
    let old = world.session().await;
    world.publish(&old, 3).await;
    world.store.end(&old, world.ending(Ending::Expired)).await.unwrap();
    let new = restore(&world, &old, 5, 2).await;
    let record = world.record(&new).await;
    assert_eq!((record.head, record.oldest), (Seq::new(5), Seq::new(6)));
    assert_eq!((record.in_head, record.covered), (InSeq::new(2), InSeq::new(2)));
    assert_eq!(world.state(&new).await.as_deref(), Some("sealed"));
    assert_eq!(ending(&world.record(&old).await), Some(Ending::Restored { to: new.clone() }));
    assert_eq!(restore(&world, &old, 5, 2).await, new);
}

/// The events are gone, but some client may have seen them: their seqs are not given out again.
pub async fn an_expired_session_is_numbered_on_from_where_it_was(world: World) {
    let old = world.session().await;
    for text in ["one", "two"] {
        world.say(&old, text).await;
    }
    world.publish(&old, 9).await;
    world.store.end(&old, world.ending(Ending::Expired)).await.unwrap();
    let new = restore(&world, &old, 4, 1).await;
    let record = world.record(&new).await;
    assert_eq!((record.head, record.in_head), (Seq::new(9), InSeq::new(2)));
    assert_eq!(record.snapshot.map(|mark| mark.seq), Some(Seq::new(4)));
    world.publish(&new, 1).await;
    assert_eq!(world.seqs(&new).await, [10]);
}

/// A client that goes on from its snapshot sends again whatever it got no answer for. What was dealt
/// with is not done again; what went with the in log is entered anew.
pub async fn an_expired_session_still_knows_the_messages_that_were_dealt_with(world: World) {
    let old = world.session().await;
    send(&world, &old, "m1").await;
    world.checkpoint(&old, "after m1").await;
    send(&world, &old, "m2").await;
    world.store.end(&old, world.ending(Ending::Expired)).await.unwrap();
    let new = restore(&world, &old, 1, 1).await;
    assert!(send(&world, &new, "m1").await.duplicate);
    assert!(world.waiting(&new).await.is_empty());
    assert!(!send(&world, &new, "m2").await.duplicate);
    assert_eq!(world.waiting(&new).await, [3]);
}

pub async fn an_unknown_session_is_made_from_the_sealed_state_once(mut world: World) {
    let forgotten = session_id("sess_forgotten");
    let restoring = world.restoring(&forgotten, 5, 2);
    let about = restoring.create.about.clone();
    let record = world.store.restore(restoring).await.unwrap().into_record();
    assert_eq!(*record.about, about);
    assert_eq!((record.head, record.in_head), (Seq::new(5), InSeq::new(2)));
    assert_eq!(world.state(&about.id).await.as_deref(), Some("sealed"));
    assert_eq!(restore(&world, &forgotten, 5, 2).await, about.id);

    let trace = world.record(&forgotten).await;
    assert_eq!(ending(&trace), Some(Ending::Restored { to: about.id }));
    assert_eq!(trace.about.principal, about.principal);
    world.wait(REMEMBER);
    world.store.forget(&forgotten, world.now).await.unwrap();
    assert_eq!(world.store.session(&forgotten).await, Ok(None));
}

pub async fn what_the_client_has_seen_is_not_numbered_again(world: World) {
    let seen = |seq, restoring| Restore { last_seq: Some(Seq::new(seq)), ..restoring };
    let unknown = world.restoring(&session_id("sess_forgotten"), 10, 0);
    let record = world.store.restore(seen(50, unknown)).await.unwrap().into_record();
    assert_eq!((record.head, record.oldest), (Seq::new(50), Seq::new(51)));

    let old = world.session().await;
    world.publish(&old, 3).await;
    let record =
        world.store.restore(seen(20, world.restoring(&old, 1, 0))).await.unwrap().into_record();
    let held = (record.head, record.oldest, record.held());
    assert_eq!(held, (Seq::new(3), Seq::new(1), 3), "a living session loses nothing by a claim");

    let old = world.session().await;
    world.publish(&old, 3).await;
    let record =
        world.store.restore(seen(2, world.restoring(&old, 1, 0))).await.unwrap().into_record();
    assert_eq!((record.head, record.oldest), (Seq::new(3), Seq::new(1)));
}

pub async fn a_claim_that_can_not_be_true_is_refused(world: World) {
    let old = world.session().await;
    world.publish(&old, 3).await;
    let before = world.record(&old).await;
    let claim = |past: u64| Restore {
        last_seq: Some(Seq::new(2 + BELIEVED_PAST_SNAPSHOT + past)),
        ..world.restoring(&old, 2, 0)
    };
    let claimed = claim(1);
    let refused = refusal(world.store.restore(claimed.clone()).await);
    let (claimed, seq) = (claimed.last_seq.unwrap(), claimed.seq);
    assert_eq!(refused, RestoreRefused::Implausible { claimed, seq });
    assert_eq!(world.record(&old).await, before);
    let record = world.store.restore(claim(0)).await.unwrap().into_record();
    assert_eq!(record.head, before.head);
}

/// Brings a snapshot; the session in which its line goes on.
async fn restore(world: &World, from: &SessionId, seq: u64, in_seq: u64) -> SessionId {
    world
        .store
        .restore(world.restoring(from, seq, in_seq))
        .await
        .unwrap()
        .into_record()
        .id()
        .clone()
}

/// Brings a snapshot in vain, which makes nothing.
async fn refused(world: &World, from: &SessionId) -> RestoreRefused {
    let restoring = world.restoring(from, 0, 0);
    let unmade = restoring.create.about.id.clone();
    let refused = refusal(world.store.restore(restoring).await);
    assert_eq!(world.store.session(&unmade).await, Ok(None));
    refused
}

async fn send(world: &World, id: &SessionId, message_id: &str) -> Entered {
    let message = world.entering(Some(message_id), "text");
    world.store.enter(id, message).await.unwrap()
}

fn ending(record: &Record) -> Option<Ending> {
    match &record.status {
        Status::Active => None,
        Status::Ended { ending, .. } => Some(ending.clone()),
    }
}
