//! MCP over `/sse` and `/message`, revision 2024-11-05: one stream a session, to which its client comes back.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::http::{Answer, Request, SentEvent, Stream};
use crate::common::mcp::{Fake, call, initialize, notification, posting, request, until_covered};
use crate::common::mcp_client::kept_in;
use crate::common::web::{KeysOfTests, Setup, Web, word};
use crate::common::{policy, until};
use rejoin::core::lifetime::OnDisconnect;
use rejoin::core::limits::LogBounds;
use rejoin::core::record::{Record, Transport};
use rejoin::core::{Generation, SessionId};
use rejoin::service::ServiceSettings;
use rejoin::store::MemoryStore;
use rejoin::web::{McpSettings, WebSettings};
use rejoin::{Authenticate, Caller, Unauthorized, WallTime};
use serde_json::{Value, json};

const NAME: &str = "the-session-of-my-agent-1";

/// A client with its stream.
struct Peer {
    stream: Stream,
    session: String,
    endpoint: SentEvent,
}

impl Peer {
    async fn open(request: Request) -> Self {
        let mut stream = request.stream().await;
        assert_eq!(stream.status, 200);
        let endpoint = stream.next().await.unwrap();
        assert_eq!(endpoint.name, "endpoint", "{endpoint:?}");
        let session = endpoint.text.strip_prefix("/message?sessionId=").unwrap().to_owned();
        Self { stream, session, endpoint }
    }

    /// A client that has introduced itself.
    async fn begin(web: &Web) -> Self {
        let mut peer = Self::open(web.get("/sse")).await;
        assert_eq!(post(web, &peer.session, &initialize("2024-11-05")).await.status, 202);
        assert_eq!(peer.stream.answer(0).await["result"]["protocolVersion"], "2024-11-05");
        let ready = post(web, &peer.session, &notification("notifications/initialized")).await;
        assert_eq!(ready.status, 202);
        peer
    }
}

fn message(web: &Web, session: &str, body: &Value) -> Request {
    posting(web.post(&format!("/message?sessionId={session}")), body)
}

async fn post(web: &Web, session: &str, body: &Value) -> Answer {
    message(web, session, body).send().await
}

/// A client that comes back by the header.
fn back(web: &Web, session: &str) -> Request {
    web.get("/sse").header("x-session-id", session)
}

async fn record(web: &Web, id: &str) -> Record {
    web.store.session(&SessionId::parse(id).unwrap()).await.unwrap().unwrap()
}

async fn parked(web: &Web, id: &str) {
    until(async || record(web, id).await.attached.is_none()).await;
}

/// The ids of requests that are answered, in the order of the answers that come next.
async fn answered(stream: &mut Stream, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let data = stream.message().await.data;
        ids.extend(data["id"].as_u64().filter(|_| data.get("method").is_none()));
    }
    ids
}

fn with_mcp(mcp: McpSettings) -> Setup {
    Setup { web: WebSettings { mcp, ..WebSettings::default() }, ..Setup::open() }
}

fn choosing() -> ServiceSettings {
    ServiceSettings { client_session_ids: true, ..ServiceSettings::default() }
}

#[tokio::test]
async fn a_stream_begins_with_its_endpoint_and_carries_all_that_the_session_has_to_say() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut peer = Peer::begin(&web).await;
    assert!(!peer.endpoint.id.is_empty(), "so that a client knows at once where it stands");
    let aside = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
    let asking = call(1, json!({ "progress": 2, "later": [aside] }));
    assert_eq!(post(&web, &peer.session, &asking).await.status, 202);
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(peer.stream.message().await);
    }
    let methods: Vec<_> = events.iter().map(|event| event.data["method"].as_str()).collect();
    let progress = Some("notifications/progress");
    assert_eq!(methods, [progress, progress, None, Some("notifications/message")]);
    assert_eq!(events[2].data["id"], 1);
    assert!(events.iter().all(|event| event.name == "message" && !event.id.is_empty()));
    let record = record(&web, &peer.session).await;
    assert_eq!((record.attached, record.generation), (Some(Transport::Sse), Generation::new(1)));
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_lies_after_the_last_event_it_has() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut peer = Peer::begin(&web).await;
    post(&web, &peer.session, &call(1, json!({ "progress": 3, "gate": "g" }))).await;
    let first = peer.stream.message().await;
    let before = record(&web, &peer.session).await.generation;
    drop(peer.stream);
    fake.open("g");
    until_covered(&web, &peer.session, 3).await;
    let by_query = web.get(&format!("/sse?sessionId={}", peer.session));
    for request in [back(&web, &peer.session), by_query] {
        let mut again = Peer::open(request.header("last-event-id", &first.id)).await;
        assert_eq!(again.session, peer.session);
        let (place, mark) = again.endpoint.id.rsplit_once('.').unwrap();
        assert_eq!((place, &mark[..1]), (&*first.id, "m"), "the same place under an id of its own");
        assert_eq!(again.stream.message().await.data["params"]["progress"], 2);
        assert_eq!(again.stream.message().await.data["params"]["progress"], 3);
        assert!(again.stream.answer(1).await["result"].is_object());
    }
    let after = record(&web, &peer.session).await.generation;
    assert_eq!(after, before.next().next(), "each return is a generation");
}

#[tokio::test]
async fn without_a_position_it_gets_everything_since_its_stream_before_opened() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut first = Peer::begin(&web).await;
    post(&web, &first.session, &call(1, json!({}))).await;
    first.stream.answer(1).await;
    drop(first.stream);
    let mut second = Peer::open(back(&web, &first.session)).await;
    assert_eq!(answered(&mut second.stream, 2).await, [0, 1]);
    post(&web, &first.session, &call(2, json!({}))).await;
    second.stream.answer(2).await;
    drop(second.stream);
    let mut third = Peer::open(back(&web, &first.session)).await;
    assert_eq!(answered(&mut third.stream, 1).await, [2]);
}

#[tokio::test]
async fn that_place_outlives_the_server() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut first = Peer::begin(&web).await;
    let session = first.session.clone();
    first.stream = Peer::open(back(&web, &session)).await.stream;
    assert_eq!(answered(&mut first.stream, 1).await, [0]);
    post(&web, &session, &call(1, json!({}))).await;
    first.stream.answer(1).await;
    until(async || record(&web, &session).await.acked.get() == 1).await;
    drop(first.stream);
    let store = web.kill().await;
    let web = Setup { store, ..Setup::open() }.start().await;
    let mut again = Peer::open(back(&web, &session)).await;
    assert_eq!(answered(&mut again.stream, 1).await, [1]);
}

#[tokio::test]
async fn a_message_to_a_parked_session_is_taken_and_its_answer_waits() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web).await;
    drop(peer.stream);
    parked(&web, &peer.session).await;
    assert_eq!(post(&web, &peer.session, &call(1, json!({}))).await.status, 202);
    until_covered(&web, &peer.session, 3).await;
    let mut again = Peer::open(back(&web, &peer.session)).await;
    assert_eq!(answered(&mut again.stream, 2).await, [0, 1]);
}

#[tokio::test]
async fn a_call_under_way_keeps_its_session_alive_without_a_stream() {
    let fake = Fake::new();
    let sessions = policy(OnDisconnect::Immediate, None);
    let web = fake.serve(Setup { sessions, ..Setup::open() }).await;
    let peer = Peer::begin(&web).await;
    post(&web, &peer.session, &call(1, json!({ "gate": "g" }))).await;
    fake.until_told("gate").await;
    drop(peer.stream);
    tokio::time::sleep(Duration::from_millis(1500)).await; // longer than nobody need be there
    assert!(record(&web, &peer.session).await.attached.is_some());
    fake.open("g");
    until(async || !record(&web, &peer.session).await.is_active()).await;
}

#[tokio::test]
async fn a_message_to_a_session_that_is_gone_says_where_to_begin_again() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let ended = Peer::begin(&web).await.session;
    assert_eq!(web.request("DELETE", &format!("/api/sessions/{ended}")).send().await.status, 200);
    let short = policy(OnDisconnect::Ttl, Some(Duration::from_millis(1)));
    let fleeting = fake.serve(Setup { sessions: short, ..Setup::open() }).await;
    let expired = Peer::begin(&fleeting).await.session;
    until(async || !record(&fleeting, &expired).await.is_active()).await;
    for (web, session, reason) in [
        (&web, "sess_nobody_has_ever_heard_of", "session_not_found"),
        (&web, "not/even/an/id", "session_not_found"),
        (&web, &*ended, "session_already_disconnected"),
        (&fleeting, &*expired, "session_expired"),
    ] {
        let refused = post(web, session, &call(1, json!({}))).await;
        assert_eq!(refused.header("x-reconnect-to"), Some("/sse"));
        let body = refused.expect(410);
        assert_eq!((&body["reason"], &body["reconnect_to"]), (&json!(reason), &json!("/sse")));
        assert!(body["detail"].is_string());
    }
    let again = Peer::open(back(&web, &ended)).await;
    assert_ne!(again.session, ended, "who comes back to it is given another");
}

#[tokio::test]
async fn the_status_of_that_can_be_404() {
    let stale_session_status = axum::http::StatusCode::NOT_FOUND;
    let web = with_mcp(McpSettings { stale_session_status, ..McpSettings::default() });
    let web = web.start().await;
    let refused = post(&web, "sess_nobody_has_ever_heard_of", &call(1, json!({}))).await;
    assert_eq!((refused.status, refused.header("x-reconnect-to")), (404, Some("/sse")));
}

#[tokio::test]
async fn an_unknown_session_can_be_adopted_and_its_answers_wait() {
    let fake = Fake::new();
    let mcp = McpSettings { adopt_unknown_sessions: true, ..McpSettings::default() };
    let web = fake.serve(with_mcp(mcp)).await;
    assert_eq!(post(&web, NAME, &call(1, json!({}))).await.status, 202);
    let mut peer = Peer::open(back(&web, NAME)).await;
    assert_eq!(peer.session, NAME);
    assert!(peer.stream.answer(1).await["result"].is_object());
    assert_eq!(post(&web, "too-short", &call(1, json!({}))).await.status, 410);

    assert_eq!(web.request("DELETE", &format!("/api/sessions/{NAME}")).send().await.status, 200);
    let taken = async || post(&web, NAME, &call(2, json!({}))).await.status == 202;
    until(taken).await; // as soon as what ran for the one before has ended
    let mut again = Peer::open(back(&web, NAME)).await;
    assert_eq!(answered(&mut again.stream, 1).await, [2], "nothing of the one before is left");
}

#[tokio::test]
async fn a_client_may_choose_its_id_where_that_is_allowed() {
    let fake = Fake::new();
    let web = fake.serve(Setup { service: choosing(), ..Setup::open() }).await;
    let peer = Peer::open(back(&web, NAME)).await;
    assert_eq!(peer.session, NAME);
    post(&web, NAME, &call(1, json!({}))).await;
    let mut again = Peer::open(web.get(&format!("/sse?sessionId={NAME}"))).await;
    assert_eq!(again.session, NAME);
    assert!(again.stream.answer(1).await["result"].is_object());
    for bad in ["21-characters-are-few", "one that has a space in it", &"x".repeat(129)] {
        let refused = back(&web, bad).send().await.expect(400);
        assert_eq!(refused["error_code"], "ID_INVALID", "{bad}");
    }
    let elsewhere = fake.serve(Setup::open()).await;
    for ignored in [NAME, "21-characters-are-few", "one that has a space in it"] {
        let peer = Peer::open(back(&elsewhere, ignored)).await;
        assert!(peer.session.starts_with("sess_"), "{}", peer.session);
    }
}

#[tokio::test]
async fn a_session_of_somebody_else_looks_unknown() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let alices = Peer::open(back(&web, NAME).by("alice")).await;
    let bobs = Peer::open(back(&web, &alices.session).by("bob")).await;
    assert_ne!(bobs.session, alices.session);
    let asking = call(1, json!({}));
    let refused = message(&web, &alices.session, &asking).by("bob").send().await;
    assert_eq!(refused.expect(410)["reason"], "session_not_found");
    assert_eq!(message(&web, &alices.session, &asking).send().await.status, 401);
    assert_eq!(web.get("/sse").send().await.status, 401);
}

#[tokio::test]
async fn a_name_that_two_principals_choose_is_a_session_of_each() {
    let fake = Fake::new();
    let web = fake.serve(Setup { service: choosing(), ..Setup::keyed() }).await;
    let mut alices = Peer::open(back(&web, NAME).by("alice")).await;
    let mut bobs = Peer::open(back(&web, NAME).by("bob")).await;
    assert_eq!((&*alices.session, &*bobs.session), (NAME, NAME));
    for (number, (peer, key)) in
        [(&mut alices, "alice"), (&mut bobs, "bob")].into_iter().enumerate()
    {
        let number = 10 + number as u64;
        let sent = message(&web, NAME, &call(number, json!({}))).by(key).send().await;
        assert_eq!(sent.status, 202);
        assert!(peer.stream.answer(number).await["result"].is_object());
    }
    let sessions =
        web.store.sessions(&rejoin::store::Query { limit: 9, ..Default::default() }).await;
    let sessions = sessions.unwrap();
    assert_eq!(sessions.len(), 2);
    assert!(sessions.iter().all(|record| record.id().client_name() == NAME));
}

#[tokio::test]
async fn a_session_that_begins_with_another_request_is_introduced_by_us() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut peer = Peer::open(web.get("/sse")).await;
    post(&web, &peer.session, &call(1, json!({}))).await;
    assert!(peer.stream.answer(1).await["result"].is_object());
    let told = fake.told();
    let hello: Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!(hello["method"], "initialize");
    assert_eq!(hello["params"]["protocolVersion"], "2024-11-05");
    assert!(told[1].contains("notifications/initialized"), "{told:?}");
}

#[tokio::test]
async fn a_stream_that_is_replaced_ends_and_stays_away() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut older = Peer::begin(&web).await;
    let mut newer = Peer::open(back(&web, &older.session)).await;
    assert_eq!(older.stream.rest().await.last().unwrap().retry, Some(60 * 60 * 1000));
    post(&web, &older.session, &call(1, json!({}))).await;
    assert!(newer.stream.answer(1).await["result"].is_object());
}

#[tokio::test]
async fn a_connection_that_is_cut_parks_the_session() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let mut peer = Peer::begin(&web).await;
    let cut = web.post(&format!("/api/sessions/{}/disconnect", peer.session)).send().await;
    assert_eq!(cut.status, 200);
    assert_eq!(peer.stream.rest().await, []);
    parked(&web, &peer.session).await;
    assert_eq!(Peer::open(back(&web, &peer.session)).await.session, peer.session);
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_says_so_and_ends_with_its_server() {
    let web = WebSettings { sse_keep_alive: Duration::from_millis(5), ..WebSettings::default() };
    let web = Setup { web, ..Setup::open() }.start().await;
    let mut peer = Peer::open(web.get("/sse")).await;
    assert_eq!(peer.stream.next_or_comment().await.unwrap().name, ":");
    web.service.drain(Duration::from_secs(1)).await;
    assert_eq!(web.get("/sse").send().await.status, 503, "no new sessions");
    let refused = post(&web, &peer.session, &call(1, json!({}))).await;
    assert_eq!(refused.status, 503, "and no new calls");
    assert_eq!(peer.stream.next_or_comment().await.unwrap().name, ":");
    web.service.close().await.unwrap();
    assert_eq!(peer.stream.rest().await, []);
}

/// Keys that are good for a moment.
#[derive(Debug)]
struct Fleeting;

impl Authenticate for Fleeting {
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        let until = Some(now + Duration::from_millis(50));
        Ok(Caller { until, ..KeysOfTests.authenticate(credential, now)? })
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_credential_it_came_with() {
    let web = Setup { access: Arc::new(Fleeting), ..Setup::keyed() }.start().await;
    let mut peer = Peer::open(web.get("/sse").by("alice")).await;
    assert_eq!(peer.stream.rest().await, []);
}

#[tokio::test]
async fn what_a_client_will_never_see_it_is_told_of() {
    let fake = Fake::new();
    let bounds = LogBounds { events: 6, ..LogBounds::default() };
    let store = Arc::new(MemoryStore::new(bounds, 100));
    let web = fake.serve(Setup { store, ..Setup::open() }).await;
    let peer = Peer::begin(&web).await;
    drop(peer.stream);
    post(&web, &peer.session, &call(1, json!({}))).await;
    until_covered(&web, &peer.session, 3).await;
    post(&web, &peer.session, &call(2, json!({ "progress": 15 }))).await;
    until_covered(&web, &peer.session, 4).await;
    let mut again = Peer::open(back(&web, &peer.session)).await;
    let notice = again.stream.message().await.data;
    assert_eq!(notice["params"]["logger"], "rejoin", "{notice}");
    // Results go last, so they are all there.
    assert_eq!(answered(&mut again.stream, 2).await, [0, 1]);
    let left = again.stream.message().await.data;
    assert!(left["params"]["progress"].as_u64().unwrap() > 5, "{left}");
    assert_eq!(answered(&mut again.stream, 1).await, [2]);
}

#[tokio::test]
async fn every_attempt_to_come_back_is_written_down_and_counted() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web).await;
    drop(peer.stream);
    parked(&web, &peer.session).await;
    drop(Peer::open(back(&web, &peer.session)).await);
    let path = format!("/api/sessions/{}", peer.session);
    assert_eq!(web.request("DELETE", &path).send().await.status, 200);
    drop(Peer::open(back(&web, &peer.session)).await);
    let path = format!("/api/audit?session_id={}", peer.session);
    let trail = web.get(&path).send().await.expect(200);
    let told = |record: &Value| {
        ["transport", "action", "reason"].map(|name| word(&record[name])).join(" ")
    };
    let told: Vec<_> = trail["records"].as_array().unwrap().iter().map(told).collect();
    assert_eq!(told, ["sse reconnect session_already_disconnected", "sse reconnect reconnected"]);
    let metrics = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    for line in [
        r#"rejoin_reconnect_successes_total{transport="sse"} 1"#,
        "rejoin_reconnect_away_seconds_count 1",
        "rejoin_reconnect_replayed_events_sum 1.0",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn bad_requests_are_told_from_one_another() {
    let mcp = McpSettings { max_bytes: 1024, ..McpSettings::default() };
    let web = with_mcp(mcp).start().await;
    let peer = Peer::open(web.get("/sse")).await;
    let ping = request(1, "ping", json!({}));
    let good = || message(&web, &peer.session, &ping);
    for (request, status) in [
        (message(&web, &peer.session, &json!([ping])), 400),
        (good().body("{"), 400),
        (good().body("{}"), 400),
        (good().header("content-type", "text/plain"), 415),
        (message(&web, &peer.session, &call(1, json!("x".repeat(2048)))), 413),
        (posting(web.post("/message"), &ping), 400),
        (good().header("host", "evil.example"), 403),
        (good().header("origin", "http://evil.example"), 403),
        (web.get("/sse").header("accept", "application/json"), 406),
        (web.get("/sse").header("host", "evil.example"), 403),
    ] {
        let words = format!("{request:?}");
        assert_eq!(request.send().await.status, status, "{words}");
    }
}

/// The official TypeScript client comes back with nothing but the revision that it has agreed upon.
fn back_without_a_name(web: &Web) -> Request {
    web.get("/sse").header("mcp-protocol-version", "2024-11-05")
}

#[tokio::test]
async fn a_client_that_comes_back_with_its_revision_only_has_its_session_again() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web).await;
    let session = peer.session.clone();
    drop(peer);
    assert_eq!(post(&web, &session, &call(1, json!({}))).await.status, 202);
    until_left(&web, &session).await;
    let mut back = Peer::open(back_without_a_name(&web)).await;
    assert_eq!(back.session, session);
    assert!(back.stream.answer(1).await["result"].is_object(), "what was asked meanwhile");
}

#[tokio::test]
async fn clients_that_cannot_be_told_apart_get_sessions_of_their_own() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let (one, two) = (Peer::begin(&web).await, Peer::begin(&web).await);
    let (had, also_had) = (one.session.clone(), two.session.clone());
    let watching = Peer::open(back_without_a_name(&web)).await;
    assert!(![&had, &also_had].contains(&&watching.session), "both streams are being read");
    drop((one, two));
    until_left(&web, &had).await;
    until_left(&web, &also_had).await;
    let other = Peer::open(back_without_a_name(&web)).await;
    assert!(![&had, &also_had].contains(&&other.session));
}

#[tokio::test]
async fn nobody_has_the_session_of_another_principal_or_of_another_revision() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let own = |request: Request| request.by("alice");
    let mut peer = Peer::open(own(web.get("/sse"))).await;
    let session = peer.session.clone();
    own(message(&web, &session, &initialize("2024-11-05"))).send().await;
    peer.stream.answer(0).await;
    drop(peer);
    until_left(&web, &session).await;
    assert_ne!(Peer::open(back_without_a_name(&web).by("bob")).await.session, session);
    let newer = web.get("/sse").header("mcp-protocol-version", "2025-06-18");
    assert_ne!(Peer::open(own(newer)).await.session, session);
    assert_ne!(Peer::open(own(web.get("/sse"))).await.session, session, "it begins");
    assert_eq!(Peer::open(own(back_without_a_name(&web))).await.session, session);
}

/// A request that a proxy on this machine passes on, for whomever.
fn forwarded(request: Request) -> Request {
    request.header("x-forwarded-for", "192.0.2.7")
}

/// How the requests of a client come.
type Way = fn(Request) -> Request;

const DIRECTLY: Way = |request| request;
const FORWARDED: Way = forwarded;

/// A client that has introduced itself and left.
async fn began_and_left(web: &Web, way: Way) -> String {
    let mut peer = Peer::open(way(web.get("/sse"))).await;
    way(message(web, &peer.session, &initialize("2024-11-05"))).send().await;
    peer.stream.answer(0).await;
    let session = peer.session.clone();
    drop(peer);
    until_left(web, &session).await;
    session
}

#[tokio::test]
async fn callers_behind_a_proxy_are_given_no_session_that_they_do_not_name() {
    for (leaves, comes) in [(FORWARDED, FORWARDED), (DIRECTLY, FORWARDED), (FORWARDED, DIRECTLY)] {
        let fake = Fake::new();
        let web = fake.serve(Setup::open()).await;
        let session = began_and_left(&web, leaves).await;
        assert_ne!(Peer::open(comes(back_without_a_name(&web))).await.session, session);
        assert_eq!(Peer::open(comes(back(&web, &session))).await.session, session, "by its name");
    }
}

#[tokio::test]
async fn every_header_of_a_proxy_makes_its_callers_unknown() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let session = began_and_left(&web, DIRECTLY).await;
    for header in ["forwarded", "via", "x-forwarded-host", "x-real-ip", "cf-connecting-ip"] {
        let stranger = back_without_a_name(&web).header(header, "127.0.0.1");
        assert_ne!(Peer::open(stranger).await.session, session, "{header}");
    }
    assert_eq!(Peer::open(back_without_a_name(&web)).await.session, session);
}

#[tokio::test]
async fn callers_from_elsewhere_without_authentication_are_given_no_session_that_they_do_not_name()
{
    let fake = Fake::new();
    let peer = Some("192.0.2.7:4711".parse().unwrap());
    let web = fake.serve(Setup { peer, ..Setup::open() }).await;
    let session = began_and_left(&web, DIRECTLY).await;
    assert_ne!(Peer::open(back_without_a_name(&web)).await.session, session);
}

#[tokio::test]
async fn a_session_of_a_caller_behind_a_proxy_is_given_to_nobody_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    for (way, given) in [(FORWARDED, false), (DIRECTLY, true)] {
        let fake = Fake::new();
        let directory = home.path().join(given.to_string());
        let web = fake.serve(Setup { store: kept_in(&directory), ..Setup::open() }).await;
        let mut peer = Peer::open(way(web.get("/sse"))).await;
        way(message(&web, &peer.session, &initialize("2024-11-05"))).send().await;
        peer.stream.answer(0).await;
        let session = peer.session.clone();
        web.service.close().await.unwrap();
        drop(web.kill().await);
        let web = fake.serve(Setup { store: kept_in(&directory), ..Setup::open() }).await;
        let back = Peer::open(back_without_a_name(&web)).await;
        assert_eq!(back.session == session, given);
    }
}

#[tokio::test]
async fn with_a_credential_a_caller_behind_a_proxy_has_its_session_again() {
    let fake = Fake::new();
    let web = fake.serve(Setup::keyed()).await;
    let session = began_and_left(&web, |request| forwarded(request).by("alice")).await;
    let back = forwarded(back_without_a_name(&web)).by("alice");
    assert_eq!(Peer::open(back).await.session, session);
}

async fn until_left(web: &Web, session: &str) {
    parked(web, session).await;
}
