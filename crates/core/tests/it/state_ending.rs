//! How a session is kept, ends, and is found again by the next process: clean-ups of older
//! generations do nothing, and nothing expires before its client had time to come back.

use crate::common::*;
use rejoin_core::lifetime::{Lifetime, Verdict};
use rejoin_core::record::{Ending, Status};
use rejoin_core::state::{End, EndRefused, EnterRefused, Entered, Keep, NewToken, Recovery, Stale};
use rejoin_core::token::TokenHash;
use rejoin_core::{Epoch, Generation, LogId, Term, Timestamp};

fn stale(named: u64, current: u64) -> Stale {
    Stale { named: Generation::new(named), current: Generation::new(current) }
}

/// A clean-up of a session that was parked under this generation.
fn clean_up(generation: u64, now: Timestamp) -> End {
    End { only_parked: Some(Generation::new(generation)), ..ended_by_user(now) }
}

/// A session that has something of everything.
fn full_session() -> Stored {
    let mut session = session_with(3);
    session.tokens.put(NewToken { hash: TokenHash::of("t"), expires_at: at(900) }, START);
    session.comes(START);
    session.acks(2).expect("they were sent");
    session.gets("covered", "", START).expect("there is room");
    session.gets("waiting", "", START).expect("there is room");
    session.checkpoints("state", 1, START);
    session.leased_to(1, START);
    session
}

#[test]
fn an_end_takes_both_logs_the_snapshot_and_the_lease() {
    let mut session = full_session();
    session.end(&ended_by_user(at(1))).unwrap();
    assert!(session.held().is_empty() && session.waiting().is_empty());
    assert_eq!((session.state(), session.out.bytes(), session.inbox.bytes()), (None, 0, 0));
    assert_eq!((&session.vitals.lease, session.vitals.attached), (&None, None));
    let forget_at = at(1) + HOUR;
    let status = Status::Ended { ending: Ending::Closed, at: at(1), forget_at };
    assert_eq!(session.vitals.status, status);
    assert_eq!(session.record().due_at(), Some(forget_at));
}

#[test]
fn a_client_that_was_replaced_ends_nothing() {
    let mut session = full_session();
    let by =
        |generation| End { only_by: Some(Generation::new(generation)), ..ended_by_user(at(1)) };
    session.comes(START);
    assert_eq!(session.end(&by(1)), Err(EndRefused::Stale(stale(1, 2))));
    assert_eq!(session.held().len(), 3);
    session.end(&by(2)).unwrap();
}

#[test]
fn the_numbering_and_the_tokens_outlive_the_end() {
    let mut session = full_session();
    session.end(&ended_by_user(at(1))).unwrap();
    let record = session.record();
    assert_eq!((record.head, record.oldest, record.acked), (seq(3), seq(4), seq(2)));
    assert_eq!((record.in_head, record.covered), (in_seq(2), in_seq(2)));
    assert_eq!((record.generation.get(), record.term.get()), (1, 1));
    assert!(session.tokens.knows(&TokenHash::of("t")));
    assert!(!record.has_work(), "there is nothing to do in a session that is over");
}

#[test]
fn message_ids_stay_when_time_ran_out_and_go_when_the_user_ended_it() {
    let mut closed = full_session();
    closed.end(&ended_by_user(at(1))).unwrap();
    assert!(closed.seen.is_empty());
    let mut expired = full_session();
    expired.goes(START);
    expired.end(&time_ran_out(START + HOUR)).unwrap();
    let known: Vec<u64> = expired.seen.iter().map(|message| message.in_seq.get()).collect();
    assert_eq!(known, [1], "what nobody dealt with went with the in log and may be sent again");
}

#[test]
fn a_session_ends_once() {
    let mut session = session();
    session.end(&ended_by_user(at(1))).unwrap();
    assert_eq!(session.end(&ended_by_user(at(2))), Err(EndRefused::Already));
    assert_eq!(session.end(&clean_up(9, at(2))), Err(EndRefused::Already));
    let Status::Ended { at: when, .. } = session.vitals.status else { panic!("it has ended") };
    assert_eq!(when, at(1));
}

#[test]
fn a_clean_up_of_an_older_generation_does_nothing() {
    let mut session = session();
    session.comes(START);
    session.goes(at(1));
    session.comes(at(2));
    session.goes(at(3));
    assert_eq!(session.end(&clean_up(1, at(4))), Err(EndRefused::Stale(stale(1, 2))));
    assert_eq!(session.end(&clean_up(2, at(4))), Ok(()));
}

#[test]
fn a_clean_up_never_ends_a_session_with_an_attachment() {
    let mut session = session();
    session.comes(START);
    assert_eq!(session.end(&clean_up(1, at(1))), Err(EndRefused::Attached));
    assert_eq!(session.end(&ended_by_user(at(1))), Ok(()), "its user may");
}

#[test]
fn time_runs_out_at_the_deadline_and_not_before() {
    let mut session = session();
    session.comes(START);
    session.goes(at(1));
    let deadline = at(1) + HOUR;
    let due = |now| End { ending: Ending::Expired, only_due: true, ..clean_up(1, now) };
    let early = session.end(&due(deadline - SECOND));
    assert_eq!(early, Err(EndRefused::NotDue(deadline)));
    assert_eq!(session.end(&due(deadline)), Ok(()));
}

#[test]
fn time_never_runs_out_for_a_session_with_an_attachment() {
    let mut session = session();
    session.comes(START);
    assert_eq!(session.end(&time_ran_out(START + SESSION_TTL)), Err(EndRefused::Attached));
}

#[test]
fn a_message_does_not_revive_a_session_whose_time_has_run_out() {
    let mut session = session();
    let late = START + SESSION_TTL;
    assert_eq!(session.gets("late", "", late), Err(EnterRefused::Ended(Ending::Expired)));
    assert_eq!(session.vitals.expires_at, late);
}

#[test]
fn a_parked_session_may_be_kept_longer_or_shorter_unless_its_client_has_come_back() {
    let mut session = session();
    session.comes(START);
    session.goes(at(1));
    let keep = |generation, until| Keep { generation: Generation::new(generation), until };
    for until in [at(5), START + HOUR * 9] {
        session.keep(&keep(1, until)).unwrap();
        assert_eq!(session.record().due_at(), Some(until));
    }
    session.comes(at(2));
    assert_eq!(session.keep(&keep(1, at(3))), Err(stale(1, 2)));
}

#[test]
fn nothing_enters_a_session_that_is_over_not_even_what_is_known() {
    let mut session = full_session();
    session.end(&ended_by_user(at(1))).unwrap();
    let refused = EnterRefused::Ended(Ending::Closed);
    assert_eq!(session.gets("new", "", at(2)), Err(refused.clone()));
    assert_eq!(session.gets("covered", "", at(2)), Err(refused));
}

#[test]
fn acks_of_a_session_that_is_over_move_nothing_beyond_its_head() {
    let mut session = full_session();
    session.end(&ended_by_user(at(1))).unwrap();
    session.acks(3).unwrap();
    session.acks(4).unwrap_err();
    assert_eq!(session.record().oldest, seq(4));
}

// The next process.

fn recovery(now: Timestamp) -> Recovery {
    Recovery { now, keep_for: HOUR, longest: SESSION_TTL }
}

#[test]
fn a_session_that_was_attached_when_the_process_died_is_parked_from_its_next_start() {
    let mut session = full_session();
    let next_start = START + HOUR * 100;
    session.recover(&recovery(next_start), None);
    assert_eq!((session.vitals.attached, &session.vitals.lease), (None, &None));
    assert_eq!(session.vitals.last_activity, next_start);
    assert_eq!(session.vitals.expires_at, next_start + HOUR);
}

#[test]
fn a_client_has_been_away_since_the_process_that_it_was_attached_to_was_last_alive() {
    let mut session = full_session();
    let (last_alive, next_start) = (START + HOUR * 3, START + HOUR * 100);
    session.recover(&recovery(next_start), Some(last_alive));
    assert_eq!(session.record().away_since(), Some(last_alive));
    // Another start, before anybody came back.
    session.recover(&recovery(next_start + HOUR), Some(next_start + MINUTE));
    assert_eq!(session.record().away_since(), Some(last_alive));
    session.comes(next_start + HOUR);
    assert_eq!(session.record().away_since(), None);
    session.goes(next_start + HOUR + MINUTE);
    assert_eq!(session.record().away_since(), Some(next_start + HOUR + MINUTE));
}

#[test]
fn a_sign_of_life_is_believed_only_between_the_client_s_own_and_now() {
    let [mut older, mut ahead] = [full_session(), full_session()];
    let seen = older.record().last_seen;
    older.recover(&recovery(START + HOUR), Some(START - HOUR));
    assert_eq!(older.record().away_since(), Some(seen));
    ahead.recover(&recovery(START + HOUR), Some(START + HOUR * 2));
    assert_eq!(ahead.record().away_since(), Some(START + HOUR));
}

#[test]
fn generation_and_term_survive_so_that_late_words_of_the_dead_process_are_refused() {
    let mut session = full_session();
    let dead = session.vitals.term;
    session.recover(&recovery(at(1)), None);
    assert_eq!(session.vitals.generation, Generation::new(1));
    assert_eq!(session.leased_to(1, at(1)), Term::new(2), "even the same process is another one");
    let late = session.append_of(1, dead, at(2));
    assert_eq!(session.append(late), Err(fenced(1, 2)));
}

#[test]
fn nothing_that_was_there_expires_in_the_first_minute() {
    let mut session = session();
    session.comes(START);
    session.goes(at(1));
    let long_after_its_deadline = START + HOUR * 100;
    session.recover(&recovery(long_after_its_deadline), None);
    assert_eq!(session.vitals.expires_at, long_after_its_deadline + MINUTE);
    assert_eq!(session.vitals.last_activity, at(1), "nobody has been heard of since");
}

#[test]
fn a_deadline_in_reach_stays_what_it_was() {
    let mut session = session();
    session.comes(START);
    session.goes(at(1));
    session.recover(&recovery(at(2)), None);
    assert_eq!(session.vitals.expires_at, at(1) + HOUR);
}

#[test]
fn a_deadline_that_a_clock_ahead_of_time_made_is_brought_back_into_reach() {
    let a_year_ahead = START + SESSION_TTL * 365;
    let mut session = Stored::create(create("ahead", a_year_ahead));
    session.comes(a_year_ahead);
    session.goes(a_year_ahead);
    session.recover(&recovery(at(1)), None);
    assert_eq!(session.vitals.expires_at, at(1) + SESSION_TTL);
}

#[test]
fn a_sign_of_life_that_is_still_to_come_does_not_keep_a_session_beyond_its_ttl() {
    let a_year_ahead = START + SESSION_TTL * 365;
    let mut session = Stored::create(create("ahead", a_year_ahead));
    session.gets("work", "", a_year_ahead).unwrap();
    session.recover(&recovery(at(1)), None);
    let policy = Lifetime { session_ttl: SESSION_TTL, ..Lifetime::default() };
    let due = session.vitals.expires_at;
    assert_eq!(policy.on_due(&session.record(), due), Verdict::End);
}

#[test]
fn recovering_twice_is_recovering_once() {
    let mut session = full_session();
    session.recover(&recovery(at(1)), None);
    let once = session.vitals.clone();
    session.recover(&recovery(at(1)), None);
    assert_eq!(session.vitals, once);
}

#[test]
fn a_lost_log_begins_another_epoch_under_another_name() {
    let mut session = session_with(3);
    session.begin_epoch(Epoch::from_text("second"), LogId::new(4711));
    let record = session.record();
    assert_eq!(
        (record.epoch.as_str(), record.log, record.first_epoch),
        ("second", LogId::new(4711), false)
    );
    assert_eq!(session.held(), [1, 2, 3], "what is whole stays");
    assert_eq!(session.says(1, START).head, seq(4), "and is numbered on from");
}

#[test]
fn a_message_that_is_known_is_confirmed_after_a_restart_too() {
    let mut session = full_session();
    session.recover(&recovery(at(1)), None);
    let again = session.gets("waiting", "", at(2)).unwrap();
    assert_eq!(again, Entered { in_seq: in_seq(2), duplicate: true });
}
