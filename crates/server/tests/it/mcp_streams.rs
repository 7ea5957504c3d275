//! Streamable HTTP, point by point: streams that break and are gone on with, and what every request and every
//! answer must be like.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::time::Duration;

use crate::common::http::SentEvent;
use crate::common::mcp::{
    Fake, Peer, call, initialize, notification, posting, request, until_covered,
};
use crate::common::web::{Setup, Web};
use crate::common::{policy, until};
use rejoin::core::SessionId;
use rejoin::core::lifetime::OnDisconnect;
use rejoin::web::{McpSettings, WebSettings};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
const OLDER: [&str; 2] = ["2025-03-26", "2025-06-18"];

fn log(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": text } })
}

fn is_priming(event: &SentEvent) -> bool {
    event.text.is_empty() && !event.id.is_empty() && event.retry == Some(3000)
}

async fn record(web: &Web, id: &str) -> rejoin::core::record::Record {
    web.store.session(&SessionId::parse(id).unwrap()).await.unwrap().unwrap()
}

#[tokio::test]
async fn from_2025_11_25_on_every_stream_begins_with_an_empty_event() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut first = posting(web.post("/mcp"), &initialize(NEWEST)).stream().await;
    assert!(is_priming(&first.next().await.unwrap()));

    let mut asked = peer.call(1, json!({ "gate": "g" })).await;
    let place = asked.next().await.unwrap();
    assert!(is_priming(&place));
    drop(asked);
    let mut general = peer.get().stream().await;
    assert!(is_priming(&general.next().await.unwrap()));

    let mut resumed = peer.resume(&place.id).stream().await;
    assert!(is_priming(&resumed.next().await.unwrap()));
    fake.open("g");
    assert!(resumed.answer(1).await["result"].is_object());
    assert_eq!(resumed.next().await, None, "a stream ends with its last answer");
}

#[tokio::test]
async fn streams_of_older_revisions_never_carry_empty_data() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    for revision in OLDER {
        let peer = Peer::begin(&web, revision).await;
        let mut general = peer.get().stream().await;
        let mut asked = peer.call(1, json!({ "progress": 2, "later": [log("news")] })).await;
        let first = asked.next().await.unwrap();
        assert_eq!(first.data["params"]["progress"], 1, "{first:?}");
        drop(asked);
        let all = peer.resume(&first.id).stream().await.rest().await;
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|event| event.data.is_object()), "{all:?}");
        assert_eq!(general.next().await.unwrap().data, log("news"));
    }
}

#[tokio::test]
async fn a_resume_sends_what_lies_strictly_after_and_of_its_stream_only() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut one = peer.call(1, json!({ "progress": 3, "gate": "g" })).await;
    let first = one.message().await;
    assert_eq!(first.data["params"]["progress"], 1);
    drop(one);
    let other = peer.call(2, json!({ "progress": 3 })).await.rest().await;
    assert_eq!(other.len(), 5, "{other:?}");
    fake.open("g");
    until_covered(&web, &peer.session, 4).await;
    let events = peer.resume(&first.id).stream().await.rest().await;
    let said: Vec<_> = events.iter().skip(1).map(|event| event.data.clone()).collect();
    let progress = |event: &Value| event["params"]["progress"].clone();
    assert_eq!(said.iter().map(progress).collect::<Vec<_>>(), [json!(2), json!(3), Value::Null]);
    assert_eq!(said[2]["id"], 1);
    let mut ids: Vec<_> = events.iter().chain(&other).map(|event| &event.id).collect();
    ids.dedup();
    assert_eq!(ids.len(), events.len() + other.len(), "every id is another");
}

#[tokio::test]
async fn a_stream_that_is_finished_is_204_and_nothing_is_deleted_because_it_was_written() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let events = peer.call(1, json!({})).await.rest().await;
    let (priming, answer) = (&events[0], events.last().unwrap());
    assert_eq!(peer.resume(&answer.id).send().await.status, 204);
    for _ in 0..2 {
        let again = peer.resume(&priming.id).stream().await.rest().await;
        assert_eq!(again.last().unwrap(), answer);
    }
}

#[tokio::test]
async fn a_position_that_is_malformed_or_of_another_session_is_400() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let (one, two) = (Peer::begin(&web, NEWEST).await, Peer::begin(&web, NEWEST).await);
    let foreign = two.call(1, json!({})).await.next().await.unwrap();
    for last in ["17", "x.y.z.1", &foreign.id] {
        let refused = one.resume(last).send().await.expect(400);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
    }
}

#[tokio::test]
async fn two_streams_of_one_session_do_not_fight() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut older = peer.get().stream().await;
    older.next().await.unwrap();
    let before = record(&web, &peer.session).await.generation;
    let mut newer = peer.get().stream().await;
    newer.next().await.unwrap();
    assert_eq!(record(&web, &peer.session).await.generation, before.next());
    let rest = older.rest().await;
    assert_eq!(rest.last().unwrap().retry, Some(60 * 60 * 1000), "{rest:?}");
    peer.call(1, json!({ "later": [log("news")] })).await.rest().await;
    assert_eq!(newer.message().await.data, log("news"));

    let mut asked = peer.call(2, json!({ "gate": "g" })).await;
    let place = asked.next().await.unwrap();
    let mut resumed = peer.resume(&place.id).stream().await;
    assert_eq!(asked.rest().await.last().unwrap().retry, Some(60 * 60 * 1000));
    fake.open("g");
    assert!(resumed.answer(2).await["result"].is_object());
}

#[tokio::test]
async fn a_session_that_is_gone_is_404_with_the_reason_and_the_way() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let ended = Peer::begin(&web, NEWEST).await;
    assert_eq!(ended.delete().send().await.status, 204);
    let unknown =
        |request: crate::common::http::Request| request.header("mcp-session-id", "sess_nobody");
    let asking = request(1, "ping", json!({}));
    for (request, reason) in [
        (unknown(peer.post(&asking)), "session_not_found"),
        (unknown(peer.get()), "session_not_found"),
        (unknown(peer.resume("00000000.9.g.1")), "session_not_found"),
        (unknown(peer.delete()), "session_not_found"),
        (ended.post(&asking), "session_already_disconnected"),
        (ended.get(), "session_already_disconnected"),
        (ended.delete(), "session_already_disconnected"),
    ] {
        let refused = request.send().await.expect(404);
        let expected = json!({ "reason": reason, "reconnect_to": "/mcp" });
        assert_eq!((&refused["jsonrpc"], &refused["error"]["data"]), (&json!("2.0"), &expected));
    }
}

#[tokio::test]
async fn a_session_of_another_principal_looks_unknown() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let alices = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let unknown = "session_not_found";
    for key in ["bob", "admin"] {
        let refused = alices.post(&call(1, json!({}))).by(key).send().await.expect(404);
        assert_eq!(refused["error"]["data"]["reason"], unknown);
        assert_eq!(alices.get().by(key).send().await.status, 404);
        assert_eq!(alices.delete().by(key).send().await.status, 404);
    }
    let nobody = posting(web.post("/mcp"), &initialize(NEWEST)).send().await;
    assert_eq!(nobody.status, 401);
    assert!(alices.call(1, json!({})).await.answer(1).await["result"].is_object());
}

#[tokio::test]
async fn batches_are_taken_where_the_revision_has_them() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let batch = json!([call(1, json!({})), notification("x/y"), call(2, json!({}))]);
    let peer = Peer::begin(&web, "2025-03-26").await;
    let answers = peer.post(&batch).stream().await.rest().await;
    let mut ids: Vec<_> = answers.iter().map(|event| event.data["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    let as_json = peer.post(&batch).header("accept", "application/json").send().await.expect(200);
    assert_eq!(as_json.as_array().unwrap().len(), 2);
    let quiet = json!([notification("x/y"), notification("x/z")]);
    assert_eq!(peer.post(&quiet).send().await.status, 202);
    assert_eq!(peer.post(&json!([])).send().await.status, 400);
    for revision in ["2025-06-18", NEWEST] {
        let peer = Peer::begin(&web, revision).await;
        assert_eq!(peer.post(&batch).send().await.expect(400)["error"]["code"], -32600);
    }
}

#[tokio::test]
async fn a_client_that_accepts_no_events_gets_json() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let json_only =
        |request: crate::common::http::Request| request.header("accept", "application/json");
    let begun = json_only(posting(web.post("/mcp"), &initialize(NEWEST))).send().await;
    assert_eq!(begun.header("content-type"), Some("application/json"));
    assert!(begun.header("mcp-session-id").is_some());
    assert_eq!(begun.expect(200)["result"]["protocolVersion"], NEWEST);
    let peer = Peer::begin(&web, NEWEST).await;
    let asked = peer.post(&call(1, json!({ "progress": 2, "say": [log("aside")] })));
    assert_eq!(json_only(asked).send().await.expect(200)["id"], 1);
}

#[tokio::test]
async fn bad_requests_are_told_from_one_another() {
    let fake = Fake::new();
    let web = WebSettings {
        mcp: McpSettings { max_bytes: 2048, ..McpSettings::default() },
        ..WebSettings::default()
    };
    let web = fake.serve(Setup { web, ..Setup::open() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let ping = request(1, "ping", json!({}));
    let post = || peer.post(&ping);
    for (request, status, code) in [
        (post().header("accept", "image/png"), 406, -32600),
        (peer.get().header("accept", "application/json"), 406, -32600),
        (post().header("content-type", "text/plain"), 415, -32600),
        (peer.post(&call(1, json!("x".repeat(4096)))), 413, -32600),
        (post().body("{"), 400, -32700),
        (post().body("{}"), 400, -32600),
        (post().body("\"ping\""), 400, -32600),
        (post().body(vec![0xff]), 400, -32700),
        (posting(web.post("/mcp"), &ping), 400, -32600),
        (peer.post(&initialize(NEWEST)), 400, -32600),
        (post().header("mcp-protocol-version", "1999-01-01"), 400, -32600),
        (peer.get().header("mcp-protocol-version", "no"), 400, -32600),
        (peer.delete().header("mcp-protocol-version", "no"), 400, -32600),
    ] {
        let words = format!("{request:?}");
        let answer = request.send().await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{words}: {body}");
        assert_eq!(answer.json()["error"]["code"], code, "{words}: {body}");
    }
    let named = post().header("mcp-protocol-version", NEWEST).stream().await;
    assert_eq!(named.status, 200);
    let origin = post().header("origin", "http://evil.example").send().await;
    assert_eq!(origin.status, 403);
}

#[tokio::test]
async fn what_nobody_here_knows_passes_byte_for_byte() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let odd = r#"{"x" : 1.50,"id":"a b","params":{"\u00e9": 1e2, "id":9},"method":"x/raw","jsonrpc":"2.0"}"#;
    let mut stream = peer.post(&json!({})).body(odd).stream().await;
    let answer = stream.message().await;
    assert_eq!(
        answer.text,
        r#"{"z": 1.50,"jsonrpc":"2.0" , "result": {"b":"\u00e9", "a" :1e2}, "id":"a b"}"#
    );
    let told = fake.until_told("x/raw").await;
    let (before, after) = odd.split_once("\"a b\"").unwrap();
    assert!(told.starts_with(before) && told.ends_with(after), "{told}");
    let aside = r#"{"jsonrpc":"2.0", "method":"notifications/x","params":[ 1.0 ]}"#;
    assert_eq!(peer.post(&json!({})).body(aside).send().await.status, 202);
    assert_eq!(fake.until_told("notifications/x").await, aside);
}

#[tokio::test]
async fn what_the_server_asks_comes_on_the_stream_of_the_call_and_its_answer_goes_back() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut general = peer.get().stream().await;
    let mut asked = peer.call(1, json!({ "ask": "q" })).await;
    let question = asked.message().await.data;
    assert_eq!(question["method"], "sampling/createMessage");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "said": 3 } });
    assert_eq!(peer.post(&answer).send().await.status, 202);
    let result = asked.answer(1).await;
    assert_eq!(result["result"]["content"][0]["text"], r#"{"said": 3}"#);

    let waiting = peer.call(2, json!({ "gate": "g" })).await;
    let mut other = peer.call(3, json!({ "ask": "r", "gate": "g" })).await;
    let question = general.message().await.data;
    assert_eq!(question["method"], "sampling/createMessage", "with two calls nobody can know");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": {} });
    assert_eq!(peer.post(&answer).send().await.status, 202);
    fake.open("g");
    assert!(other.answer(3).await["result"].is_object());
    drop(waiting);
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_its_stream() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut asked = peer.call(5, json!({ "gate": "never" })).await;
    let place = asked.next().await.unwrap();
    fake.until_told("never").await;
    let params = json!({ "requestId": 5, "reason": "enough" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(peer.post(&cancel).send().await.status, 202);
    assert_eq!(asked.rest().await, []);
    let told: Value = serde_json::from_str(&fake.until_told("enough").await).unwrap();
    let call: Value = serde_json::from_str(&fake.until_told("never").await).unwrap();
    assert_eq!(told["params"]["requestId"], call["id"], "the server knows it by its own id");
    assert_eq!(peer.resume(&place.id).send().await.status, 204);
}

#[tokio::test]
async fn a_session_that_ends_answers_what_is_under_way() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    for _ in 0..8 {
        let peer = Peer::begin(&web, NEWEST).await;
        let mut asked = peer.call(5, json!({ "gate": "never" })).await;
        asked.next().await.unwrap();
        let mut general = peer.get().stream().await;
        general.next().await.unwrap();
        assert_eq!(peer.delete().send().await.status, 204);
        assert_eq!(asked.answer(5).await["error"]["code"], -32001);
        assert_eq!(asked.next().await, None);
        assert_eq!(general.rest().await, []);
    }
}

#[tokio::test]
async fn a_call_under_way_keeps_its_session_alive() {
    for on_disconnect in [OnDisconnect::Immediate, OnDisconnect::Ttl] {
        let fake = Fake::new();
        let sessions = policy(on_disconnect, Some(Duration::from_millis(1)));
        let web = fake.serve(Setup { sessions, ..Setup::open() }).await;
        let peer = Peer::begin(&web, NEWEST).await;
        let mut asked = peer.call(1, json!({ "gate": "g" })).await;
        let place = asked.next().await.unwrap();
        fake.until_told("gate").await;
        drop(asked);
        // Longer than a session without any stream stays attached.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let still = record(&web, &peer.session).await;
        assert!(still.is_active() && still.attached.is_some(), "{on_disconnect:?}");
        fake.open("g");
        let mut resumed = peer.resume(&place.id).stream().await;
        assert!(resumed.answer(1).await["result"].is_object());
        drop(resumed);
        let over = async || !record(&web, &peer.session).await.is_active();
        until(over).await;
    }
}

#[tokio::test]
async fn every_attempt_to_come_back_is_written_down_and_counted() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let place = peer.call(1, json!({})).await.next().await.unwrap().id;
    peer.get().stream().await.next().await.unwrap();
    until_covered(&web, &peer.session, 3).await;
    peer.resume(&place).stream().await.rest().await;
    assert_eq!(peer.resume("17").send().await.status, 400);
    assert_eq!(peer.delete().send().await.status, 204);
    assert_eq!(peer.resume(&place).send().await.status, 404);
    let path = format!("/api/audit?session_id={}", peer.session);
    let trail = web.get(&path).send().await.expect(200);
    let told = |record: &Value| {
        let word = |name: &str| record[name].as_str().unwrap().to_owned();
        (word("transport"), word("action"), word("reason"))
    };
    let told: Vec<_> = trail["records"].as_array().unwrap().iter().map(told).collect();
    let reasons = ["session_already_disconnected", "invalid_token", "reconnected"];
    let expected = reasons.map(|reason| ("mcp".into(), "reconnect".into(), reason.to_owned()));
    assert_eq!(told, expected);
    let metrics = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    let success = r#"rejoin_reconnect_successes_total{transport="mcp"} 1"#;
    assert!(metrics.lines().any(|line| line == success), "{metrics}");
    assert!(metrics.contains("rejoin_reconnect_replayed_events_sum 1.0"), "{metrics}");
}

#[tokio::test]
async fn many_streams_that_broke_at_once_come_back_together() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut places = Vec::new();
    for id in 1..=70 {
        let mut asked = peer.call(id, json!({ "gate": "g" })).await;
        places.push((id, asked.next().await.unwrap().id));
    }
    fake.open("g");
    for (id, place) in places {
        let mut resumed = peer.resume(&place).stream().await;
        assert_eq!(resumed.status, 200);
        assert!(resumed.answer(id).await["result"].is_object());
    }
}

#[tokio::test]
async fn a_server_that_goes_down_takes_no_new_call_and_then_ends_its_streams() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut general = peer.get().stream().await;
    general.next().await.unwrap();
    let mut asked = peer.call(1, json!({ "gate": "g" })).await;
    asked.next().await.unwrap();
    fake.until_told("gate").await;
    let service = web.service.clone();
    let draining = tokio::spawn(async move { service.drain(Duration::from_secs(20)).await });
    until(async || web.service.is_draining()).await;
    let refused = peer.post(&call(2, json!({}))).send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("2")));
    assert_eq!(refused.json()["id"], 2);
    fake.open("g");
    assert!(asked.answer(1).await["result"].is_object(), "what is under way may finish");
    assert!(draining.await.unwrap());
    web.service.close().await.unwrap();
    assert_eq!(general.rest().await, []);
}
