//! How long a session without a client is kept: decision 0005 as a table, and its one bound.

use std::time::Duration;

use crate::common::*;
use rejoin_core::Timestamp;
use rejoin_core::lifetime::OnDisconnect::{Immediate, Ttl, WhilePending};
use rejoin_core::lifetime::Verdict::{End, KeepUntil};
use rejoin_core::lifetime::{Lifetime, OnDisconnect, Verdict};
use rejoin_core::record::Record;

const UNSET: Option<Duration> = None;
const TEN_MINUTES: Option<Duration> = Some(Duration::from_secs(600));
const WORK: bool = true;
const NO_WORK: bool = false;

fn policy(on_disconnect: OnDisconnect, disconnect_ttl: Option<Duration>) -> Lifetime {
    Lifetime { on_disconnect, disconnect_ttl, session_ttl: SESSION_TTL }
}

/// A session that was last heard of at the start, with or without an entry for the agent.
fn record(work: bool) -> Record {
    let mut session = session();
    if work {
        session.gets("m", "do this", START).expect("there is room");
    }
    session.record()
}

fn keep_for(duration: Duration, from: Timestamp) -> Verdict {
    KeepUntil(from + duration)
}

#[test]
fn when_the_last_client_goes() {
    let now = at(100);
    let ten = TEN_MINUTES.unwrap();
    let table = [
        (Immediate, UNSET, NO_WORK, End),
        (Immediate, UNSET, WORK, End),
        (Immediate, TEN_MINUTES, NO_WORK, End),
        (Immediate, TEN_MINUTES, WORK, End),
        (Ttl, UNSET, NO_WORK, keep_for(SESSION_TTL, now)),
        (Ttl, UNSET, WORK, keep_for(SESSION_TTL, now)),
        (Ttl, TEN_MINUTES, NO_WORK, keep_for(ten, now)),
        (Ttl, TEN_MINUTES, WORK, keep_for(SESSION_TTL, now)),
        (WhilePending, UNSET, NO_WORK, End),
        (WhilePending, UNSET, WORK, keep_for(SESSION_TTL, now)),
        (WhilePending, TEN_MINUTES, NO_WORK, keep_for(ten, now)),
        (WhilePending, TEN_MINUTES, WORK, keep_for(SESSION_TTL, now)),
    ];
    for (on_disconnect, ttl, work, expected) in table {
        let verdict = policy(on_disconnect, ttl).on_detach(&record(work), now);
        assert_eq!(verdict, expected, "{on_disconnect:?}, ttl {ttl:?}, work: {work}");
    }
}

#[test]
fn when_the_work_is_done_and_nobody_is_there_the_ttl_counts_from_then() {
    let now = at(100);
    let table = [
        (Immediate, UNSET, End),
        (Immediate, TEN_MINUTES, End),
        (Ttl, UNSET, keep_for(SESSION_TTL, START)),
        (Ttl, TEN_MINUTES, keep_for(TEN_MINUTES.unwrap(), now)),
        (WhilePending, UNSET, End),
        (WhilePending, TEN_MINUTES, keep_for(TEN_MINUTES.unwrap(), now)),
    ];
    for (on_disconnect, ttl, expected) in table {
        let verdict = policy(on_disconnect, ttl).on_work_done(&record(NO_WORK), now);
        assert_eq!(verdict, expected, "{on_disconnect:?}, ttl {ttl:?}");
    }
}

#[test]
fn when_the_deadline_comes_only_work_keeps_a_session_and_only_within_session_ttl() {
    let limit = START + SESSION_TTL;
    let table = [
        (Immediate, NO_WORK, at(100), End),
        (Immediate, WORK, at(100), End),
        (Ttl, NO_WORK, at(100), End),
        (Ttl, WORK, at(100), KeepUntil(limit)),
        (Ttl, WORK, limit - Duration::from_millis(1), KeepUntil(limit)),
        (Ttl, WORK, limit, End),
        (WhilePending, NO_WORK, at(100), End),
        (WhilePending, WORK, at(100), KeepUntil(limit)),
        (WhilePending, WORK, limit, End),
    ];
    for (on_disconnect, work, now, expected) in table {
        for ttl in [UNSET, TEN_MINUTES] {
            let verdict = policy(on_disconnect, ttl).on_due(&record(work), now);
            assert_eq!(verdict, expected, "{on_disconnect:?}, ttl {ttl:?}, work: {work}, {now}");
        }
    }
}

#[test]
fn no_verdict_keeps_a_session_longer_than_session_ttl_after_its_last_sign_of_life() {
    let longer_than_all = Some(SESSION_TTL * 10);
    let limit = START + SESSION_TTL;
    for on_disconnect in [Immediate, Ttl, WhilePending] {
        for ttl in [UNSET, TEN_MINUTES, longer_than_all] {
            for work in [WORK, NO_WORK] {
                let (policy, record) = (policy(on_disconnect, ttl), record(work));
                for hours in 0..30 {
                    let now = START + HOUR * hours;
                    let verdicts = [policy.on_work_done(&record, now), policy.on_due(&record, now)];
                    let detached = (hours == 0).then(|| policy.on_detach(&record, now));
                    for verdict in verdicts.into_iter().chain(detached) {
                        let KeepUntil(until) = verdict else { continue };
                        assert!(now < until && until <= limit, "{policy:?} at {now}: {until}");
                    }
                }
            }
        }
    }
}

#[test]
fn work_done_at_the_very_end_of_session_ttl_ends_the_session() {
    let limit = START + SESSION_TTL;
    let policy = policy(Ttl, TEN_MINUTES);
    assert_eq!(policy.on_work_done(&record(NO_WORK), limit - SECOND), KeepUntil(limit));
    assert_eq!(policy.on_work_done(&record(NO_WORK), limit), End);
}

#[test]
fn a_parked_session_without_work_is_kept_for_the_idle_ttl() {
    let table = [
        (Immediate, TEN_MINUTES, Duration::ZERO),
        (Ttl, UNSET, SESSION_TTL),
        (Ttl, TEN_MINUTES, MINUTE * 10),
        (Ttl, Some(SESSION_TTL * 2), SESSION_TTL),
        (WhilePending, UNSET, Duration::ZERO),
        (WhilePending, TEN_MINUTES, MINUTE * 10),
    ];
    for (on_disconnect, ttl, expected) in table {
        assert_eq!(policy(on_disconnect, ttl).idle_ttl(), expected, "{on_disconnect:?}, {ttl:?}");
    }
}
