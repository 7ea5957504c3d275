//! Two connections, one session: the later one wins, and nothing the earlier one does afterwards has
//! any effect.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::settings::Settings;

fn live() -> Live {
    let mut live = Live::of(session_with(3), Settings::default());
    live.leased();
    live
}

/// A session that B has taken over from A.
fn taken_over() -> Live {
    let mut live = live();
    live.comes_back(A, 3);
    live.comes_back(B, 3);
    live.all_heard();
    live
}

#[test]
fn the_earlier_one_is_told_and_closed() {
    let mut live = live();
    live.comes_back(A, 3);
    live.all_heard();
    live.comes_back(B, 3);
    assert_eq!(live.heard_by("A"), ["superseded", "closed 4100"]);
    let heard = ["confirmed: resumed, generation 2, from 4", "replay complete: nothing"];
    assert_eq!(live.heard_by("B"), heard);
    live.says(&["four"]);
    assert_eq!(live.heard_by("B"), ["live 4"]);
    assert!(live.heard_by("A").is_empty());
}

#[test]
fn its_later_ack_has_no_effect() {
    let mut live = taken_over();
    live.acks(A, 3);
    live.misses_something_after(A, 1);
    assert!(live.heard_by("store").is_empty());
    assert_eq!(live.store.out.acked(), seq(0));
}

#[test]
fn its_later_message_is_refused() {
    let mut live = taken_over();
    live.sends(A, "too late");
    let refused = "A: refused: generation 1 was replaced; the present one is 2";
    assert_eq!(live.heard_by("sender"), [refused]);
    assert!(live.store.waiting().is_empty());
}

#[test]
fn its_going_does_not_park_the_session() {
    let mut live = taken_over();
    live.leaves(A);
    assert!(live.heard_by("store").is_empty() && live.heard_by("policy").is_empty());
    assert!(live.store.vitals.attached.is_some());
}

#[test]
fn its_transport_being_ready_sends_it_nothing() {
    let mut live = taken_over();
    live.takes(A);
    live.says(&["four"]);
    assert!(live.heard_by("A").is_empty());
}

#[test]
fn answers_that_arrive_out_of_order_leave_the_later_one_attached() {
    let mut live = live();
    live.store_is_slow = true;
    live.comes_back(A, 3);
    live.comes_back(B, 3);
    live.answer_arrives(1);
    let confirmed = ["confirmed: resumed, generation 2, from 4", "replay complete: nothing"];
    assert_eq!(live.heard_by("B"), confirmed);
    assert!(live.heard_by("A").is_empty(), "nobody knows yet what becomes of it");
    live.store_answers();
    let heard = live.heard_by("A");
    assert_eq!(heard[2..], ["superseded", "closed 4100"], "it was attached for a moment");
    live.store_is_slow = false;
    live.says(&["four"]);
    assert_eq!(live.heard_by("B"), ["live 4"]);
    live.leaves(B);
    assert_eq!(live.store.vitals.attached, None, "the one that counts is B");
}

#[test]
fn answers_in_order_attach_the_earlier_one_until_the_later_one_comes() {
    let mut live = live();
    live.store_is_slow = true;
    live.comes_back(A, 3);
    live.comes_back(B, 3);
    live.store_answers();
    let heard = live.heard_by("A");
    assert_eq!(heard[0], "confirmed: resumed, generation 1, from 4");
    live.store_answers();
    assert_eq!(heard[2..], ["superseded", "closed 4100"], "the store shows what is true by now");
    assert_eq!(live.heard_by("B")[0], "confirmed: resumed, generation 2, from 4");
}

#[test]
fn a_client_that_left_before_the_store_answered_leaves_the_session_parked() {
    let mut live = live();
    live.store_is_slow = true;
    live.comes_back(A, 3);
    live.leaves(A);
    assert!(live.store.vitals.attached.is_some(), "the store believes that it is there");
    live.all_heard();
    live.store_answers();
    assert_eq!(live.heard_by("store"), ["detach generation 1"]);
    assert_eq!(live.store.vitals.attached, None);
    assert!(live.heard_by("A").is_empty());
}

#[test]
fn a_client_that_left_before_the_store_answered_has_superseded_the_one_before_it() {
    let mut live = live();
    live.comes_back(A, 3);
    live.all_heard();
    live.store_is_slow = true;
    live.comes_back(B, 3);
    live.leaves(B);
    live.store_answers();
    assert_eq!(live.heard_by("A"), ["superseded", "closed 4100"]);
    assert_eq!(live.heard_by("store"), ["attach B", "detach generation 2"]);
}

#[test]
fn a_client_that_left_early_does_not_park_the_session_of_a_later_one() {
    let mut live = live();
    live.store_is_slow = true;
    live.comes_back(A, 3);
    live.leaves(A);
    live.comes_back(B, 3);
    live.answer_arrives(1);
    live.all_heard();
    live.store_answers();
    assert!(live.heard_by("store").is_empty());
    assert!(live.store.vitals.attached.is_some());
}

#[test]
fn a_client_that_comes_back_while_its_old_connection_only_looks_alive_goes_on_where_it_was() {
    let mut live = live();
    live.comes_back(A, 3);
    live.is_slow(A);
    live.says(&["four"]);
    live.says(&["five"]);
    live.all_heard();
    live.comes_back(B, 3);
    let heard =
        ["confirmed: resumed, generation 2, from 4", "replayed 4 5", "replay complete: 4…5"];
    assert_eq!(live.heard_by("B"), heard);
}

#[test]
fn who_is_parked_by_somebody_else_is_cut_off_without_a_word() {
    let mut live = live();
    live.comes_back(A, 3);
    live.all_heard();
    live.is_cut();
    assert_eq!(live.heard_by("A"), ["cut"]);
    assert!(live.heard_by("policy").is_empty(), "it is parked once");
    live.comes_back(B, 3);
    assert_eq!(live.heard_by("B")[0], "confirmed: resumed, generation 2, from 4");
}
