//! The last client goes: what the policy is asked, what goes on without a client, how a session ends
//! and what clients are told when the server goes down.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::lifetime::{Lifetime, OnDisconnect};
use rejoin_core::settings::Settings;
use rejoin_core::state::Attach;
use rejoin_core::worker::Covering;

fn settings(on_disconnect: OnDisconnect) -> Settings {
    let disconnect_ttl = Some(MINUTE * 10);
    let lifetime = Lifetime { on_disconnect, disconnect_ttl, session_ttl: SESSION_TTL };
    Settings { lifetime, ..Settings::default() }
}

fn ends_without_work() -> Settings {
    let mut settings = settings(OnDisconnect::WhilePending);
    settings.lifetime.disconnect_ttl = None;
    settings
}

fn live(settings: Settings) -> Live {
    let mut live = Live::with(settings);
    live.agent_starts(Covering::Named);
    live.begins(A);
    live.all_heard();
    live
}

#[test]
fn when_the_client_goes_the_session_is_parked_for_as_long_as_the_policy_says() {
    let table = [
        (settings(OnDisconnect::Immediate), "parked: end it"),
        (settings(OnDisconnect::Ttl), "parked: keep it 600s"),
        (Settings::default(), "parked: keep it 86400s"),
        (settings(OnDisconnect::WhilePending), "parked: keep it 600s"),
        (ends_without_work(), "parked: end it"),
    ];
    for (settings, expected) in table {
        let mut live = live(settings);
        live.later(SECOND).leaves(A);
        assert_eq!(live.heard_by("policy"), [expected]);
        assert_eq!(live.heard_by("store"), ["detach generation 1"]);
        assert!(live.is_idle());
    }
}

#[test]
fn the_store_keeps_a_parked_session_as_long_as_the_policy_said() {
    let mut live = live(settings(OnDisconnect::Ttl));
    live.later(SECOND).leaves(A);
    assert_eq!(live.store.vitals.expires_at, at(1) + MINUTE * 10);
}

#[test]
fn a_client_that_leaves_twice_has_left_once() {
    let mut live = live(Settings::default());
    live.leaves(A);
    live.leaves(A);
    assert_eq!(live.heard_by("store"), ["detach generation 1"]);
}

#[test]
fn work_under_way_keeps_a_session_and_its_end_asks_the_policy_again() {
    let mut live = live(ends_without_work());
    live.sends(A, "work");
    live.leaves(A);
    assert_eq!(live.heard_by("policy"), ["parked: keep it 86400s"]);
    assert!(!live.is_idle(), "the agent has something to do");
    live.later(HOUR).says(&["half of it"]);
    assert!(live.heard_by("policy").is_empty());
    live.publishes(covering(1, saying(&["all of it"])));
    assert_eq!(live.heard_by("policy"), ["work done: end it"]);
    assert!(live.is_idle());
}

#[test]
fn a_client_that_went_during_a_long_answer_has_the_ttl_to_come_for_it() {
    let mut live = live(settings(OnDisconnect::WhilePending));
    live.sends(A, "work");
    live.leaves(A);
    live.all_heard();
    live.later(HOUR).publishes(covering(1, saying(&["answer"])));
    assert_eq!(live.heard_by("policy"), ["work done: keep it 600s"]);
    assert_eq!(live.store.vitals.expires_at, START + HOUR + MINUTE * 10);
}

#[test]
fn work_done_is_asked_about_once_and_not_while_a_client_is_attached() {
    let mut live = live(ends_without_work());
    live.sends(A, "work");
    live.publishes(covering(1, saying(&["answer"])));
    assert!(live.heard_by("policy").is_empty());
    live.sends(A, "more work");
    live.leaves(A);
    live.publishes(covering(2, saying(&["answer"])));
    live.publishes(covering(2, saying(&["something else"])));
    assert_eq!(live.heard_by("policy"), ["parked: keep it 86400s", "work done: end it"]);
}

#[test]
fn work_that_comes_over_http_to_a_parked_session_asks_the_policy_when_it_is_done() {
    let mut live = live(settings(OnDisconnect::Ttl));
    live.leaves(A);
    live.later(MINUTE).posted("work");
    live.all_heard();
    live.later(MINUTE).publishes(covering(1, saying(&["answer"])));
    assert_eq!(live.heard_by("policy"), ["work done: keep it 600s"]);
}

#[test]
fn work_done_while_somebody_is_being_refused_asks_the_policy() {
    let mut live = live(ends_without_work());
    live.sends(A, "work");
    live.leaves(A);
    live.all_heard();
    live.store_is_slow = true;
    live.attaches(B, None, Attach { principal: somebody_else(), ..attach(START) });
    live.publishes(covering(1, saying(&["answer"])));
    live.answer_arrives(1); // the append is answered first
    assert_eq!(live.heard_by("policy"), ["work done: end it"]);
    live.store_answers();
    assert_eq!(live.heard_by("B").last().unwrap(), "not attached");
}

#[test]
fn work_done_in_a_session_that_nobody_has_attached_to_yet_does_not_end_it() {
    let mut live = Live::with(ends_without_work());
    live.agent_starts(Covering::Named);
    live.posted("work");
    live.publishes(covering(1, saying(&["answer"])));
    assert!(live.heard_by("policy").is_empty(), "it waits as long as it was made to");
}

#[test]
fn a_parked_session_has_no_deadline_of_its_own() {
    let mut live = live(Settings::default());
    assert!(live.next_deadline().is_some());
    live.leaves(A);
    assert_eq!(live.next_deadline(), None);
}

#[test]
fn who_ended_the_session_stays_connected() {
    let mut live = live(Settings::default());
    live.ends(Some(A));
    assert_eq!(live.heard_by("A"), ["ended"]);
    assert_eq!(live.heard_by("agent"), ["stop"]);
    assert!(live.worker.is_over());
}

#[test]
fn who_is_about_to_attach_when_the_session_ends_is_refused_once_the_store_has_answered() {
    for attached_before_the_end in [true, false] {
        let mut live = live(Settings::default());
        live.store_is_slow = true;
        if !attached_before_the_end {
            live.store.end(&ended_by_user(START)).unwrap();
        }
        live.comes_back(B, 0);
        live.ends(None);
        assert_eq!(live.heard_by("A"), ["ended", "closed 4101"]);
        assert!(live.heard_by("B").is_empty(), "nobody knows yet what became of it");
        assert!(!live.is_idle(), "somebody waits");
        live.store_answers();
        let expected: &[&str] = match attached_before_the_end {
            true => &[
                "confirmed: resumed, generation 2, from 1",
                "replay complete: nothing",
                "ended",
                "closed 4101",
            ],
            false => &["refused: the session has ended", "not attached"],
        };
        assert_eq!(live.heard_by("B"), expected);
        assert!(live.is_idle());
    }
}

#[test]
fn a_session_that_was_ended_by_nobody_here_closes_everybody() {
    let mut live = live(Settings::default());
    live.ends(None);
    assert_eq!(live.heard_by("A"), ["ended", "closed 4101"]);
}

#[test]
fn clients_of_a_session_that_goes_on_in_another_are_superseded_and_the_agent_is_stopped() {
    let mut live = live(Settings::default());
    live.is_replaced();
    assert_eq!(live.heard_by("A"), ["superseded", "closed 4100"]);
    assert_eq!(live.heard_by("agent"), ["stop"]);
    assert!(live.worker.is_over());
}

#[test]
fn after_the_end_nothing_is_entered_parked_or_asked_for() {
    let mut live = live(ends_without_work());
    live.sends(A, "work");
    live.all_heard();
    live.ends(Some(A));
    live.sends(A, "too late");
    live.leaves(A);
    live.wait(HOUR);
    assert_eq!(live.heard_by("sender"), ["A: refused: the session has ended"]);
    assert_eq!(live.heard_by("store"), ["enter too late"]);
    assert!(live.heard_by("policy").is_empty());
    assert!(live.is_idle(), "what was to be done is to be done no more");
}

#[test]
fn a_session_that_the_store_shows_as_ended_is_over_from_the_start() {
    let mut store = session();
    store.end(&ended_by_user(START)).unwrap();
    let mut live = Live::of(store, Settings::default());
    assert!(live.worker.is_over());
    live.posted("too late");
    assert_eq!(live.heard_by("sender"), ["http: refused: the session has ended"]);
}

#[test]
fn when_the_server_goes_down_clients_are_told_and_what_is_under_way_goes_on() {
    let mut live = live(Settings::default());
    live.drains();
    live.says(&["one"]);
    assert_eq!(live.heard_by("A"), ["draining", "live 1"]);
    assert!(live.heard_by("store").iter().all(|line| !line.starts_with("detach")));
}
