//! Going over to another session with `reconnect_session`, while connections break and other requests are sent: nothing
//! is lost, nothing runs unanswered, and streams of the session that was left can still be resumed.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::time::Duration;

use crate::common::going_over::{
    KEEP_ALIVE, NEWEST, REVISION, call, call_and_leave, failed, in_head, reconnect, reconnecting,
    said, serve, token, until_left, waiting,
};
use crate::common::http::{Request, Stream};
use crate::common::mcp::{Peer, posting, request, until_covered};
use crate::common::web::word;
use rejoin::core::state::{NewToken, Renew, TokenUse};
use rejoin::core::token::TokenHash;
use serde_json::json;

#[tokio::test]
async fn a_stream_that_is_resumed_under_the_other_name_is_live() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(reconnect(&peer, 1, &lost.session, &token).await["success"], true);
    let slow = json!({ "name": "slow_echo", "arguments": { "text": "x", "delay_ms": 300 } });
    let asking = peer.post(&request(2, "tools/call", slow)).header(REVISION, NEWEST);
    let mut asked = asking.stream().await;
    let place = asked.next().await.unwrap().id;
    drop(asked);
    let mut resumed = peer.resume(&place).stream().await;
    let answer = tokio::time::timeout(KEEP_ALIVE / 2, resumed.answer(2)).await;
    assert!(answer.expect("it is told at once, not with the next comment")["result"].is_object());
}

#[tokio::test]
async fn a_reply_that_was_lost_is_given_again_with_all_that_waited() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    call_and_leave(&web, &lost, 2).await;
    for id in 1..=2 {
        let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        assert_eq!(waiting(&reconnect(&peer, id, &lost.session, &token).await), [2]);
    }
    let next = call(&lost, 3, "recall", json!({})).await["_meta"]["rejoin/session"].clone();
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let told = reconnect(&peer, 1, &lost.session, &word(&next["reconnect_token"])).await;
    assert_eq!((&told["success"], &told["waiting"]), (&json!(true), &json!([])), "it was told");
}

#[tokio::test]
async fn whoever_goes_over_to_its_own_session_is_not_given_that_later() {
    let web = serve().await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let first = token(&peer).await;
    call_and_leave(&web, &peer, 2).await;
    let before = in_head(&web, &peer.session).await;
    drop(peer.post(&reconnecting(3, &peer.session, &first)).stream().await);
    until_covered(&web, &peer.session, before + 1).await;
    assert_eq!(waiting(&reconnect(&peer, 4, &peer.session, &first).await), [2]);
}

#[tokio::test]
async fn the_stream_of_a_reply_that_was_lost_is_resumed_under_the_name_it_had() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let first = token(&lost).await;
    call_and_leave(&web, &lost, 2).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let mut asking = peer.post(&reconnecting(1, &lost.session, &first)).stream().await;
    let place = asking.next().await.unwrap().id;
    drop(asking);
    until_left(&web, &peer.session).await;
    let mut resumed = peer.resume(&place).stream().await;
    assert_eq!(resumed.status, 200);
    assert_eq!(waiting(&said(&resumed.answer(1).await)), [2]);
    assert_eq!(resumed.rest().await, [], "it ends with its answer");
    let other = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(other.resume(&place).send().await.status, 400, "it is nobody else's");
}

#[tokio::test]
async fn the_stream_of_a_lost_reply_is_resumed_by_a_client_that_had_gone_over_before() {
    let web = serve().await;
    let lost = [
        Peer::begin_as(&web, NEWEST, Some("alice")).await,
        Peer::begin_as(&web, NEWEST, Some("alice")).await,
    ];
    let tokens = [token(&lost[0]).await, token(&lost[1]).await];
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(reconnect(&peer, 1, &lost[0].session, &tokens[0]).await["success"], true);
    let asking = peer.post(&reconnecting(2, &lost[1].session, &tokens[1]));
    let mut asking = asking.header(REVISION, NEWEST).stream().await;
    let place = asking.next().await.unwrap().id;
    drop(asking);
    until_left(&web, &lost[0].session).await;
    let mut resumed = peer.resume(&place).stream().await;
    assert_eq!(resumed.status, 200);
    assert_eq!(said(&resumed.answer(2).await)["session_id"], *lost[1].session);
}

/// More than any client goes through in the life of a name, and few enough to be made here.
const HOPS: u64 = 40;

#[tokio::test]
async fn every_name_of_a_session_leads_to_it_however_often_its_client_went_over() {
    let web = serve().await;
    let mut names = vec![Peer::begin_as(&web, NEWEST, Some("alice")).await];
    for hop in 1..=HOPS {
        let next = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&next).await;
        let told = reconnect(names.last().unwrap(), hop, &next.session, &token).await;
        assert_eq!(told["success"], true, "{told}");
        names.push(next);
    }
    let noted = call(&names[0], 100, "remember", json!({ "note": "by the oldest name" })).await;
    assert!(noted["content"].is_array(), "{noted}");
    for peer in &names {
        let notes = call(peer, 101, "recall", json!({})).await;
        assert!(notes.to_string().contains("by the oldest name"), "{notes}");
    }
}

#[tokio::test]
async fn a_stream_follows_its_client_however_often_it_goes_over() {
    let web = serve().await;
    let (mut stream, endpoint) = open_sse(web.get("/sse")).await;
    for hop in 1..=HOPS {
        let next = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&next).await;
        let asked = reconnecting(hop, &next.session, &token);
        assert_eq!(posting(web.post(&endpoint).by("alice"), &asked).send().await.status, 202);
        assert_eq!(said(&stream.answer(hop).await)["success"], true);
    }
}

#[tokio::test]
async fn every_request_that_comes_with_the_one_to_go_over_is_answered() {
    let web = serve().await;
    for _ in 0..10 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
        let ping = request(2, "ping", json!({}));
        let batch = json!([reconnecting(1, &lost.session, &token), ping]);
        let all = peer.post(&batch).stream().await.rest().await;
        let mut answered: Vec<_> = all.iter().map(|event| event.data["id"].as_u64()).collect();
        answered.sort_unstable();
        assert_eq!(answered, [Some(1), Some(2)], "{all:?}");
    }
}

#[tokio::test]
async fn whatever_is_sent_behind_the_call_to_go_over_runs_in_one_of_the_two_sessions() {
    let web = serve().await;
    let mut went = 0;
    for _ in 0..20 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let mut asking = peer.post(&reconnecting(1, &lost.session, &token)).stream().await;
        let behind = |id| call(&peer, id, "recall", json!({}));
        let (told, second, third) = tokio::join!(asking.answer(1), behind(2), behind(3));
        let told = said(&told);
        assert!(second["content"].is_array(), "{second}");
        assert!(third["content"].is_array(), "{third}");
        went += u32::from(told["success"] == true);
        assert!(told["success"] == true || told == failed("session_busy"), "{told}");
    }
    assert!(went > 0, "some came behind the end of the session");
}

/// A stream of the oldest revision, and where its messages are posted.
async fn open_sse(request: Request) -> (Stream, String) {
    let mut stream = request.by("alice").stream().await;
    let endpoint = stream.next().await.unwrap().text;
    (stream, endpoint)
}

#[tokio::test]
async fn over_the_oldest_revision_too_everything_behind_the_call_to_go_over_is_answered() {
    let web = serve().await;
    for _ in 0..10 {
        let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let token = token(&lost).await;
        let (mut stream, endpoint) = open_sse(web.get("/sse")).await;
        let recall = |id| request(id, "tools/call", json!({ "name": "recall", "arguments": {} }));
        for message in [reconnecting(1, &lost.session, &token), recall(2), recall(3)] {
            let sent = posting(web.post(&endpoint).by("alice"), &message).send().await;
            assert_eq!(sent.status, 202);
        }
        let mut owed = vec![1, 2, 3];
        while !owed.is_empty() {
            let answer = stream.message().await.data;
            owed.retain(|id| answer["id"] != *id);
        }
    }
}

#[tokio::test]
async fn over_the_oldest_revision_a_reply_that_was_lost_comes_again_on_the_next_stream() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let (mut stream, endpoint) = open_sse(web.get("/sse")).await;
    let asked = reconnecting(1, &lost.session, &token);
    posting(web.post(&endpoint).by("alice"), &asked).send().await;
    assert_eq!(said(&stream.answer(1).await)["success"], true);
    drop(stream);
    let (_, session) = endpoint.split_once('=').unwrap();
    let (mut again, _) = open_sse(web.get("/sse").header("x-session-id", session)).await;
    assert_eq!(said(&again.answer(1).await)["success"], true, "nobody knows that it was taken");
}

#[tokio::test]
async fn a_client_that_went_over_is_spoken_to_in_its_own_revision() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
    reconnect(&peer, 1, &lost.session, &token).await;
    let ping = |id| request(id, "ping", json!({}));
    let batch = json!([ping(2), ping(3)]);
    let answers = peer.post(&batch).stream().await.rest().await;
    assert_eq!(answers.len(), 2, "no empty event before them: {answers:?}");
    let newer = peer.post(&ping(4)).header(REVISION, NEWEST);
    assert_eq!(newer.stream().await.rest().await.len(), 2, "an empty one, and the answer");
}

#[tokio::test]
async fn a_stream_that_was_left_behind_tells_each_of_its_requests_so_whenever_it_breaks() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, "2025-03-26", Some("alice")).await;
    let ping = |id| request(id, "ping", json!({}));
    let mut place = {
        let mut stream = peer.post(&json!([ping(1), ping(2), ping(3)])).stream().await;
        stream.message().await.id
    };
    assert_eq!(reconnect(&peer, 4, &lost.session, &token).await["success"], true);
    for id in [2, 3] {
        let told = peer.resume(&place).stream().await.message().await;
        assert_eq!((&told.data["id"], &told.data["error"]["code"]), (&json!(id), &json!(-32001)));
        place = told.id;
    }
    assert_eq!(peer.resume(&place).send().await.status, 204);
}

#[tokio::test]
async fn a_result_of_which_a_client_has_taken_only_a_part_waits() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let arguments = json!({ "text": "x".repeat(12 << 20), "delay_ms": 0 });
    let asked = request(2, "tools/call", json!({ "name": "slow_echo", "arguments": arguments }));
    let mut stream = lost.post(&asked).stream().await;
    stream.next().await.unwrap();
    stream.until_it_begins().await;
    drop(stream);
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    assert_eq!(waiting(&reconnect(&peer, 1, &lost.session, &token).await), [2]);
}

/// Whichever comes first, one of the two goes on, both clients have it, and no stream runs in circles.
#[tokio::test]
async fn two_clients_that_go_over_to_each_others_session_meet_in_one_of_them() {
    let web = serve().await;
    for _ in 0..20 {
        let one = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let other = Peer::begin_as(&web, NEWEST, Some("alice")).await;
        let tokens = [token(&one).await, token(&other).await];
        let (first, second) = tokio::join!(
            reconnect(&one, 2, &other.session, &tokens[1]),
            reconnect(&other, 2, &one.session, &tokens[0]),
        );
        let went = [&first, &second].map(|told| told["success"] == true);
        assert!(went.contains(&true), "{first} {second}");
        let (recalled, again) =
            tokio::join!(call(&one, 3, "recall", json!({})), call(&other, 4, "recall", json!({})),);
        assert!(recalled["content"].is_array() && again["content"].is_array(), "{first} {second}");
        let mut active = 0;
        for peer in [&one, &other] {
            let id = rejoin::core::SessionId::parse(&peer.session).unwrap();
            active += usize::from(web.store.session(&id).await.unwrap().unwrap().is_active());
        }
        assert_eq!(active, if went == [true, true] { active } else { 1 });
        assert!(active >= 1, "one of them goes on");
    }
}

/// As if the server had died after the token was used and before the call was answered, and came back a minute later.
#[tokio::test]
async fn a_call_to_go_over_that_is_made_again_after_a_crash_is_no_theft() {
    let web = serve().await;
    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let used = |in_seq: u64| {
        let call = format!("{token}\n{}\n{in_seq}", peer.session);
        let expires_at = web.service.now() + Duration::from_secs(600);
        let successor = NewToken { hash: TokenHash::of(&call), expires_at };
        let generation = rejoin::core::Generation::ZERO;
        TokenUse { hash: TokenHash::of(&token), successor, generation, by_call: true }
    };
    let next = in_head(&web, &peer.session).await + 1;
    let renew = Renew {
        principal: rejoin::core::Principal::new("alice"),
        token: used(next),
        attempt: None,
        keep_for: Duration::from_secs(600),
        now: web.service.now() - Duration::from_secs(60),
    };
    let id = rejoin::core::SessionId::parse(&lost.session).unwrap();
    web.store.renew(&id, renew).await.unwrap();
    let told = reconnect(&peer, 2, &lost.session, &token).await;
    assert_eq!((&told["success"], &told["reconnect_count"]), (&json!(true), &json!(1)), "{told}");
    let thief = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let told = reconnect(&thief, 2, &lost.session, &token).await;
    assert_eq!(told, failed("token_reused"), "another call is another matter");
}
