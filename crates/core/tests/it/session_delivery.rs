//! What an attached client is sent, at its own pace: pages, gaps, acks, and everything again when it
//! noticed a hole.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::limits::LogBounds;
use rejoin_core::settings::Settings;

/// A new session with client A, whose agent may speak.
fn live() -> Live {
    let mut live = Live::new();
    live.leased();
    live.begins(A);
    live.all_heard();
    live
}

/// The same after the agent has said so many things, and A has taken them.
fn live_with(events: u64) -> Live {
    let mut live = Live::of(session_with(events), Settings::default());
    live.leased();
    live.comes_back(A, events);
    live.all_heard();
    live
}

#[test]
fn a_client_at_the_head_is_woken_by_each_new_event() {
    let mut live = live();
    live.says(&["one", "two"]);
    live.says(&["three"]);
    assert_eq!(live.heard_by("A"), ["live 1 2", "live 3"]);
}

#[test]
fn a_slow_client_has_one_page_on_its_way_and_the_log_is_its_buffer() {
    let mut live = live();
    live.is_slow(A);
    for word in ["one", "two", "three"] {
        live.says(&[word]);
    }
    assert_eq!(live.heard_by("A"), ["live 1"]);
    let asked = live.heard_by("store");
    assert_eq!(asked.iter().filter(|line| line.starts_with("read")).count(), 1);
    live.takes(A);
    assert_eq!(live.heard_by("A"), ["live 2 3"]);
}

#[test]
fn no_second_page_is_asked_for_while_the_first_has_not_come() {
    let mut live = live();
    live.store_is_slow = true;
    live.says(&["one"]);
    live.store_answers(); // the append; now a page is on its way
    live.says(&["two"]);
    live.all_heard();
    live.answer_arrives(1); // the second append
    live.takes(A);
    assert!(live.heard_by("store").is_empty());
    live.store_answers();
    assert_eq!(live.heard_by("A"), ["live 1"]);
    assert_eq!(live.heard_by("store"), ["read for A after 1"]);
}

#[test]
fn a_slow_client_is_told_of_what_was_evicted_before_the_next_event() {
    let mut live = live();
    live.bounds = LogBounds { events: 2, ..LogBounds::default() };
    live.is_slow(A);
    for word in ["one", "two", "three", "four"] {
        live.says(&[word]);
    }
    live.all_heard();
    live.takes(A);
    assert_eq!(live.heard_by("A"), ["gap 2…2, lost 2…2", "live 3 4"]);
}

#[test]
fn an_event_that_came_while_an_empty_page_was_on_its_way_is_sent() {
    let mut live = live();
    live.bounds = LogBounds { events: 0, ..LogBounds::default() };
    live.store_is_slow = true;
    live.says(&["one"]);
    live.store_answers(); // the append; now a page is on its way, and nothing is in it
    live.bounds = LogBounds::default();
    live.says(&["two"]);
    live.answer_arrives(1); // the second append
    live.all_heard();
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("A"), ["gap 1…1, lost 1…1", "live 2"]);
}

#[test]
fn a_slow_client_gets_the_state_that_covers_its_gap() {
    let mut live = live();
    live.bounds = LogBounds { events: 2, ..LogBounds::default() };
    live.is_slow(A);
    live.says(&["one"]);
    live.publishes(with_state("after two", saying(&["two"])));
    live.says(&["three", "four"]);
    live.all_heard();
    live.takes(A);
    assert_eq!(live.heard_by("A"), ["gap 2…2, lost nothing", "state", "live 3 4"]);
}

#[test]
fn a_page_that_comes_for_a_client_that_has_left_is_dropped() {
    let mut live = live_with(3);
    live.store_is_slow = true;
    live.misses_something_after(A, 0);
    live.leaves(A);
    live.all_heard();
    live.store_answers();
    assert!(live.heard_by("A").is_empty());
}

#[test]
fn an_ack_goes_to_the_store_and_only_grows() {
    let mut live = live_with(5);
    live.acks(A, 3);
    live.acks(A, 3);
    live.acks(A, 2);
    live.acks(A, 5);
    assert_eq!(live.heard_by("store"), ["ack 3", "ack 5"]);
    assert!(live.heard_by("A").is_empty(), "an ack has no answer");
    assert_eq!(live.store.out.acked(), seq(5));
}

#[test]
fn an_ack_beyond_the_head_is_an_error_and_changes_nothing() {
    let mut live = live_with(5);
    live.acks(A, 6);
    live.misses_something_after(A, 6);
    assert_eq!(live.heard_by("A"), ["ack ahead of 5", "ack ahead of 5"]);
    assert!(live.heard_by("store").is_empty());
    live.says(&["six"]);
    assert_eq!(live.heard_by("A"), ["live 6"]);
}

#[test]
fn a_client_that_noticed_a_hole_gets_everything_after_it_again_as_a_replay() {
    let mut live = live_with(5);
    live.misses_something_after(A, 2);
    assert_eq!(live.heard_by("A"), ["replayed 3 4 5", "replay complete: 3…5"]);
    assert_eq!(live.heard_by("store"), ["ack 2", "read for A after 2"], "it is an ack too");
    live.says(&["six"]);
    assert_eq!(live.heard_by("A"), ["live 6"]);
}

#[test]
fn a_client_may_ask_again_for_what_it_has_acked() {
    let mut live = live_with(5);
    live.acks(A, 5);
    live.all_heard();
    live.misses_something_after(A, 0);
    assert_eq!(live.heard_by("A"), ["replayed 1 2 3 4 5", "replay complete: 1…5"]);
    assert_eq!(live.store.out.acked(), seq(5), "an ack is not taken back");
}

#[test]
fn a_client_that_misses_nothing_is_told_that_the_replay_is_complete() {
    let mut live = live_with(5);
    live.misses_something_after(A, 5);
    assert_eq!(live.heard_by("A"), ["replay complete: nothing"]);
}

#[test]
fn a_page_that_was_on_its_way_when_the_client_asked_again_is_not_sent() {
    let mut live = live_with(3);
    live.store_is_slow = true;
    live.says(&["four"]);
    live.store_answers(); // the append; now a page after 3 is on its way
    live.all_heard();
    live.misses_something_after(A, 1);
    live.store_answers();
    assert!(live.heard_by("A").is_empty(), "4 would come before 2 and 3");
    live.store_answers();
    assert_eq!(live.heard_by("A"), ["replayed 2 3", "replay complete: 2…3", "live 4"]);
    assert_eq!(live.heard_by("store"), ["ack 1", "read for A after 1"]);
}

#[test]
fn asking_again_does_not_overtake_what_the_transport_is_busy_with() {
    let mut live = live();
    live.is_slow(A);
    live.says(&["one", "two"]);
    live.all_heard();
    live.misses_something_after(A, 0);
    assert!(live.heard_by("A").is_empty());
    live.takes(A);
    assert_eq!(live.heard_by("A"), ["replayed 1 2", "replay complete: 1…2"]);
}

#[test]
fn asking_again_for_what_was_evicted_is_answered_with_the_gap() {
    let mut live = live_with(5);
    live.store.out.trim_before(seq(4));
    live.misses_something_after(A, 1);
    assert_eq!(live.heard_by("A"), ["gap 2…3, lost 2…3", "replayed 4 5", "replay complete: 4…5"]);
}
