//! Appending to the out log: numbering, fencing, and what goes together.

use rejoin_core::log::MessageDigest;
use rejoin_core::record::{Ending, SnapshotMark};
use rejoin_core::state::{Append, AppendRefused, Appended};
use rejoin_core::{InSeq, Seq, Term};

use super::World;
use super::world::{LEASE, event, refusal, session_id, state};
use crate::{Failure, PageLimit};

pub async fn events_are_numbered_from_one_without_holes(world: World) {
    let id = world.session().await;
    assert_eq!((world.record(&id).await.head, world.seqs(&id).await), (Seq::ZERO, vec![]));
    world.publish(&id, 3).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3]);
    let record = world.record(&id).await;
    assert_eq!((record.head, record.oldest, record.held()), (Seq::new(3), Seq::new(1), 3));
}

pub async fn several_events_in_one_append_keep_their_order(world: World) {
    let id = world.session().await;
    world.publish(&id, 1).await;
    let events = ["b", "c", "d"].map(event).to_vec();
    let append = Append { events, ..world.appending(&id).await };
    let appended = world.store.append(&id, append).await.unwrap();
    assert_eq!(
        appended,
        Appended {
            head: Seq::new(4),
            covered: InSeq::ZERO,
            snapshot: None,
            named: false,
            before: None,
        }
    );
    let page = world.store.read(&id, Seq::new(1), PageLimit::default()).await.unwrap().unwrap();
    let read: Vec<_> = page.events.iter().map(|e| (e.seq.get(), &*e.body)).collect();
    assert_eq!(read, [(2, &b"b"[..]), (3, b"c"), (4, b"d")]);
}

pub async fn sessions_are_numbered_apart(world: World) {
    let (one, other) = (world.session().await, world.session().await);
    world.publish(&one, 3).await;
    world.publish(&other, 1).await;
    assert_eq!(world.seqs(&one).await, [1, 2, 3]);
    assert_eq!(world.seqs(&other).await, [1]);
}

pub async fn events_carry_the_time_they_were_appended_at(mut world: World) {
    let id = world.session().await;
    let start = world.now;
    world.publish(&id, 1).await;
    world.wait(LEASE / 2);
    world.publish(&id, 1).await;
    let page = world.store.read(&id, Seq::ZERO, PageLimit::default()).await.unwrap().unwrap();
    let times: Vec<_> = page.events.iter().map(|event| event.at).collect();
    assert_eq!(times, [start, start + LEASE / 2]);
}

pub async fn append_anywhere_but_at_the_head_is_refused(world: World) {
    let id = world.session().await;
    world.publish(&id, 2).await;
    for named in [0, 1, 2, 4, 99].map(Seq::new) {
        let append =
            Append { first: named, events: vec![event("x")], ..world.appending(&id).await };
        let expected = Seq::new(3);
        let refused = refusal(world.store.append(&id, append).await);
        assert_eq!(refused, AppendRefused::NotAtHead { named, expected });
    }
    assert_eq!(world.seqs(&id).await, [1, 2]);
}

/// Whoever lost the lease may still believe to have it: neither its events nor its state count.
pub async fn append_of_a_fenced_term_is_refused_with_its_state(mut world: World) {
    let id = world.session().await;
    world.say(&id, "hello").await;
    world.checkpoint(&id, "good").await;
    world.say(&id, "again").await;
    let late = Append {
        events: vec![event("late")],
        snapshot: Some(state("late")),
        covers: Some(InSeq::new(2)),
        ..world.appending(&id).await
    };
    world.wait(LEASE);
    assert_eq!(world.store.take_lease(&id, world.taking(2)).await, Ok(Term::new(2)));
    let before = world.record(&id).await;

    let refused = refusal(world.store.append(&id, late).await);
    assert_eq!(refused, AppendRefused::Fenced { named: Term::new(1), current: Term::new(2) });
    assert_eq!(world.record(&id).await, before);
    assert_eq!(world.state(&id).await.as_deref(), Some("good"));
    assert_eq!(world.waiting(&id).await, [2]);
}

pub async fn append_of_a_term_that_nobody_has_yet_is_refused(world: World) {
    let id = world.session().await;
    let append = world.appending(&id).await;
    let ahead = Append { term: Term::new(2), events: vec![event("x")], ..append };
    let refused = refusal(world.store.append(&id, ahead).await);
    assert_eq!(refused, AppendRefused::Fenced { named: Term::new(2), current: Term::new(1) });
    assert!(world.seqs(&id).await.is_empty());
}

pub async fn append_to_an_ended_session_is_refused(world: World) {
    let id = world.session().await;
    let append = Append { events: vec![event("x")], ..world.appending(&id).await };
    world.close(&id).await;
    let refused = refusal(world.store.append(&id, append).await);
    assert_eq!(refused, AppendRefused::Ended(Ending::Closed));
}

pub async fn append_to_an_unknown_session_finds_nothing(world: World) {
    let id = world.session().await;
    let append = Append { events: vec![event("x")], ..world.appending(&id).await };
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.append(&unknown, append).await, Err(Failure::NotFound));
    assert_eq!(world.store.session(&unknown).await, Ok(None));
}

pub async fn event_state_and_cover_are_stored_together(mut world: World) {
    let id = world.session().await;
    world.say(&id, "hello").await;
    world.say(&id, "again").await;
    world.wait(LEASE / 2);
    let append = Append {
        events: vec![event("answer")],
        snapshot: Some(state("after the answer")),
        covers: Some(InSeq::new(1)),
        ..world.appending(&id).await
    };
    let mark = SnapshotMark { seq: Seq::new(1), in_seq: InSeq::new(1), at: world.now };
    let appended = world.store.append(&id, append).await.unwrap();
    let (head, covered, snapshot) = (Seq::new(1), InSeq::new(1), Some(mark));
    assert_eq!(appended, Appended { head, covered, snapshot, named: false, before: None });

    let record = world.record(&id).await;
    assert_eq!((record.head, record.covered, record.snapshot), (head, covered, snapshot));
    assert_eq!(world.waiting(&id).await, [2]);
    let stored = world.store.snapshot(&id).await.unwrap().unwrap();
    assert_eq!((stored.mark, &*stored.body), (mark, &b"after the answer"[..]));
}

pub async fn event_state_and_cover_of_a_refused_append_are_all_left_out(world: World) {
    let id = world.session().await;
    world.say(&id, "hello").await;
    let append = Append {
        first: Seq::new(2),
        events: vec![event("answer")],
        snapshot: Some(state("after the answer")),
        covers: Some(InSeq::new(1)),
        ..world.appending(&id).await
    };
    let before = world.record(&id).await;
    refusal(world.store.append(&id, append).await);
    assert_eq!(world.record(&id).await, before);
    assert_eq!((world.seqs(&id).await, world.waiting(&id).await), (vec![], vec![1]));
    assert_eq!(world.state(&id).await, None);
}

pub async fn a_state_needs_no_event(world: World) {
    let id = world.session().await;
    world.publish(&id, 2).await;
    let append = Append { snapshot: Some(state("thinking")), ..world.appending(&id).await };
    let appended = world.store.append(&id, append).await.unwrap();
    assert_eq!(appended.head, Seq::new(2));
    assert_eq!(appended.snapshot.map(|mark| mark.seq), Some(Seq::new(2)));
    assert_eq!(world.state(&id).await.as_deref(), Some("thinking"));
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3]);
}

pub async fn what_was_appended_under_a_key_is_not_appended_again(world: World) {
    let id = world.session().await;
    let key = Some(MessageDigest::of("k", b"two events"));
    let keyed = async || {
        let events = ["a", "b"].map(event).to_vec();
        Append { events, key, snapshot: Some(state("s")), ..world.appending(&id).await }
    };
    let first = world.store.append(&id, keyed().await).await.unwrap();
    assert_eq!((first.head, first.before), (Seq::new(2), None));
    world.checkpoint(&id, "later").await;
    let again = world.store.append(&id, keyed().await).await.unwrap();
    let before = again.before.map(|before| (before.first, before.last));
    assert_eq!((again.head, before), (Seq::new(3), Some((Seq::new(1), Seq::new(2)))));
    assert_eq!(again.snapshot, None);
    assert_eq!(world.seqs(&id).await, [1, 2, 3]);
    assert_eq!(world.state(&id).await.as_deref(), Some("later"));
}

pub async fn something_else_under_the_same_key_is_refused(world: World) {
    let id = world.session().await;
    let keyed = async |content: &str| {
        let key = Some(MessageDigest::of("k", content.as_bytes()));
        Append { events: vec![event(content)], key, ..world.appending(&id).await }
    };
    world.store.append(&id, keyed("one").await).await.unwrap();
    let refused = refusal(world.store.append(&id, keyed("other").await).await);
    let (first, last) = (Seq::new(1), Seq::new(1));
    assert_eq!(refused, AppendRefused::OtherContent { first, last });
    assert_eq!(world.seqs(&id).await, [1]);
    world.publish(&id, 1).await;
}

pub async fn a_later_state_replaces_the_one_before(world: World) {
    let id = world.session().await;
    world.checkpoint(&id, "first").await;
    world.checkpoint(&id, "").await;
    assert_eq!(world.state(&id).await.as_deref(), Some(""));
    world.checkpoint(&id, "third").await;
    assert_eq!(world.state(&id).await.as_deref(), Some("third"));
    let mark = world.record(&id).await.snapshot.unwrap();
    assert_eq!(mark.seq, Seq::new(3));
}

pub async fn events_without_a_state_leave_the_last_one_alone(world: World) {
    let id = world.session().await;
    world.checkpoint(&id, "first").await;
    world.publish(&id, 2).await;
    assert_eq!(world.state(&id).await.as_deref(), Some("first"));
    assert_eq!(world.record(&id).await.snapshot.map(|mark| mark.seq), Some(Seq::new(1)));
}
