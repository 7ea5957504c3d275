//! The out log over HTTP: publishing, long polls, streams.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::http::SentEvent;
use crate::common::web::{BRIEFLY, Setup, Web, word};
use rejoin::core::limits::LogBounds;
use rejoin::service::ServiceSettings;
use rejoin::store::MemoryStore;
use rejoin::web::WebSettings;
use serde_json::{Value, json};

fn events(id: &str) -> String {
    format!("/api/sessions/{id}/events")
}

fn seqs(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

fn ticks(count: usize) -> Value {
    (0..count).map(|number| json!({ "event": "tick", "content": number })).collect()
}

/// A server whose logs hold three events.
async fn small() -> Web {
    let bounds = LogBounds { events: 3, ..LogBounds::default() };
    let store = Arc::new(MemoryStore::new(bounds, 100));
    let service = ServiceSettings { bounds, ..ServiceSettings::default() };
    Setup { store, service, ..Setup::open() }.start().await
}

#[tokio::test]
async fn what_is_published_is_numbered_and_can_be_read() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let one = web.publish(&id, json!({ "event": "plan.made", "content": { "n": 1 } })).await;
    assert_eq!((&one["first_seq"], &one["last_seq"]), (&json!(1), &json!(1)));
    let two = web.publish(&id, ticks(2)).await;
    assert_eq!((&two["first_seq"], &two["last_seq"]), (&json!(2), &json!(3)));

    let page = web.get(&events(&id)).send().await.expect(200);
    assert_eq!((&page["epoch"], &page["gap"]), (&one["epoch"], &json!(null)));
    assert_eq!((seqs(&page), &page["last_seq"]), (vec![1, 2, 3], &json!(3)));
    let first = &page["events"][0];
    assert_eq!((&first["event"], &first["content"]), (&json!("plan.made"), &json!({ "n": 1 })));
    assert_eq!(first["session_id"], json!(id));
    assert!(word(&first["event_id"]).starts_with("evt_"));

    let rest = web.get(&format!("{}?after=2", events(&id))).send().await.expect(200);
    assert_eq!(seqs(&rest), [3]);
    let none = web.get(&format!("{}?after=3", events(&id))).send().await.expect(200);
    assert_eq!((seqs(&none), &none["last_seq"]), (vec![], &json!(3)));
}

#[tokio::test]
async fn pages_join_where_last_seq_says() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    web.publish(&id, ticks(600)).await;
    let (mut found, mut after) = (Vec::new(), 0);
    while found.len() < 600 {
        let page = web.get(&format!("{}?after={after}", events(&id))).send().await.expect(200);
        assert!(!seqs(&page).is_empty());
        found.extend(seqs(&page));
        after = page["last_seq"].as_u64().unwrap();
    }
    assert_eq!(found, (1..=600).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_long_poll_wakes_when_something_is_published() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("{}?wait=60s", events(&id));
    let poll = web.get(&path).send();
    let publish = async {
        until_watched(&web).await;
        web.publish(&id, json!({ "event": "a" })).await
    };
    let within = Duration::from_secs(30);
    let (page, _) =
        tokio::time::timeout(within, async { tokio::join!(poll, publish) }).await.unwrap();
    assert_eq!(seqs(&page.expect(200)), [1]);
}

/// Gives a request that was sent the time to arrive.
async fn until_watched(web: &Web) {
    web.get("/api/openapi.json").send().await.expect(200);
}

#[tokio::test]
async fn a_long_poll_that_nobody_answers_ends_empty() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let page = web.get(&format!("{}?wait=20ms", events(&id))).send().await.expect(200);
    assert_eq!((seqs(&page), &page["last_seq"], &page["gap"]), (vec![], &json!(0), &json!(null)));
}

#[tokio::test]
async fn a_long_poll_learns_that_the_session_has_ended() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("{}?wait=60s", events(&id));
    let end = async {
        until_watched(&web).await;
        web.request("DELETE", &format!("/api/sessions/{id}")).send().await.expect(200)
    };
    let (answer, _) = tokio::join!(web.get(&path).send(), end);
    assert_eq!(answer.expect(410)["error_code"], "SESSION_CLOSED");
}

#[tokio::test]
async fn a_gap_is_never_silent() {
    let web = small().await;
    let (id, _) = web.create().await;
    let epoch = word(&web.publish(&id, ticks(10)).await["epoch"]);
    let evicted =
        json!({ "from": 3, "to": 7, "reason": "evicted", "lost": { "from": 3, "to": 7 } });
    let page = web.get(&format!("{}?after=2", events(&id))).send().await.expect(200);
    assert_eq!((seqs(&page), &page["gap"]), (vec![8, 9, 10], &evicted));
    let unknown = json!({ "from": null, "to": null, "reason": "position_unknown", "lost": null });
    for place in ["after=2&epoch=other", "after=11", "after=18446744073709551615"] {
        let page = web.get(&format!("{}?{place}", events(&id))).send().await.expect(200);
        assert_eq!((seqs(&page), &page["gap"]), (vec![8, 9, 10], &unknown), "{place}");
    }
    let page = web.get(&format!("{}?after=9&epoch={epoch}", events(&id))).send().await.expect(200);
    assert_eq!((seqs(&page), &page["gap"]), (vec![10], &json!(null)));
}

#[tokio::test]
async fn a_stream_sends_what_there_is_and_goes_on_live() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let epoch = word(&web.publish(&id, ticks(2)).await["epoch"]);
    let mut stream = web.get(&events(&id)).stream().await;
    assert_eq!(stream.status, 200);
    assert!(stream.headers.contains(&("content-type".into(), "text/event-stream".into())));
    for seq in 1..=2 {
        let event = stream.next().await.unwrap();
        assert_eq!((event.name.as_str(), event.id), ("", format!("{epoch}:{seq}")));
        assert_eq!((&event.data["seq"], &event.data["session_id"]), (&json!(seq), &json!(id)));
    }
    web.publish(&id, ticks(1)).await;
    assert_eq!(stream.next().await.unwrap().data["seq"], 3);
    web.request("DELETE", &format!("/api/sessions/{id}")).send().await.expect(200);
    assert_eq!(stream.next().await, None, "it ends with the session");
}

#[tokio::test]
async fn a_stream_that_was_cut_goes_on_after_the_last_event_id() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    web.publish(&id, ticks(300)).await;
    let mut stream = web.get(&events(&id)).stream().await;
    let mut last = SentEvent::default();
    for _ in 0..280 {
        last = stream.next().await.unwrap();
    }
    drop(stream);
    web.publish(&id, ticks(5)).await;
    let again = web.get(&format!("{}?after=0", events(&id))).header("last-event-id", &last.id);
    let mut again = again.stream().await;
    for seq in 281..=305 {
        assert_eq!(again.next().await.unwrap().data["seq"], seq);
    }
}

#[tokio::test]
async fn to_an_observer_all_that_is_missing_is_lost_since_no_state_follows() {
    let web = small().await;
    let (id, _) = web.create().await;
    web.publish(&id, ticks(9)).await;
    web.publish(&id, json!({ "event": "tick", "state": { "stage": "all of it" } })).await;
    let page = web.get(&format!("{}?after=2", events(&id))).send().await.expect(200);
    assert_eq!(page["gap"]["lost"], json!({ "from": 3, "to": 7 }));
    let mut stream = web.get(&format!("{}?after=2", events(&id))).stream().await;
    assert_eq!(stream.next().await.unwrap().data["lost"], json!({ "from": 3, "to": 7 }));
}

#[tokio::test]
async fn a_stream_tells_of_a_gap_and_a_reader_that_knows_of_it_is_not_told_again() {
    let web = small().await;
    let (id, _) = web.create().await;
    let epoch = word(&web.publish(&id, ticks(10)).await["epoch"]);
    let mut stream = web.get(&format!("{}?after=2", events(&id))).stream().await;
    let gap = stream.next().await.unwrap();
    assert_eq!((gap.name.as_str(), &gap.id), ("gap", &format!("{epoch}:7")));
    assert_eq!((&gap.data["from"], &gap.data["to"]), (&json!(3), &json!(7)));
    assert_eq!(stream.next().await.unwrap().data["seq"], 8);
    let mut again = web.get(&events(&id)).header("last-event-id", &gap.id).stream().await;
    assert_eq!(again.next().await.unwrap().data["seq"], 8);
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive_by_comments() {
    let web = WebSettings { sse_keep_alive: Duration::from_millis(10), ..WebSettings::default() };
    let web = Setup { web, ..Setup::open() }.start().await;
    let (id, _) = web.create().await;
    let mut stream = web.get(&events(&id)).stream().await;
    for _ in 0..3 {
        assert_eq!(stream.next_or_comment().await.unwrap().name, ":");
    }
}

#[tokio::test]
async fn observers_attach_nothing() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let joined = web.attach(&id).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(web.get(&events(&id)).stream().await);
    }
    web.publish(&id, ticks(1)).await;
    for stream in &mut streams {
        assert_eq!(stream.next().await.unwrap().data["seq"], 1);
    }
    let record = web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
    assert_eq!(record["generation"], joined.confirmed.record.generation.get());
    assert_eq!((&record["attached"], &record["last_acked_seq"]), (&json!(true), &json!(0)));
}

#[tokio::test]
async fn events_carry_the_state_that_goes_with_them() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let message = json!({ "content": "hello" });
    web.post(&format!("/api/sessions/{id}/messages")).json(&message).send().await.expect(200);
    let last = json!({ "event": "b", "state": { "current_step": 2 }, "in_seq": 1 });
    web.publish(&id, json!([{ "event": "a" }, last])).await;
    let record = web.store.session(&rejoin::core::SessionId::parse(&id).unwrap()).await;
    let record = record.unwrap().unwrap();
    let mark = record.snapshot.unwrap();
    assert_eq!((mark.seq.get(), mark.in_seq.get()), (2, 1));
    let alone = json!({ "event": "session.state", "content": { "current_step": 3 } });
    let answer = web.publish(&id, alone).await;
    assert_eq!((&answer["first_seq"], &answer["last_seq"]), (&json!(null), &json!(2)));
    let early = json!([{ "event": "a", "state": {} }, { "event": "b" }]);
    let refused = web.post(&events(&id)).json(&early).send().await.expect(400);
    assert!(word(&refused["detail"]).contains("the last event"), "{refused}");
}

#[tokio::test]
async fn publishing_needs_the_right_to_and_an_agents_session() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("alice").await;
    let publish = |key: &str| web.post(&events(&id)).by(key).json(&json!({ "event": "a" }));
    let refused = publish("reader").send().await.expect(403);
    assert_eq!(refused["error_code"], "UNAUTHORIZED");
    publish("bob").send().await.expect(404);
    publish("alice").send().await.expect(200);
    publish("admin").send().await.expect(200);
    web.get(&events(&id)).by("reader").send().await.expect(200);

    let open = Setup::open().start().await;
    let mcp = open.create_mcp().await;
    open.post(&events(&mcp)).json(&json!({ "event": "a" })).send().await.expect(404);
    let message = open.post(&format!("/api/sessions/{mcp}/messages"));
    message.json(&json!({ "content": "a" })).send().await.expect(404);
    open.post(&format!("/api/sessions/{mcp}/state")).send().await.expect(404);
}

#[tokio::test]
async fn the_same_key_with_the_same_body_publishes_once_and_is_answered_alike() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let publish = |key: &str, body: &Value| {
        web.post(&events(&id)).header("idempotency-key", key).json(body).send()
    };
    let first = publish("k1", &ticks(2)).await.expect(200);
    web.publish(&id, ticks(1)).await;
    let again = publish("k1", &ticks(2)).await.expect(200);
    assert_eq!(again, first);
    let other = publish("k1", &ticks(3)).await.expect(400);
    assert_eq!(other["error_code"], "INVALID_MESSAGE");
    let next = publish("k2", &ticks(2)).await.expect(200);
    assert_eq!((&next["first_seq"], &next["last_seq"]), (&json!(4), &json!(5)));
    let page = web.get(&events(&id)).send().await.expect(200);
    assert_eq!(seqs(&page), [1, 2, 3, 4, 5]);
    let state = json!({ "event": "session.state", "content": 1 });
    let set = publish("k3", &state).await.expect(200);
    assert_eq!(publish("k3", &state).await.expect(200), set);
}

#[tokio::test]
async fn of_many_with_one_key_at_once_one_is_published() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let body = ticks(2);
    let keyed =
        (0..20).map(|_| web.post(&events(&id)).header("idempotency-key", "k").json(&body).send());
    let others = (0..5).map(|_| web.post(&events(&id)).json(&body).send());
    let (keyed, _) =
        tokio::join!(futures_util::future::join_all(keyed), futures_util::future::join_all(others));
    let first = keyed[0].expect(200);
    assert!(keyed.iter().all(|answer| answer.expect(200) == first));
    let page = web.get(&events(&id)).send().await.expect(200);
    assert_eq!(page["last_seq"], 12);
}

#[tokio::test]
async fn a_key_that_can_be_none_is_refused() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    for key in ["", "a b", "\u{e9}", &"x".repeat(256)] {
        let publish = web.post(&events(&id)).header("idempotency-key", key).json(&ticks(1));
        publish.send().await.expect(400);
    }
}

#[tokio::test]
async fn a_long_poll_ends_when_the_credential_that_it_came_with_does() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("alice").await;
    let poll = web.get(&format!("{}?wait=60s", events(&id))).by("brief");
    let (answer, _) = tokio::join!(poll.send(), async {
        tokio::time::sleep(2 * BRIEFLY).await;
        web.post(&events(&id)).by("alice").json(&ticks(1)).send().await.expect(200)
    });
    assert_eq!(answer.expect(401)["error_code"], "UNAUTHORIZED");
}

#[tokio::test]
async fn a_stream_ends_when_the_credential_that_it_came_with_does() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("alice").await;
    let mut stream = web.get(&events(&id)).by("brief").stream().await;
    assert_eq!(stream.status, 200);
    web.post(&events(&id)).by("alice").json(&ticks(1)).send().await.expect(200);
    assert_eq!(stream.next().await.unwrap().data["seq"], 1);
    assert_eq!(stream.next().await, None, "though nobody ended it");
    web.get(&format!("/api/sessions/{id}")).by("alice").send().await.expect(200);
}
