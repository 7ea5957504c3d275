//! What a client may do to its session: attach, detach, ack, send. Every refusal has one reason, and
//! the first check that fails names it.

use crate::common::*;
use rejoin_core::Generation;
use rejoin_core::lifetime::Lifetime;
use rejoin_core::limits;
use rejoin_core::record::{Ending, Transport};
use rejoin_core::state::{
    Ack, AckRefused, Attach, AttachRefused, Detach, Enter, EnterRefused, Entered, NewToken, Stale,
    Takeover, TokenFault, TokenUse,
};
use rejoin_core::token::TokenHash;

fn generation(n: u64) -> Generation {
    Generation::new(n)
}

fn stale(named: u64, current: u64) -> Stale {
    Stale { named: generation(named), current: generation(current) }
}

fn token(name: &str) -> NewToken {
    NewToken { hash: TokenHash::of(name), expires_at: START + HOUR }
}

/// I attach with a token.
fn with_token(name: &str) -> Attach {
    let hash = TokenHash::of(name);
    let token =
        TokenUse { hash, successor: token("next"), generation: generation(0), by_call: false };
    Attach { token: Some(token), ..attach(at(1)) }
}

/// Why I can't.
fn refusal(session: &mut Stored, attach: &Attach) -> AttachRefused {
    session.attach(attach).expect_err("it should be refused")
}

#[test]
fn each_attachment_has_the_next_generation_and_only_coming_back_is_counted() {
    let mut session = session();
    let first = session.comes(at(1));
    let second = session.comes(at(2));
    session.goes(at(3));
    let third = session.comes(at(4));
    let generations = [&first, &second, &third].map(|attached| attached.record.generation.get());
    assert_eq!(generations, [1, 2, 3]);
    let superseded = [&first, &second, &third].map(|attached| attached.superseded);
    assert_eq!(superseded, [false, true, false]);
    let counts = [&first, &second, &third].map(|attached| attached.record.reconnect_count);
    assert_eq!(counts, [0, 1, 2]);
}

#[test]
fn attaching_never_changes_the_term() {
    let mut session = session();
    let term = session.leased_to(1, at(0));
    session.comes(at(1));
    assert_eq!(session.vitals.term, term);
}

#[test]
fn the_owner_is_checked_before_anything_else() {
    let mut session = session();
    session.put_token(token("good"), START).unwrap();
    session.end(&ended_by_user(START)).unwrap();
    for attach in [attach(at(1)), with_token("good"), with_token("unknown")] {
        let foreign = Attach { principal: somebody_else(), ..attach };
        assert_eq!(refusal(&mut session, &foreign), AttachRefused::Foreign);
    }
}

#[test]
fn an_unknown_token_is_named_before_the_session_s_end() {
    let mut session = session();
    session.put_token(token("good"), START).unwrap();
    session.end(&ended_by_user(START)).unwrap();
    let unknown = AttachRefused::Token(TokenFault::Unknown);
    assert_eq!(refusal(&mut session, &with_token("unknown")), unknown);
    let ended = AttachRefused::Ended(Ending::Closed);
    assert_eq!(refusal(&mut session, &with_token("good")), ended);
    assert_eq!(refusal(&mut session, &attach(at(1))), ended);
}

#[test]
fn a_session_whose_time_has_run_out_is_refused_before_anybody_has_noticed() {
    let mut session = session();
    let late = attach(START + SESSION_TTL);
    assert_eq!(refusal(&mut session, &late), AttachRefused::Ended(Ending::Expired));
}

#[test]
fn under_reject_the_later_one_is_refused_unless_it_brings_a_good_token() {
    let mut session = session();
    session.put_token(token("good"), START).unwrap();
    session.comes(START);
    let without = Attach { takeover: Takeover::Reject, ..attach(at(1)) };
    assert_eq!(refusal(&mut session, &without), AttachRefused::AlreadyAttached);
    let unknown = Attach { takeover: Takeover::Reject, ..with_token("unknown") };
    assert_eq!(refusal(&mut session, &unknown), AttachRefused::Token(TokenFault::Unknown));
    let good = Attach { takeover: Takeover::Reject, ..with_token("good") };
    assert!(session.attach(&good).unwrap().superseded);
}

#[test]
fn under_reject_a_parked_session_takes_anybody_of_its_owner() {
    let mut session = session();
    session.comes(START);
    session.goes(START);
    let later = Attach { takeover: Takeover::Reject, ..attach(at(1)) };
    assert!(session.attach(&later).is_ok());
}

#[test]
fn a_refused_attachment_changes_nothing() {
    let mut session = session();
    session.comes(START);
    let before = session.vitals.clone();
    let foreign = Attach { principal: somebody_else(), ..attach(at(1)) };
    session.attach(&foreign).unwrap_err();
    session.attach(&Attach { takeover: Takeover::Reject, ..attach(at(1)) }).unwrap_err();
    session.attach(&with_token("unknown")).unwrap_err();
    assert_eq!(session.vitals, before);
}

#[test]
fn a_detach_parks_the_session_for_as_long_as_it_says() {
    let mut session = session();
    session.comes(START);
    assert_eq!(session.vitals.attached, Some(Transport::WebSocket));
    assert_eq!(session.record().due_at(), None, "nothing is due while a client is there");
    session.goes(at(5));
    assert_eq!(session.vitals.attached, None);
    assert_eq!(session.record().due_at(), Some(at(5) + HOUR));
    assert_eq!(session.vitals.last_activity, at(5));
}

#[test]
fn a_detach_of_an_older_generation_does_nothing() {
    let mut session = session();
    session.comes(START);
    session.comes(at(1));
    let before = session.vitals.clone();
    let late = Detach { generation: generation(1), lifetime: Lifetime::keeping(HOUR), now: at(9) };
    assert_eq!(session.detach(&late), Err(stale(1, 2)));
    assert_eq!(session.vitals, before);
}

#[test]
fn acks_only_grow_and_end_at_the_head() {
    let mut session = session_with(5);
    session.comes(START);
    session.acks(3).unwrap();
    session.acks(1).unwrap();
    assert_eq!(session.out.acked(), seq(3));
    assert_eq!(session.acks(6), Err(AckRefused::Ahead { acked: seq(6), head: seq(5) }));
    assert_eq!(session.out.acked(), seq(3));
}

#[test]
fn an_ack_of_an_older_generation_is_stale_even_where_it_is_ahead() {
    let mut session = session_with(5);
    session.comes(START);
    session.comes(START);
    for n in [3, 99] {
        let ack = Ack { generation: generation(1), seq: seq(n) };
        assert_eq!(session.ack(&ack), Err(AckRefused::Stale(stale(1, 2))));
    }
    assert_eq!(session.out.acked(), seq(0));
}

#[test]
fn a_message_sent_twice_is_entered_once() {
    let mut session = session();
    let first = session.gets("id", "content", START).unwrap();
    let again = session.gets("id", "content", at(1)).unwrap();
    assert_eq!(first, Entered { in_seq: in_seq(1), duplicate: false });
    assert_eq!(again, Entered { in_seq: in_seq(1), duplicate: true });
    assert_eq!(session.waiting(), [1]);
}

#[test]
fn a_message_that_was_dealt_with_long_ago_is_still_known() {
    let mut session = session();
    session.gets("id", "content", START).unwrap();
    session.covers(1, at(1));
    let again = session.gets("id", "content", at(2)).unwrap();
    assert_eq!(again, Entered { in_seq: in_seq(1), duplicate: true });
    assert!(session.waiting().is_empty());
}

#[test]
fn the_same_id_with_other_content_is_refused() {
    let mut session = session();
    session.gets("id", "content", START).unwrap();
    let other = session.gets("id", "other", at(1));
    assert_eq!(other, Err(EnterRefused::OtherContent { in_seq: in_seq(1) }));
}

#[test]
fn messages_without_an_id_are_each_entered() {
    let mut session = session();
    for n in 1..=2 {
        let anonymous = Enter { digest: None, ..message("", "same", START) };
        assert_eq!(session.enter(anonymous).unwrap().in_seq, in_seq(n));
    }
}

#[test]
fn a_message_of_a_replaced_connection_is_not_entered() {
    let mut session = session();
    session.comes(START);
    session.comes(START);
    let late = Enter { generation: Some(generation(1)), ..message("id", "content", at(1)) };
    assert_eq!(session.enter(late), Err(EnterRefused::Stale(stale(1, 2))));
    let present = Enter { generation: Some(generation(2)), ..message("id", "content", at(1)) };
    assert!(!session.enter(present).unwrap().duplicate, "the refused one left no trace");
}

#[test]
fn beyond_the_bound_nothing_is_entered_but_what_is_known_is_still_confirmed() {
    let mut session = session();
    for n in 0..limits::WAITING_ENTRIES {
        session.gets(&format!("{n}"), "", START).unwrap();
    }
    let full = EnterRefused::Full { waiting: limits::WAITING_ENTRIES };
    assert_eq!(session.gets("one more", "", START), Err(full));
    assert!(session.gets("7", "", START).unwrap().duplicate);
    session.covers(1, START);
    assert!(session.gets("one more", "", START).is_ok());
}

#[test]
fn waiting_bytes_are_bounded_but_a_single_large_message_is_taken() {
    let mut session = session();
    let sized = |id, size| Enter { size, max_waiting_bytes: 100, ..message(id, "", START) };
    assert!(session.enter(sized("large", 500)).is_ok());
    assert_eq!(session.enter(sized("small", 1)), Err(EnterRefused::Full { waiting: 1 }));
    session.covers(1, START);
    assert!(session.enter(sized("half", 50)).is_ok());
    assert!(session.enter(sized("other half", 50)).is_ok());
    assert_eq!(session.enter(sized("too much", 1)), Err(EnterRefused::Full { waiting: 2 }));
}

#[test]
fn a_message_keeps_a_session_longer_and_never_shorter() {
    let mut session = session();
    session.enter(Enter { keep_for: MINUTE, ..message("a", "", at(1)) }).unwrap();
    assert_eq!(session.vitals.expires_at, START + SESSION_TTL);
    session.gets("b", "", at(2)).unwrap();
    assert_eq!(session.vitals.expires_at, at(2) + SESSION_TTL);
    assert_eq!(session.vitals.last_activity, at(2));
}

#[test]
fn a_duplicate_is_no_sign_of_life() {
    let mut session = session();
    session.gets("a", "", at(1)).unwrap();
    let before = session.vitals.clone();
    session.gets("a", "", at(2)).unwrap();
    assert_eq!(session.vitals, before);
}

#[test]
fn asking_whether_a_message_would_be_entered_enters_nothing() {
    let session = session();
    assert_eq!(session.check_enter(&message("a", "", START)), Ok(None));
    assert_eq!(session.inbox.head(), in_seq(0));
}
