//! Reconnect tokens: each works once, a lost reply may be asked for again, anything else is theft.

use std::sync::Arc;

use rejoin_core::limits::{LIVE_TOKENS, TOKEN_GRACE};
use rejoin_core::record::Ending;
use rejoin_core::state::{
    Attach, AttachRefused, Renew, RenewRefused, SessionOver, TokenFault, TokenUse,
};
use rejoin_core::{Generation, SessionId};
use tokio::task::JoinSet;

use super::World;
use super::world::{A_MOMENT, KEEP, ann, bob, refusal, session_id};
use crate::Failure;

pub async fn a_token_attaches_and_another_follows_it(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    let first = world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    let used = first.token.unwrap();
    assert!(used.first_use);
    assert_eq!((used.used_at, used.successor), (world.now, world.token("two")));
    world.wait(TOKEN_GRACE * 2);
    let next = world.store.attach(&id, world.attaching_with("two", "three")).await.unwrap();
    assert!(next.token.unwrap().first_use);
    assert_eq!(next.record.generation, Generation::new(2));
}

/// The client never saw the answer: it gets the same one again, and it counts as one.
pub async fn a_token_used_again_at_once_gets_the_same_answer(mut world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    world.put_token(&id, "one").await;
    let using = TokenUse { generation: Generation::new(1), ..world.using("one", "two") };
    let attach = Attach { token: Some(using), ..world.attaching() };
    let first = world.store.attach(&id, attach).await.unwrap();
    let answer = first.token.unwrap();

    world.wait(TOKEN_GRACE);
    let using = TokenUse { generation: Generation::new(2), ..world.using("one", "other") };
    let attach = Attach { token: Some(using), ..world.attaching() };
    let again = world.store.attach(&id, attach).await.unwrap();
    let repeated = again.token.unwrap();
    assert!(!repeated.first_use);
    assert_eq!((repeated.used_at, repeated.successor), (answer.used_at, answer.successor));
    assert_eq!(repeated.generation, Generation::new(1));
    assert_eq!(again.record.generation, Generation::new(3));
    assert_eq!((first.record.reconnect_count, again.record.reconnect_count), (1, 1));
    assert_eq!(use_token(&world, &id, "other").await, Err(TokenFault::Unknown));
    assert_eq!(use_token(&world, &id, "two").await, Ok(true));
}

pub async fn a_token_used_again_later_revokes_all(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.put_token(&id, "spare").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE + A_MOMENT);
    let before = world.record(&id).await;
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Reused));
    assert_eq!(world.record(&id).await, before);
    assert_eq!(use_token(&world, &id, "two").await, Err(TokenFault::Unknown));
    assert_eq!(use_token(&world, &id, "spare").await, Err(TokenFault::Unknown));
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Reused));
}

/// The successor was used, so its reply has arrived: whoever brings the first one again stole it.
pub async fn a_token_used_again_after_its_successor_revokes_all(world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    world.store.attach(&id, world.attaching_with("two", "three")).await.unwrap();
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Reused));
    assert_eq!(use_token(&world, &id, "three").await, Err(TokenFault::Unknown));
}

pub async fn a_session_goes_on_with_new_tokens_after_all_were_revoked(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE * 2);
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Reused));
    world.put_token(&id, "fresh").await;
    assert_eq!(use_token(&world, &id, "fresh").await, Ok(true));
}

pub async fn the_tokens_of_a_session_can_be_looked_at(world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.put_token(&id, "spare").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    let tokens = world.store.tokens(&id).await.unwrap().unwrap();
    assert_eq!(tokens.live(), [world.token("spare"), world.token("two")]);
    let used: Vec<_> = tokens.used().map(|(token, at)| (*token, at)).collect();
    assert_eq!(used, [(world.token("one"), world.now)]);
    assert_eq!(world.store.tokens(&session_id("sess_unknown")).await, Ok(None));
}

pub async fn a_token_of_another_session_is_unknown(world: World) {
    let (id, other) = (world.session().await, world.session().await);
    world.put_token(&other, "one").await;
    let before = world.record(&id).await;
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Unknown));
    assert_eq!(world.record(&id).await, before);
    assert_eq!(use_token(&world, &other, "one").await, Ok(true));
}

/// The order of the checks decides the reason that is audited: hash, session alive, use.
pub async fn an_unknown_token_is_named_before_the_end_of_the_session(world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.close(&id).await;
    let ended = AttachRefused::Ended(Ending::Closed);
    let unknown = AttachRefused::Token(TokenFault::Unknown);
    let attach = |word| world.store.attach(&id, world.attaching_with(word, "next"));
    assert_eq!(refusal(attach("never").await), unknown);
    assert_eq!(refusal(attach("one").await), ended);
    let refused = refusal(world.store.renew(&id, renewing(&world, "never", "next")).await);
    assert_eq!(refused, RenewRefused::Token(TokenFault::Unknown));
    let refused = refusal(world.store.renew(&id, renewing(&world, "one", "next")).await);
    assert_eq!(refused, RenewRefused::Ended(Ending::Closed));
}

pub async fn the_end_of_the_session_is_named_before_the_reuse_of_a_token(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE * 2);
    world.close(&id).await;
    let attach = world.attaching_with("one", "next");
    let refused = refusal(world.store.attach(&id, attach).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Closed));
}

pub async fn at_most_four_tokens_are_good_and_the_oldest_goes(world: World) {
    let id = world.session().await;
    for word in ["one", "two", "three", "four", "five"] {
        world.put_token(&id, word).await;
    }
    assert_eq!(LIVE_TOKENS, 4);
    assert_eq!(use_token(&world, &id, "one").await, Err(TokenFault::Unknown));
    for word in ["two", "three", "four", "five"] {
        assert_eq!(use_token(&world, &id, word).await, Ok(true), "{word}");
    }
}

pub async fn no_token_is_given_for_a_session_that_is_over(mut world: World) {
    let closed = world.session().await;
    world.close(&closed).await;
    let put = world.store.put_token(&closed, world.token("one"), world.now).await;
    assert_eq!(refusal(put), SessionOver(Ending::Closed));
    let expired = world.session().await;
    world.wait(KEEP);
    let put = world.store.put_token(&expired, world.token("one"), world.now).await;
    assert_eq!(refusal(put), SessionOver(Ending::Expired));
    let unknown = session_id("sess_unknown");
    let put = world.store.put_token(&unknown, world.token("one"), world.now).await;
    assert_eq!(put, Err(Failure::NotFound));
}

pub async fn renewing_extends_a_session_and_attaches_nothing(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.wait(KEEP / 8);
    let renewed = world.store.renew(&id, renewing(&world, "one", "two")).await.unwrap();
    assert!(renewed.token.first_use);
    assert_eq!(renewed.token.successor, world.token("two"));
    let record = world.record(&id).await;
    assert_eq!(renewed.record, record);
    assert_eq!((record.generation, record.attached), (Generation::ZERO, None));
    assert_eq!((record.last_activity, record.expires_at), (world.now, world.now + KEEP));
    assert_eq!(record.reconnect_count, 1);
    let again = world.store.renew(&id, renewing(&world, "one", "other")).await.unwrap();
    assert_eq!((again.token.first_use, again.record.reconnect_count), (false, 1));
    assert_eq!(again.token.successor, world.token("two"));
}

pub async fn renewing_never_shortens_a_life_and_supersedes_nobody(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    let generation = world.attach(&id).await;
    let expires_at = world.record(&id).await.expires_at;
    world.wait(A_MOMENT);
    let renew = Renew { keep_for: A_MOMENT, ..renewing(&world, "one", "two") };
    let renewed = world.store.renew(&id, renew).await.unwrap();
    assert_eq!(renewed.record.expires_at, expires_at);
    assert_eq!(renewed.record.generation, generation);
    assert!(renewed.record.attached.is_some());
}

pub async fn renewing_needs_the_owner_and_a_living_session(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    let foreign = Renew { principal: bob(), ..renewing(&world, "one", "two") };
    assert_eq!(refusal(world.store.renew(&id, foreign).await), RenewRefused::Foreign);
    world.wait(KEEP);
    let late = renewing(&world, "one", "two");
    let refused = refusal(world.store.renew(&id, late.clone()).await);
    assert_eq!(refused, RenewRefused::Ended(Ending::Expired));
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.renew(&unknown, late).await.unwrap_err(), Failure::NotFound);
}

pub async fn a_token_reused_to_renew_revokes_all(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.renew(&id, renewing(&world, "one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE + A_MOMENT);
    let refused = refusal(world.store.renew(&id, renewing(&world, "one", "two")).await);
    assert_eq!(refused, RenewRefused::Token(TokenFault::Reused));
    assert_eq!(use_token(&world, &id, "two").await, Err(TokenFault::Unknown));
}

/// A proxy that repeats, a client that races itself: all get the same answer, and one counts.
pub async fn of_twenty_uses_at_once_all_get_the_same_answer_and_one_counts(world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    world.put_token(&id, "one").await;
    let world = Arc::new(world);
    let mut uses = JoinSet::new();
    for number in 0..20 {
        let (world, id) = (Arc::clone(&world), id.clone());
        uses.spawn(async move {
            let attach = world.attaching_with("one", &format!("successor {number}"));
            world.store.attach(&id, attach).await.unwrap().token.unwrap()
        });
    }
    let answers = uses.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.first_use).count(), 1);
    assert!(answers.iter().all(|answer| answer.successor == answers[0].successor));
    let record = world.record(&id).await;
    assert_eq!((record.reconnect_count, record.generation), (1, Generation::new(21)));
}

fn renewing(world: &World, word: &str, successor: &str) -> Renew {
    let token = world.using(word, successor);
    Renew { principal: ann(), token, attempt: None, keep_for: KEEP, now: world.now }
}

/// Attaches with a token; whether it was used for the first time, or what is wrong with it.
async fn use_token(world: &World, id: &SessionId, word: &str) -> Result<bool, TokenFault> {
    let successor = format!("after {word}");
    match world.store.attach(id, world.attaching_with(word, &successor)).await {
        Ok(attached) => Ok(attached.token.unwrap().first_use),
        Err(Failure::Refused(AttachRefused::Token(fault))) => Err(fault),
        Err(other) => panic!("attaching failed for another reason: {other:?}"),
    }
}
