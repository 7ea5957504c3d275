//! How a client that is gone is noticed, and what counts as a sign of life.

use crate::common::live::*;
use crate::common::*;
use rejoin_core::settings::Settings;

/// A heartbeat every ten seconds; two may go unanswered.
fn patient() -> Settings {
    Settings {
        heartbeat_interval: SECOND * 10,
        heartbeat_timeout: HOUR,
        max_heartbeat_misses: 2,
        ..Settings::default()
    }
}

fn attached(settings: Settings) -> Live {
    let mut live = Live::with(settings);
    live.leased();
    live.begins(A);
    live.all_heard();
    live
}

/// Whether A is attached after it did this every five seconds for ten minutes.
fn lives_by(settings: Settings, sign_of_life: impl Fn(&mut Live)) -> bool {
    let mut live = attached(settings);
    for _ in 0..120 {
        live.wait(SECOND * 5);
        sign_of_life(&mut live);
    }
    live.store.vitals.attached.is_some()
}

#[test]
fn a_heartbeat_goes_out_every_interval_and_names_the_head() {
    let mut live = attached(patient());
    live.wait(SECOND * 9);
    assert!(live.heard_by("A").is_empty());
    live.wait(SECOND);
    live.says(&["one"]);
    live.speaks(A);
    live.wait(SECOND * 10);
    assert_eq!(live.heard_by("A"), ["heartbeat at 0", "live 1", "heartbeat at 1"]);
}

#[test]
fn a_client_that_let_two_heartbeats_pass_is_closed_and_its_session_parked() {
    let mut live = attached(patient());
    live.wait(SECOND * 29);
    assert_eq!(live.heard_by("A"), ["heartbeat at 0", "heartbeat at 0"]);
    live.wait(SECOND);
    assert_eq!(live.heard_by("A"), ["closed 4001"]);
    assert_eq!(live.heard_by("metrics"), ["heartbeat missed"; 2]);
    assert_eq!(live.heard_by("policy"), ["parked: keep it 86400s"]);
    assert_eq!(live.store.vitals.attached, None);
    assert_eq!(live.next_deadline(), None, "nobody is there to wait for");
}

#[test]
fn a_client_not_heard_of_for_the_timeout_is_closed_whatever_it_was_sent() {
    let settings = Settings { heartbeat_timeout: SECOND * 15, ..patient() };
    let mut live = attached(settings);
    live.wait(SECOND * 14);
    assert_eq!(live.heard_by("A"), ["heartbeat at 0"]);
    live.wait(SECOND);
    assert_eq!(live.heard_by("A"), ["closed 4001"]);
}

#[test]
fn an_answered_heartbeat_is_not_missed() {
    let mut live = attached(patient());
    live.wait(SECOND * 25);
    live.speaks(A);
    assert_eq!(live.heard_by("metrics"), ["heartbeat missed"], "the first one was");
    live.all_heard();
    live.wait(SECOND * 24);
    assert_eq!(live.heard_by("A"), ["heartbeat at 0", "heartbeat at 0"]);
    live.wait(SECOND);
    assert_eq!(live.heard_by("A"), ["closed 4001"]);
}

#[test]
fn any_frame_keeps_a_client_and_so_does_any_event_that_its_transport_takes() {
    assert!(!lives_by(patient(), |_| {}));
    assert!(lives_by(patient(), |live| live.speaks(A)), "a frame");
    assert!(lives_by(patient(), |live| live.pongs(A)), "a pong");
    assert!(lives_by(patient(), |live| live.acks(A, 0)), "an ack");
    assert!(lives_by(patient(), |live| live.sends(A, "message")), "a message");
    assert!(lives_by(patient(), |live| live.says(&["event"])), "an event it takes");
}

#[test]
fn a_transport_that_takes_nothing_but_heartbeats_shows_no_life() {
    assert!(!lives_by(patient(), |live| live.takes(A)));
}

#[test]
fn events_that_a_stuck_transport_does_not_take_show_no_life() {
    let mut live = attached(patient());
    live.is_slow(A);
    for _ in 0..6 {
        live.wait(SECOND * 5);
        live.says(&["event"]);
    }
    assert_eq!(live.heard_by("A").last().unwrap(), "closed 4001");
}

#[test]
fn a_client_that_only_receives_or_pongs_is_cut_off_by_the_inactivity_timeout_if_one_is_set() {
    let impatient = Settings { inactivity_timeout: Some(MINUTE), ..patient() };
    assert!(!lives_by(impatient.clone(), |live| live.pongs(A)));
    assert!(!lives_by(impatient.clone(), |live| live.says(&["event"])));
    assert!(lives_by(impatient, |live| live.acks(A, 0)));
}

#[test]
fn inactivity_is_measured_from_the_last_thing_the_client_did() {
    let settings = Settings { inactivity_timeout: Some(SECOND * 25), ..patient() };
    let mut live = attached(settings);
    live.later(SECOND * 5).acks(A, 0);
    live.wait(SECOND * 24);
    assert!(live.store.vitals.attached.is_some());
    live.wait(SECOND);
    assert_eq!(live.heard_by("A").last().unwrap(), "closed 4001");
}

#[test]
fn a_client_gets_its_next_token_with_a_heartbeat_after_half_the_life_of_the_last() {
    let settings = Settings { token_ttl: SECOND * 40, ..patient() };
    let mut live = attached(settings);
    let mut heard = Vec::new();
    for _ in 0..5 {
        live.wait(SECOND * 10);
        live.speaks(A);
        heard.extend(live.heard_by("A"));
    }
    let with_token = "heartbeat at 0, new token";
    let plain = "heartbeat at 0";
    assert_eq!(heard, [plain, with_token, plain, with_token, plain]);
}

#[test]
fn the_next_deadline_is_the_soonest_of_heartbeat_and_silence() {
    let settings = Settings { heartbeat_timeout: SECOND * 15, ..patient() };
    let mut live = attached(settings);
    assert_eq!(live.next_deadline(), Some(at(10)));
    live.wait(SECOND * 10);
    assert_eq!(live.next_deadline(), Some(at(15)));
    live.speaks(A);
    assert_eq!(live.next_deadline(), Some(at(20)));
}
