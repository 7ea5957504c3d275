//! What a client is told that comes back, and in which order: confirmation, gap, state, events
//! replayed, replay complete, live events. Always.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::limits::LogBounds;
use rejoin_core::resume::Asked;
use rejoin_core::settings::Settings;
use rejoin_core::state::{Attach, End, Takeover};
use rejoin_core::worker::Covering;
use rejoin_core::{Epoch, Seq};

/// A session of so many events, of which only the newest are held.
fn session_holding(newest: usize, events: u64) -> Stored {
    let mut session = session_with(events);
    session.settle(&LogBounds { events: newest, ..LogBounds::default() }, START);
    session
}

fn live(store: Stored) -> Live {
    let mut live = Live::of(store, Settings::default());
    live.leased();
    live
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed_and_then_what_is_new() {
    let mut live = live(session_with(5));
    live.comes_back(A, 3);
    live.says(&["six"]);
    let heard = [
        "confirmed: resumed, generation 1, from 4",
        "replayed 4 5",
        "replay complete: 4…5",
        "live 6",
    ];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_gap_is_told_before_the_state_and_the_state_before_the_events() {
    let mut store = session_holding(2, 4);
    store.checkpoints("state", 0, START);
    let mut live = live(store);
    live.comes_back(A, 0);
    live.says(&["five"]);
    let heard = [
        "confirmed: resumed, generation 1, from 3, gap 1…2, lost nothing",
        "gap 1…2, lost nothing",
        "state",
        "replayed 3 4",
        "replay complete: 3…4",
        "live 5",
    ];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_gap_without_a_state_is_told_all_the_same() {
    let mut live = live(session_holding(2, 4));
    live.comes_back(A, 1);
    let heard = [
        "confirmed: resumed, generation 1, from 3, gap 2…2, lost 2…2",
        "gap 2…2, lost 2…2",
        "replayed 3 4",
        "replay complete: 3…4",
    ];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_position_of_another_epoch_gets_the_state_and_everything_that_is_held() {
    let mut store = session_holding(2, 4);
    store.checkpoints("state", 0, START);
    let mut live = live(store);
    let asked = Asked {
        last_seq: Some(Seq::new(4)),
        last_event_id: None,
        epoch: Some(Epoch::from_text("lost")),
    };
    live.attaches(A, Some(asked), attach(START));
    let heard = [
        "confirmed: resumed, generation 1, from 3, gap unknown",
        "gap unknown",
        "state",
        "replayed 3 4",
        "replay complete: 3…4",
    ];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_client_that_is_up_to_date_is_told_so() {
    let mut live = live(session_with(5));
    live.comes_back(A, 5);
    let heard = ["confirmed: resumed, generation 1, from 6", "replay complete: nothing"];
    assert_eq!(live.heard_by("A"), heard);
    assert_eq!(live.heard_by("store"), ["attach A"], "there is nothing to read");
}

#[test]
fn a_new_session_has_no_replay_and_nobody_is_told_of_one() {
    let mut live = live(session());
    live.begins(A);
    live.says(&["one"]);
    assert_eq!(live.heard_by("A"), ["confirmed: new, generation 1, from 1", "live 1"]);
}

#[test]
fn what_the_agent_said_before_the_first_client_came_is_not_called_a_replay() {
    let mut live = live(session_with(2));
    live.begins(A);
    assert_eq!(live.heard_by("A"), ["confirmed: new, generation 1, from 1", "live 1 2"]);
}

#[test]
fn a_replay_goes_on_over_many_pages_and_is_completed_once() {
    let mut live = live(session_with(5));
    live.page_events = 2;
    live.comes_back(A, 0);
    let heard = [
        "confirmed: resumed, generation 1, from 1",
        "replayed 1 2",
        "replayed 3 4",
        "replayed 5",
        "replay complete: 1…5",
    ];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn events_that_came_during_a_replay_are_live_even_on_its_last_page() {
    let mut live = live(session_with(3));
    live.is_slow(A);
    live.page_events = 2;
    live.comes_back(A, 0);
    live.says(&["four"]);
    live.all_heard();
    live.takes(A);
    assert_eq!(live.heard_by("A"), ["replayed 3", "replay complete: 1…3", "live 4"]);
}

#[test]
fn a_replay_of_which_some_is_evicted_meanwhile_says_how_much_was_really_sent() {
    let mut live = live(session_with(4));
    live.is_slow(A);
    live.page_events = 1;
    live.comes_back(A, 0);
    live.store.out.trim_before(seq(4));
    assert_eq!(live.heard_by("A").last().unwrap(), "replayed 1");
    live.takes(A);
    let heard = ["gap 2…3, lost 2…3", "replayed 4", "replay complete: 1…4, 2 sent"];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_replay_that_is_evicted_whole_is_completed_with_nothing() {
    let mut live = live(session_with(2));
    live.comes_back(A, 2);
    live.all_heard();
    live.store.says(1, START);
    live.store.out.trim_before(seq(3));
    live.misses_something_after(A, 0);
    let heard = ["gap 1…2, lost 1…2", "replay complete: nothing", "live 3"];
    assert_eq!(live.heard_by("A"), heard);
}

#[test]
fn a_client_that_is_refused_stays_connected_and_is_not_attached() {
    let mut live = Live::new();
    live.begins(A);
    live.all_heard();
    let second = Attach { takeover: Takeover::Reject, ..attach(START) };
    live.attaches(B, Some(Asked::default()), second);
    let why = "refused: another connection is attached to the session";
    assert_eq!(live.heard_by("B"), [why, "not attached"]);
    live.leased();
    live.says(&["one"]);
    assert_eq!(live.heard_by("A"), ["live 1"]);
    assert!(live.heard_by("B").is_empty());
}

#[test]
fn a_session_that_ended_in_the_store_refuses_whoever_comes() {
    let mut live = Live::new();
    live.agent_starts(Covering::Named);
    live.store.end(&End { remember_for: HOUR, ..ended_by_user(START) }).unwrap();
    live.comes_back(A, 0);
    assert_eq!(live.heard_by("A"), ["refused: the session has ended", "not attached"]);
}
