//! What the process that runs a session's agent may do to it: take the lease and, under its term,
//! append at the head.

use crate::common::*;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::Trimmed;
use rejoin_core::record::{Ending, Lease, SnapshotMark};
use rejoin_core::state::{Append, AppendRefused, LeaseHeld, NewSnapshot, TakeLease};
use rejoin_core::{Seq, Term};

fn take(n: u8, secs: u64) -> TakeLease {
    TakeLease { holder: process(n), lasts: MINUTE, now: at(secs) }
}

#[test]
fn whoever_has_the_lease_gets_the_same_term_again_and_more_time() {
    let mut session = session();
    assert_eq!(session.take_lease(&take(1, 0)), Ok(Term::new(1)));
    assert_eq!(session.take_lease(&take(1, 50)), Ok(Term::new(1)));
    assert_eq!(session.vitals.lease.as_ref().unwrap().until, at(110));
    assert_eq!(session.take_lease(&take(1, 500)), Ok(Term::new(1)), "also when it had run out");
}

#[test]
fn another_process_gets_the_lease_only_when_it_has_run_out_and_then_the_next_term() {
    let mut session = session();
    session.take_lease(&take(1, 0)).unwrap();
    let held = Lease { holder: process(1), until: at(60) };
    assert_eq!(session.take_lease(&take(2, 59)), Err(LeaseHeld::ByOther(held)));
    assert_eq!(session.take_lease(&take(2, 60)), Ok(Term::new(2)));
}

#[test]
fn a_lease_that_was_given_up_is_taken_at_once_under_the_next_term_even_by_the_same_process() {
    for next in [1, 2] {
        let mut session = session();
        let term = session.take_lease(&take(1, 0)).unwrap();
        session.give_up_lease(term);
        assert_eq!(session.take_lease(&take(next, 1)), Ok(Term::new(2)));
    }
}

#[test]
fn a_fenced_process_can_t_give_up_its_successor_s_lease() {
    let mut session = session();
    let old = session.take_lease(&take(1, 0)).unwrap();
    session.take_lease(&take(2, 60)).unwrap();
    session.give_up_lease(old);
    assert_eq!(session.vitals.lease.as_ref().unwrap().holder, process(2));
}

#[test]
fn there_is_nothing_to_run_in_a_session_that_is_over() {
    let mut session = session();
    session.end(&ended_by_user(START)).unwrap();
    assert_eq!(session.take_lease(&take(1, 0)), Err(LeaseHeld::Ended(Ending::Closed)));
}

#[test]
fn a_fenced_process_appends_nothing() {
    let mut session = session();
    let old = session.leased_to(1, START);
    session.leased_to(2, at(60));
    let late = session.append_of(1, old, at(61));
    assert_eq!(session.append(late), Err(fenced(1, 2)));
    let future = session.append_of(1, Term::new(3), at(61));
    assert_eq!(session.append(future), Err(fenced(3, 2)), "nor does one that is ahead of time");
    assert!(session.held().is_empty());
}

#[test]
fn the_term_is_checked_before_the_end_and_the_end_before_the_place() {
    let mut session = session_with(2);
    session.end(&ended_by_user(START)).unwrap();
    let elsewhere = |term, session: &Stored| Append {
        first: seq(9),
        ..session.append_of(1, Term::new(term), START)
    };
    assert_eq!(session.append(elsewhere(5, &session)), Err(fenced(5, 0)));
    let ended = AppendRefused::Ended(Ending::Closed);
    assert_eq!(session.append(elsewhere(0, &session)), Err(ended));
}

#[test]
fn events_are_appended_at_the_head_and_nowhere_else() {
    let mut session = session_with(2);
    for n in [2, 4] {
        let append = Append { first: seq(n), ..session.append_of(1, Term::ZERO, START) };
        let refused = AppendRefused::NotAtHead { named: seq(n), expected: seq(3) };
        assert_eq!(session.check_append(&append), Err(refused.clone()));
        assert_eq!(session.append(append), Err(refused));
    }
    assert_eq!(session.says(2, START).head, seq(4));
}

#[test]
fn events_state_and_cover_are_stored_together_or_not_at_all() {
    let mut session = session();
    session.gets("a", "", START).unwrap();
    session.gets("b", "", START).unwrap();
    let all = |session: &Stored, term| Append {
        snapshot: Some(NewSnapshot { size: 5, body: body("state") }),
        covers: Some(in_seq(1)),
        ..session.append_of(2, Term::new(term), at(3))
    };
    session.append(all(&session, 9)).unwrap_err();
    assert_eq!((session.held(), session.waiting(), session.state()), (vec![], vec![1, 2], None));
    let appended = session.append(all(&session, 0)).unwrap();
    let mark = SnapshotMark { seq: seq(2), in_seq: in_seq(1), at: at(3) };
    assert_eq!(
        (appended.head, appended.covered, appended.snapshot),
        (seq(2), in_seq(1), Some(mark))
    );
    assert_eq!((session.held(), session.waiting()), (vec![1, 2], vec![2]));
    assert_eq!(session.state().as_deref(), Some("state"));
}

#[test]
fn covering_only_grows_and_ends_at_what_was_entered() {
    let mut session = session();
    session.gets("a", "", START).unwrap();
    session.gets("b", "", START).unwrap();
    assert_eq!(session.covers(1, START).covered, in_seq(1));
    assert_eq!(session.covers(0, START).covered, in_seq(1));
    assert_eq!(session.covers(99, START).covered, in_seq(2));
}

#[test]
fn a_state_without_a_cover_stands_for_what_was_covered_before() {
    let mut session = session();
    session.gets("a", "", START).unwrap();
    session.covers(1, START);
    let snapshot = Some(NewSnapshot { size: 1, body: body("s") });
    let append = Append { snapshot, ..session.append_of(1, Term::ZERO, START) };
    let mark = session.append(append).unwrap().snapshot.unwrap();
    assert_eq!((mark.seq, mark.in_seq), (seq(1), in_seq(1)));
}

#[test]
fn a_change_never_trims_only_settling_does() {
    let bounds = LogBounds { events: 2, ..LogBounds::default() };
    let mut session = session_with(5);
    assert_eq!(session.held(), [1, 2, 3, 4, 5]);
    let trimmed = session.settle(&bounds, START);
    assert_eq!(trimmed, Trimmed { settled: 0, unacked: 3 });
    assert_eq!(session.held(), [4, 5]);
}

#[test]
fn what_a_state_covers_grows_old_like_what_was_acked() {
    let bounds = LogBounds { retention: MINUTE, ..LogBounds::default() };
    let mut session = session_with(2);
    session.checkpoints("state", 0, START);
    session.says(1, START);
    assert_eq!(session.settle(&bounds, at(59)), Trimmed::default());
    assert_eq!(session.settle(&bounds, at(60)), Trimmed { settled: 2, unacked: 0 });
    assert_eq!(session.held(), [3]);
    assert_eq!(session.record().acked, Seq::ZERO);
}
