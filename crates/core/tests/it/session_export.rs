//! When a changed state is sent by itself: at most once in an interval, and never not at all.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::log::MessageDigest;
use rejoin_core::settings::Settings;
use rejoin_core::worker::Publication;

fn once_a_minute() -> Settings {
    let heartbeat_interval = HOUR;
    Settings { auto_export_interval: MINUTE, heartbeat_interval, ..Settings::default() }
}

fn attached() -> Live {
    let mut live = Live::with(Settings { heartbeat_timeout: HOUR, ..once_a_minute() });
    live.leased();
    live.begins(A);
    live.all_heard();
    live
}

fn checkpoint(live: &mut Live, state: &str) {
    live.publishes(with_state(state, saying(&[])));
}

#[test]
fn the_first_change_is_sent_at_once() {
    let mut live = attached();
    checkpoint(&mut live, "first");
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
}

#[test]
fn a_state_is_sent_only_once_the_store_has_it() {
    let mut live = attached();
    live.store_is_slow = true;
    checkpoint(&mut live, "first");
    assert!(live.heard_by("A").is_empty());
    live.store_answers();
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
}

#[test]
fn changes_within_the_interval_are_sent_as_one_when_it_ends() {
    let mut live = attached();
    checkpoint(&mut live, "first");
    live.all_heard();
    live.wait(SECOND * 10);
    checkpoint(&mut live, "second");
    checkpoint(&mut live, "third");
    live.wait(SECOND * 49);
    assert!(live.heard_by("A").is_empty());
    assert_eq!(live.next_deadline(), Some(at(60)));
    live.wait(SECOND);
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
    live.wait(MINUTE * 5);
    assert!(live.heard_by("A").is_empty(), "nothing has changed since");
}

#[test]
fn the_same_state_stored_again_is_not_sent_again() {
    let mut live = attached();
    checkpoint(&mut live, "first");
    live.all_heard();
    live.wait(MINUTE);
    checkpoint(&mut live, "first");
    live.wait(MINUTE);
    assert!(live.heard_by("A").is_empty(), "nothing has changed");
    checkpoint(&mut live, "second");
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
    live.wait(MINUTE);
    checkpoint(&mut live, "first");
    assert_eq!(live.heard_by("A"), ["checkpoint"], "it is another than the last one");
}

#[test]
fn a_state_that_was_published_another_time_is_not_taken_for_the_newest() {
    let mut live = attached();
    let keyed = || {
        let key = Some(MessageDigest::of("k", b"first"));
        Publication { key, ..with_state("first", saying(&[])) }
    };
    live.publishes(keyed());
    live.wait(MINUTE);
    checkpoint(&mut live, "second");
    live.publishes(keyed());
    live.wait(MINUTE);
    live.all_heard();
    checkpoint(&mut live, "first");
    assert_eq!(live.heard_by("A"), ["checkpoint"], "the newest was the second");
}

#[test]
fn the_interval_counts_from_the_last_one_that_was_sent() {
    let mut live = attached();
    checkpoint(&mut live, "first");
    live.wait(SECOND * 30);
    checkpoint(&mut live, "second");
    live.wait(SECOND * 40);
    live.all_heard();
    checkpoint(&mut live, "third");
    live.wait(SECOND * 49);
    assert!(live.heard_by("A").is_empty());
    live.wait(SECOND);
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
}

#[test]
fn a_change_after_a_quiet_interval_is_sent_at_once() {
    let mut live = attached();
    checkpoint(&mut live, "first");
    live.wait(MINUTE);
    live.all_heard();
    checkpoint(&mut live, "second");
    assert_eq!(live.heard_by("A"), ["checkpoint"]);
}

#[test]
fn events_alone_change_no_state() {
    let mut live = attached();
    live.says(&["one"]);
    live.wait(MINUTE * 5);
    assert_eq!(live.heard_by("A"), ["live 1"]);
}

#[test]
fn a_change_that_nobody_was_there_for_is_sent_to_the_client_that_comes_back() {
    let mut live = attached();
    live.leaves(A);
    live.later(SECOND);
    checkpoint(&mut live, "while away");
    assert_eq!(live.next_deadline(), None, "nobody waits for it");
    live.comes_back(B, 0);
    live.wait(SECOND);
    let heard = live.heard_by("B");
    assert_eq!(heard.iter().filter(|line| *line == "checkpoint").count(), 1, "{heard:?}");
}

#[test]
fn a_change_is_not_spent_on_a_client_that_the_store_has_not_confirmed_yet() {
    let mut live = attached();
    live.leaves(A);
    live.later(SECOND);
    checkpoint(&mut live, "while away");
    live.store_is_slow = true;
    live.comes_back(B, 0);
    live.wait(SECOND);
    assert!(live.heard_by("B").is_empty());
    live.store_answers();
    live.wait(SECOND);
    assert_eq!(live.heard_by("B").last().unwrap(), "checkpoint");
}
