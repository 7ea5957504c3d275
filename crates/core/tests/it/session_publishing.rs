//! What the agent says: it exists for nobody before the store has it, costs one append at a time, and
//! is refused once another process has the lease.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::limits;
use rejoin_core::log::MessageDigest;
use rejoin_core::settings::Settings;
use rejoin_core::worker::{Covering, Publication};

/// A session with client A, whose agent may speak.
fn live() -> Live {
    let mut live = Live::new();
    live.agent_starts(Covering::Named);
    live.begins(A);
    live.all_heard();
    live
}

/// The same, with an append of "first" on its way.
fn live_with_append_on_its_way() -> Live {
    let mut live = live();
    live.store_is_slow = true;
    live.says(&["first"]);
    live
}

/// What the store was asked to append since the last time this was asked.
fn appends(live: &mut Live) -> Vec<String> {
    live.heard_by("store").into_iter().filter(|line| line.starts_with("append")).collect()
}

#[test]
fn nobody_is_told_anything_before_the_store_has_it() {
    let mut live = live_with_append_on_its_way();
    assert!(live.heard_by("A").is_empty() && live.heard_by("producer").is_empty());
    assert_eq!(live.worker.record().head, seq(0));
    assert!(live.worker.awaits_store());
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("producer"), ["#1 published 1…1"]);
    assert_eq!(live.heard_by("A"), ["live 1"]);
    assert!(!live.worker.awaits_store());
}

#[test]
fn what_is_said_meanwhile_goes_together_with_the_next_append() {
    let mut live = live_with_append_on_its_way();
    live.says(&["b", "c"]);
    live.says(&["d"]);
    live.publishes(covering(0, saying(&["e"])));
    assert_eq!(appends(&mut live), ["append from 1: [first]"]);
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(appends(&mut live), ["append from 2: [b c d e], covers 0"]);
    let published =
        ["#1 published 1…1", "#2 published 2…3", "#3 published 4…4", "#4 published 5…5"];
    assert_eq!(live.heard_by("producer"), published);
}

#[test]
fn of_several_covers_the_furthest_counts() {
    let mut live = live_with_append_on_its_way();
    live.all_heard();
    for up_to in [1, 3, 2] {
        live.publishes(covering(up_to, saying(&["x"])));
    }
    live.store_answers();
    assert_eq!(appends(&mut live), ["append from 2: [x x x], covers 3"]);
}

#[test]
fn a_state_ends_an_append_so_that_it_stands_for_its_own_position() {
    let mut live = live_with_append_on_its_way();
    live.says(&["b"]);
    live.publishes(with_state("after c", saying(&["c"])));
    live.says(&["d"]);
    live.all_heard();
    live.store_is_slow = false;
    live.store_answers();
    let asked = ["append from 2: [b c], state after c", "append from 4: [d]"];
    assert_eq!(appends(&mut live), asked);
    assert_eq!(live.store.snapshot.as_ref().unwrap().mark.seq, seq(3));
}

#[test]
fn an_append_that_is_large_already_takes_nothing_more() {
    let mut live = live_with_append_on_its_way();
    let large = "x".repeat(limits::APPEND_BYTES);
    live.says(&[&large]);
    live.says(&["after"]);
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(appends(&mut live).last().unwrap(), "append from 3: [after]");
}

#[test]
fn a_publication_without_events_is_published_between_two_events() {
    let mut live = live();
    live.says(&["one"]);
    live.publishes(with_state("state", saying(&[])));
    assert_eq!(live.heard_by("producer"), ["#1 published 1…1", "#2 published 2…1"]);
    assert_eq!(live.store.snapshot.as_ref().unwrap().mark.seq, seq(1));
}

#[test]
fn too_much_on_its_way_is_refused_and_the_rest_goes_on() {
    let mut live = live_with_append_on_its_way();
    for _ in 0..limits::WAITING_PUBLICATIONS - 1 {
        live.says(&["waits"]);
    }
    assert!(live.worker.accepts_publication());
    live.says(&["waits"]);
    assert!(!live.worker.accepts_publication());
    live.says(&["too much"]);
    let busy = "#258 refused: 256 appends are on their way; wait for one";
    assert_eq!(live.heard_by("producer"), [busy]);
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("producer").len(), 257);
    assert_eq!(live.store.out.head(), seq(257));
    assert!(live.worker.accepts_publication());
}

#[test]
fn few_publications_that_are_large_are_too_much_as_well() {
    let mut live = live_with_append_on_its_way();
    let large = "x".repeat(limits::WAITING_PUBLICATION_BYTES / 2);
    live.says(&[&large]);
    assert!(live.worker.accepts_publication());
    live.publishes(with_state(&large, saying(&[])));
    assert!(!live.worker.accepts_publication());
    live.says(&["too much"]);
    let busy = "#4 refused: 2 appends are on their way; wait for one";
    assert_eq!(live.heard_by("producer"), [busy]);
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("producer").len(), 3);
    assert!(live.worker.accepts_publication());
}

#[test]
fn without_the_lease_nothing_is_published() {
    let mut live = Live::new();
    assert!(!live.worker.accepts_publication());
    live.says(&["one"]);
    let refused = "#1 refused: this process does not hold the session's lease";
    assert_eq!(live.heard_by("producer"), [refused]);
    assert!(live.heard_by("store").is_empty());
}

#[test]
fn a_process_that_was_fenced_publishes_nothing_more_and_stops_its_agent() {
    let mut live = live();
    live.says(&["one"]);
    live.lease_is_taken_over();
    live.store_is_slow = true;
    live.says(&["two"]);
    live.says(&["three"]);
    live.publishes(with_state("state", saying(&["four"])));
    live.all_heard();
    live.store_answers();
    let fenced = "refused: term 1 was fenced; the present one is 2";
    let refused = [format!("#2 {fenced}"), format!("#3 {fenced}"), format!("#4 {fenced}")];
    assert_eq!(live.heard_by("producer"), refused);
    assert_eq!(live.heard_by("agent"), ["stop"]);
    assert!(live.heard_by("store").is_empty() && live.heard_by("A").is_empty());
    live.says(&["five"]);
    let refused = "#5 refused: this process does not hold the session's lease";
    assert_eq!(live.heard_by("producer"), [refused]);
    assert_eq!(live.store.held(), [1]);
}

#[test]
fn a_fenced_process_keeps_its_client_and_hands_nothing_over() {
    let mut live = live();
    live.lease_is_taken_over();
    live.says(&["one"]);
    live.all_heard();
    live.sends(A, "hello");
    assert_eq!(live.heard_by("sender"), ["A: 1 entered"]);
    assert!(live.heard_by("agent").is_empty());
}

#[test]
fn the_numbering_goes_on_from_what_the_store_has() {
    let mut live = Live::of(session_with(7), Settings::default());
    live.leased();
    live.says(&["eight"]);
    assert_eq!(live.heard_by("producer"), ["#1 published 8…8"]);
}

#[test]
fn what_a_dead_agent_said_last_is_still_published() {
    let mut live = live_with_append_on_its_way();
    live.says(&["second"]);
    live.agent_dies();
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("producer"), ["#1 published 1…1", "#2 published 2…2"]);
}

#[test]
fn what_has_a_key_goes_to_the_store_alone_and_is_published_once() {
    let mut live = live_with_append_on_its_way();
    let key = Some(MessageDigest::of("k", b"keyed"));
    live.publishes(saying(&["before"]));
    for _ in 0..2 {
        live.publishes(Publication { key, ..saying(&["keyed"]) });
    }
    let other = Some(MessageDigest::of("k", b"other"));
    live.publishes(Publication { key: other, ..saying(&["other"]) });
    live.publishes(saying(&["after"]));
    live.all_heard();
    live.store_is_slow = false;
    live.store_answers();
    let refused = "#5 refused: that idempotency key was used for something else, events 3 to 3";
    let heard = live.heard_by("producer");
    assert_eq!(
        heard[1..],
        ["#2 published 2…2", "#3 published 3…3", "#4 published 3…3", refused, "#6 published 4…4"]
    );
}
