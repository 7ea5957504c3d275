//! What clients send: each message enters once, is handed to the agent in order and once, and after a
//! crash of the agent again only if nothing covers it.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::log::EntryKind;
use rejoin_core::page::StoredEntry;
use rejoin_core::settings::Settings;
use rejoin_core::worker::{Covering, WorkerInput, Workload};
use rejoin_core::{InSeq, limits};

fn live(covering: Covering) -> Live {
    let mut live = Live::new();
    live.agent_starts(covering);
    live.begins(A);
    live.all_heard();
    live
}

/// An agent that deals with everything up to this entry.
fn deals_with(live: &mut Live, up_to: u64) {
    live.publishes(covering(up_to, saying(&["done"])));
}

#[test]
fn a_message_is_accepted_once_the_store_has_it_and_then_handed_over() {
    let mut live = live(Covering::Named);
    live.store_is_slow = true;
    live.sends(A, "hello");
    assert!(live.heard_by("sender").is_empty() && live.heard_by("agent").is_empty());
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("sender"), ["A: 1 entered"]);
    assert_eq!(live.heard_by("agent"), ["1: hello"]);
}

/// What the store says when a message has its number, before it is durable.
fn entering(live: &mut Live, in_seq: u64, text: &str) {
    let body = text.as_bytes().into();
    let (in_seq, kind, at) = (InSeq::new(in_seq), EntryKind::Message, START);
    live.happens(WorkerInput::Entering(StoredEntry { in_seq, kind, at, body }));
}

#[test]
fn the_agent_may_begin_before_a_message_is_durable_and_the_sender_hears_of_it_after() {
    let mut live = live(Covering::Named);
    live.store_is_slow = true;
    live.sends(A, "hello");
    entering(&mut live, 1, "hello");
    assert_eq!(live.heard_by("agent"), ["1: hello"]);
    assert!(live.heard_by("sender").is_empty());
    live.store_is_slow = false;
    live.store_answers();
    assert!(live.heard_by("agent").is_empty(), "once is enough");
    assert_eq!(live.heard_by("sender"), ["A: 1 entered"]);
}

#[test]
fn a_message_whose_number_is_told_early_waits_for_those_before_it() {
    let mut live = live(Covering::Named);
    live.store_is_slow = true;
    live.sends(A, "a");
    live.sends(A, "b");
    entering(&mut live, 2, "b");
    assert!(live.heard_by("agent").is_empty());
    live.store_answers(); // the first is entered; now entries are being read
    entering(&mut live, 2, "b");
    live.store_is_slow = false;
    while live.answers_on_their_way() > 0 {
        live.store_answers();
    }
    assert_eq!(live.heard_by("agent"), ["1: a", "2: b"]);
}

#[test]
fn messages_are_handed_over_in_order_and_once() {
    let mut live = live(Covering::Named);
    live.sends(A, "a");
    live.posted("b");
    live.sends(A, "a");
    live.sends(A, "c");
    assert_eq!(live.heard_by("agent"), ["1: a", "2: b", "3: c"]);
    let told = ["A: 1 entered", "http: 2 entered", "A: 1 already", "A: 3 entered"];
    assert_eq!(live.heard_by("sender"), told);
}

#[test]
fn entries_that_come_while_others_are_read_are_handed_over_after_them() {
    let mut live = live(Covering::Named);
    live.store_is_slow = true;
    live.sends(A, "a");
    live.store_answers(); // the first is entered; now entries are being read
    live.sends(A, "b");
    live.answer_arrives(1); // the second is entered
    assert_eq!(live.heard_by("store"), ["enter a", "read entries after 0", "enter b"]);
    live.store_is_slow = false;
    live.store_answers();
    assert_eq!(live.heard_by("agent"), ["1: a", "2: b"]);
}

#[test]
fn a_long_backlog_is_handed_over_page_by_page() {
    let mut store = session();
    let backlog = limits::HAND_ENTRIES + 1;
    for n in 0..backlog {
        store.gets(&format!("m{n}"), "content", START).unwrap();
    }
    let mut live = Live::of(store, Settings::default());
    live.agent_starts(Covering::Named);
    assert_eq!(live.heard_by("agent").len(), backlog);
    assert_eq!(live.heard_by("store"), ["read entries after 0", "read entries after 64"]);
}

#[test]
fn the_next_agent_is_handed_only_what_is_not_covered() {
    let mut live = live(Covering::Named);
    for id in ["a", "b", "c"] {
        live.sends(A, id);
    }
    deals_with(&mut live, 2);
    live.agent_dies();
    live.all_heard();
    live.agent_starts(Covering::Named);
    assert_eq!(live.heard_by("agent"), ["3: c"]);
}

#[test]
fn an_agent_for_whom_everything_is_covered_is_handed_nothing_and_nothing_is_read() {
    let mut store = session();
    store.gets("a", "", START).unwrap();
    store.covers(1, START);
    let mut live = Live::of(store, Settings::default());
    live.agent_starts(Covering::Named);
    assert!(live.heard_by("agent").is_empty() && live.heard_by("store").is_empty());
}

#[test]
fn nothing_is_handed_over_while_no_agent_runs_and_nothing_is_lost() {
    let mut live = live(Covering::Named);
    live.agent_dies();
    live.sends(A, "a");
    assert_eq!(live.heard_by("sender"), ["A: 1 entered"]);
    assert!(live.heard_by("agent").is_empty());
    live.agent_starts(Covering::Named);
    assert_eq!(live.heard_by("agent"), ["1: a"]);
}

#[test]
fn entries_that_were_read_for_an_agent_that_has_died_are_handed_to_nobody() {
    let mut live = live(Covering::Named);
    live.store_is_slow = true;
    live.sends(A, "a");
    live.store_answers();
    live.agent_dies();
    live.store_answers();
    assert!(live.heard_by("agent").is_empty());
    live.store_is_slow = false;
    live.agent_starts(Covering::Named);
    assert_eq!(live.heard_by("agent"), ["1: a"]);
}

#[test]
fn an_agent_that_never_names_an_entry_covers_it_by_taking_the_next() {
    let mut live = live(Covering::Unknown);
    live.says(&["awake"]);
    live.sends(A, "a");
    assert_eq!(live.store.waiting(), [1]);
    live.sends(A, "b");
    assert_eq!(live.store.waiting(), [2]);
    live.sends(A, "c");
    live.says(&["an event covers nothing"]);
    assert_eq!(live.store.waiting(), [3]);
    live.agent_dies();
    live.all_heard();
    live.agent_starts(Covering::Unknown);
    assert_eq!(live.heard_by("agent"), ["3: c"], "only the newest again");
}

#[test]
fn of_several_entries_handed_over_at_once_all_but_the_last_are_covered() {
    let mut store = session();
    for id in ["a", "b", "c"] {
        store.gets(id, id, START).unwrap();
    }
    let mut live = Live::of(store, Settings::default());
    live.agent_starts(Covering::Unknown);
    live.says(&["awake"]);
    assert_eq!(live.store.waiting(), [3]);
}

#[test]
fn what_an_agent_took_before_it_said_anything_is_handed_over_again() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    live.sends(A, "b");
    assert_eq!(live.store.waiting(), [1, 2], "it may not have begun to read");
    live.agent_dies();
    live.all_heard();
    live.agent_starts(Covering::Unknown);
    assert_eq!(live.heard_by("agent"), ["1: a", "2: b"]);
    live.publishes(covering(0, saying(&[])));
    assert_eq!(live.store.waiting(), [1, 2], "its first word is that it names them");
}

#[test]
fn an_agent_that_stays_silent_leaves_only_so_many_entries_uncovered() {
    let mut live = live(Covering::Unknown);
    let sent = limits::TAKEN_IN_SILENCE + 4;
    for number in 1..=sent {
        live.sends(A, &number.to_string());
    }
    assert_eq!(live.store.waiting(), (5..=sent).collect::<Vec<_>>());
}

#[test]
fn an_agent_that_has_named_an_entry_covers_nothing_by_taking_the_next() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    deals_with(&mut live, 1);
    live.sends(A, "b");
    live.sends(A, "c");
    assert_eq!(live.store.waiting(), [2, 3]);
}

#[test]
fn an_agent_that_says_so_from_the_start_covers_nothing_by_taking_the_next() {
    let mut live = live(Covering::Named);
    live.sends(A, "a");
    live.sends(A, "b");
    assert_eq!(live.store.waiting(), [1, 2]);
}

#[test]
fn an_agent_whose_stored_state_names_an_entry_is_known_to_name_them() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    live.publishes(with_state("after a", covering(1, saying(&[]))));
    live.agent_dies();
    live.agent_starts(Covering::Unknown);
    live.sends(A, "b");
    live.sends(A, "c");
    assert_eq!(live.store.waiting(), [2, 3]);
}

#[test]
fn an_agent_that_stores_states_and_never_names_an_entry_goes_on_covering_by_the_next() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    live.sends(A, "b");
    live.publishes(with_state("state", saying(&["answer"])));
    live.agent_dies();
    live.agent_starts(Covering::Unknown);
    live.says(&["awake"]);
    for id in ["c", "d", "e"] {
        live.sends(A, id);
    }
    assert_eq!(live.store.waiting(), [5]);
}

#[test]
fn a_cover_of_ours_that_is_stored_together_with_a_state_names_nothing() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    live.store_is_slow = true;
    live.says(&["on its way"]);
    live.sends(A, "b");
    live.answer_arrives(1); // it is entered
    live.answer_arrives(2); // and handed over: our cover of the first waits for the append
    live.publishes(with_state("state", saying(&["answer"])));
    live.all_heard();
    live.store_is_slow = false;
    live.store_answers();
    let asked = live.heard_by("store");
    let append = "append from 2: [answer], state state, covers 1";
    assert!(asked.iter().any(|line| line == append), "{asked:?}");
    live.agent_dies();
    live.agent_starts(Covering::Unknown);
    live.says(&["awake"]);
    live.sends(A, "c");
    live.sends(A, "d");
    assert_eq!(live.store.waiting(), [4]);
}

#[test]
fn an_agent_that_has_named_an_entry_once_is_known_by_its_later_states_too() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    live.publishes(with_state("after a", covering(1, saying(&[]))));
    live.publishes(with_state("later", saying(&[])));
    live.agent_dies();
    live.agent_starts(Covering::Unknown);
    live.sends(A, "b");
    live.sends(A, "c");
    assert_eq!(live.store.waiting(), [2, 3]);
}

#[test]
fn a_message_that_the_store_refuses_is_not_handed_over() {
    let mut live = live(Covering::Named);
    live.store.end(&ended_by_user(START)).unwrap();
    live.sends(A, "a");
    assert_eq!(live.heard_by("sender"), ["A: refused: the session has ended"]);
    assert_eq!(live.heard_by("agent"), ["stop"], "the session is over");
}

#[test]
fn an_entry_that_still_waits_to_be_taken_covers_nothing() {
    let mut live = live(Covering::Unknown);
    live.agent_takes = false;
    live.says(&["awake"]);
    for id in ["a", "b", "c"] {
        live.sends(A, id);
    }
    assert_eq!(live.heard_by("agent").len(), 3, "they were handed over");
    assert_eq!(live.store.waiting(), [1, 2, 3]);
    live.happens(WorkerInput::Took { in_seq: InSeq::new(2) });
    assert_eq!(live.store.waiting(), [2, 3]);
    assert_eq!(live.worker.workload(), Workload::Waiting);
}

#[test]
fn what_an_agent_took_that_never_names_an_entry_is_covered_when_it_is_let_go_in_peace() {
    let mut live = live(Covering::Unknown);
    live.sends(A, "a");
    assert_eq!(live.worker.workload(), Workload::Unsure);
    live.happens(WorkerInput::AgentIdle);
    assert!(live.store.waiting().is_empty());
    assert_eq!(live.worker.workload(), Workload::Nothing);
    live.agent_dies();
    live.agent_starts(Covering::Unknown);
    live.says(&["awake"]);
    live.sends(A, "b");
    live.sends(A, "c");
    assert_eq!(live.store.waiting(), [3], "it is still not known to name entries");
}

#[test]
fn an_agent_that_names_entries_is_believed_when_it_is_let_go() {
    let mut live = live(Covering::Named);
    live.sends(A, "a");
    live.happens(WorkerInput::AgentIdle);
    assert_eq!(live.store.waiting(), [1]);
}
