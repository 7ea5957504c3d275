//! Reconnect tokens as the store knows them: each works once, a lost reply may be asked for again,
//! and any other reuse takes all of them away.

use std::time::Duration;

use crate::common::*;
use rejoin_core::limits;
use rejoin_core::record::Ending;
use rejoin_core::state::{
    Attach, AttachRefused, Attached, NewToken, Renew, RenewRefused, SessionOver, TokenFault,
    TokenUse, UsedToken,
};
use rejoin_core::token::TokenHash;
use rejoin_core::{Generation, Timestamp};

fn token(name: &str) -> NewToken {
    token_until(name, START + HOUR * 24)
}

fn token_until(name: &str, expires_at: Timestamp) -> NewToken {
    NewToken { hash: TokenHash::of(name), expires_at }
}

/// A session that gave these tokens out.
fn session_with_tokens(names: &[&str]) -> Stored {
    let mut session = session();
    for name in names {
        session.tokens.put(token(name), START);
    }
    session
}

fn token_use(name: &str, next: &str, generation: u64) -> TokenUse {
    let generation = Generation::new(generation);
    TokenUse { hash: TokenHash::of(name), successor: token(next), generation, by_call: false }
}

/// Uses a token up, bringing a proposal for the next one.
fn use_up(
    session: &mut Stored,
    name: &str,
    next: &str,
    now: Timestamp,
) -> Result<UsedToken, TokenFault> {
    session.tokens.use_up(&token_use(name, next, 7), now)
}

fn live(session: &Stored) -> usize {
    session.tokens.live().len()
}

#[test]
fn a_token_works_once_and_brings_the_next() {
    let mut session = session_with_tokens(&["t1"]);
    let used = use_up(&mut session, "t1", "t2", at(1)).unwrap();
    let generation = Generation::new(7);
    let expected =
        UsedToken { first_use: true, used_at: at(1), generation, successor: token("t2") };
    assert_eq!(used, expected);
    assert!(use_up(&mut session, "t2", "t3", at(2)).unwrap().first_use);
}

#[test]
fn a_token_that_was_never_given_out_is_unknown_and_revokes_nothing() {
    let mut session = session_with_tokens(&["t1"]);
    assert_eq!(use_up(&mut session, "other", "x", at(1)), Err(TokenFault::Unknown));
    assert!(use_up(&mut session, "t1", "t2", at(2)).is_ok());
}

#[test]
fn the_same_token_again_soon_is_a_lost_reply_and_gets_the_same_answer() {
    let mut session = session_with_tokens(&["t1"]);
    let first = use_up(&mut session, "t1", "t2", at(1)).unwrap();
    for secs in [1, 5, 11] {
        let proposal = session.tokens.use_up(&token_use("t1", "another", 8), at(secs)).unwrap();
        assert_eq!(proposal, UsedToken { first_use: false, ..first }, "after {secs}s");
    }
    assert_eq!(live(&session), 1, "the other proposals were not kept");
    assert!(!session.tokens.knows(&TokenHash::of("another")));
}

#[test]
fn the_same_token_again_later_revokes_all_tokens() {
    let mut session = session_with_tokens(&["t1", "spare"]);
    use_up(&mut session, "t1", "t2", at(1)).unwrap();
    let late = at(1) + limits::TOKEN_GRACE + Duration::from_millis(1);
    assert_eq!(use_up(&mut session, "t1", "x", late), Err(TokenFault::Reused));
    assert_eq!(live(&session), 0);
    assert_eq!(use_up(&mut session, "t2", "x", late), Err(TokenFault::Unknown));
    assert_eq!(use_up(&mut session, "spare", "x", late), Err(TokenFault::Unknown));
}

#[test]
fn a_tool_call_that_is_made_again_however_late_is_no_theft_and_another_call_is() {
    let mut session = session_with_tokens(&["t1"]);
    let call = |name| TokenUse { by_call: true, ..token_use("t1", name, 0) };
    let first = session.tokens.use_up(&call("this call"), at(1)).unwrap();
    let late = at(1) + 10 * limits::TOKEN_GRACE;
    let again = session.tokens.use_up(&call("this call"), late);
    assert_eq!(again, Ok(UsedToken { first_use: false, ..first }));
    assert_eq!(session.tokens.use_up(&call("another"), late), Err(TokenFault::Reused));
    assert_eq!(live(&session), 0);
}

#[test]
fn the_same_token_again_after_its_successor_was_used_revokes_all_tokens_however_soon() {
    let mut session = session_with_tokens(&["t1"]);
    use_up(&mut session, "t1", "t2", at(1)).unwrap();
    use_up(&mut session, "t2", "t3", at(1)).unwrap();
    assert_eq!(use_up(&mut session, "t1", "x", at(1)), Err(TokenFault::Reused));
    assert_eq!(live(&session), 0);
}

#[test]
fn a_thief_is_known_by_every_used_token_that_would_be_good_still() {
    let mut session = session_with_tokens(&["t0"]);
    for n in 0..20 {
        use_up(&mut session, &format!("t{n}"), &format!("t{}", n + 1), at(n)).unwrap();
    }
    for n in 0..19 {
        let reused = use_up(&mut session.clone(), &format!("t{n}"), "x", at(20));
        assert_eq!(reused, Err(TokenFault::Reused), "t{n}");
    }
    use_up(&mut session, "t3", "x", at(20)).unwrap_err();
    assert_eq!(use_up(&mut session, "t3", "x", at(21)), Err(TokenFault::Reused), "and again");
}

#[test]
fn used_tokens_are_bounded_the_oldest_is_forgotten() {
    let mut session = session_with_tokens(&["t0"]);
    let uses = limits::USED_TOKENS as u64 + 1;
    for n in 0..uses {
        use_up(&mut session, &format!("t{n}"), &format!("t{}", n + 1), at(n)).unwrap();
    }
    let late = at(uses + 60);
    assert_eq!(use_up(&mut session, "t0", "x", late), Err(TokenFault::Unknown));
    assert_eq!(use_up(&mut session, "t1", "x", late), Err(TokenFault::Reused));
}

#[test]
fn used_tokens_are_forgotten_when_they_would_have_expired() {
    let mut session = session();
    session.put_token(token_until("short", at(100)), START).unwrap();
    use_up(&mut session, "short", "t1", at(1)).unwrap();
    use_up(&mut session, "t1", "t2", at(99)).unwrap();
    assert!(session.tokens.knows(&TokenHash::of("short")));
    use_up(&mut session, "t2", "t3", at(100)).unwrap();
    assert!(!session.tokens.knows(&TokenHash::of("short")));
}

#[test]
fn of_more_than_four_live_tokens_the_oldest_goes() {
    let mut session = session_with_tokens(&["t1", "t2", "t3", "t4", "t5"]);
    assert_eq!(live(&session), limits::LIVE_TOKENS);
    assert_eq!(use_up(&mut session, "t1", "x", at(1)), Err(TokenFault::Unknown));
    assert!(use_up(&mut session, "t2", "x", at(1)).is_ok());
}

#[test]
fn expired_tokens_make_room_before_good_ones_do() {
    let mut session = session_with_tokens(&["t1"]);
    for name in ["a", "b", "c"] {
        session.put_token(token_until(name, at(10)), START).unwrap();
    }
    session.put_token(token("t2"), at(10)).unwrap();
    assert!(session.tokens.knows(&TokenHash::of("t1")));
    assert_eq!(live(&session), 2);
}

#[test]
fn a_lost_reply_over_a_websocket_attaches_again_and_counts_once() {
    let mut session = session_with_tokens(&["t1"]);
    session.comes(START);
    let again = |now| Attach { token: Some(token_use("t1", "t2", 1)), ..attach(now) };
    let first = session.attach(&again(at(1))).unwrap();
    let second = session.attach(&again(at(2))).unwrap();
    assert_eq!((first.record.generation.get(), first.record.reconnect_count), (2, 1));
    assert_eq!((second.record.generation.get(), second.record.reconnect_count), (3, 1));
    let successor = |attached: &Attached| attached.token.unwrap().successor;
    assert_eq!(successor(&first), successor(&second));
}

#[test]
fn a_stolen_token_attaches_nobody_and_leaves_whoever_is_there() {
    let mut session = session_with_tokens(&["t1"]);
    let with_t1 = |now| Attach { token: Some(token_use("t1", "t2", 0)), ..attach(now) };
    session.attach(&with_t1(at(1))).unwrap();
    let before = session.vitals.clone();
    let refused = session.attach(&with_t1(at(100))).unwrap_err();
    assert_eq!(refused, AttachRefused::Token(TokenFault::Reused));
    assert_eq!(session.vitals, before);
    assert_eq!(live(&session), 0);
}

fn renew(name: &str, now: Timestamp) -> Renew {
    let token = token_use(name, "next", 0);
    Renew { principal: me(), token, attempt: None, keep_for: SESSION_TTL, now }
}

#[test]
fn a_renewal_attaches_nothing_and_keeps_the_session_longer() {
    let mut session = session_with_tokens(&["t1"]);
    let renewed = session.renew(&renew("t1", at(5))).unwrap();
    assert_eq!(renewed.record.generation, Generation::ZERO);
    assert_eq!(renewed.record.attached, None);
    assert_eq!(renewed.record.expires_at, at(5) + SESSION_TTL);
    assert_eq!(renewed.record.last_activity, at(5));
    assert_eq!(renewed.record.reconnect_count, 1);
    let again = session.renew(&renew("t1", at(6))).unwrap();
    assert_eq!(again.record.reconnect_count, 1, "a lost reply counts once");
}

#[test]
fn a_renewal_never_makes_a_session_s_life_shorter() {
    let mut session = session_with_tokens(&["t1"]);
    session.renew(&Renew { keep_for: MINUTE, ..renew("t1", at(5)) }).unwrap();
    assert_eq!(session.vitals.expires_at, START + SESSION_TTL);
}

#[test]
fn a_renewal_is_checked_in_order_owner_token_end_use() {
    let mut session = session_with_tokens(&["t1"]);
    session.end(&ended_by_user(at(1))).unwrap();
    let refusal = |session: &mut Stored, renew: &Renew| session.renew(renew).unwrap_err();
    let foreign = Renew { principal: somebody_else(), ..renew("unknown", at(2)) };
    assert_eq!(refusal(&mut session, &foreign), RenewRefused::Foreign);
    let unknown = RenewRefused::Token(TokenFault::Unknown);
    assert_eq!(refusal(&mut session, &renew("unknown", at(2))), unknown);
    let ended = RenewRefused::Ended(Ending::Closed);
    assert_eq!(refusal(&mut session, &renew("t1", at(2))), ended);
}

#[test]
fn a_session_whose_time_has_run_out_is_not_renewed() {
    let mut session = session();
    let late = START + SESSION_TTL;
    session.put_token(token_until("t1", late + HOUR), START).unwrap();
    let refused = session.renew(&renew("t1", late)).unwrap_err();
    assert_eq!(refused, RenewRefused::Ended(Ending::Expired));
    let over = SessionOver(Ending::Expired);
    assert_eq!(session.put_token(token("t2"), late), Err(over));
}
