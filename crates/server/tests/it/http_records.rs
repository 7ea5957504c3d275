//! Sessions as records over HTTP: made, listed, looked at, cut off, ended; and who may do that.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::HOUR;
use crate::common::failing::FailingStore;
use crate::common::web::{Setup, Web, later, word};
use rejoin::core::SessionId;
use rejoin::core::limits::LogBounds;
use rejoin::core::record::{Ending, Status};
use rejoin::service::ServiceSettings;
use rejoin::store::{MemoryStore, Store as _};
use rejoin::web::WebSettings;
use serde_json::{Value, json};

const FIELDS: [&str; 15] = [
    "attached",
    "buffered",
    "client",
    "created_at",
    "ended_reason",
    "expires_at",
    "generation",
    "last_acked_seq",
    "last_activity",
    "last_seq",
    "principal",
    "reconnect_count",
    "session_id",
    "status",
    "transport",
];

fn ids(page: &Value) -> Vec<String> {
    page["sessions"].as_array().unwrap().iter().map(|record| word(&record["session_id"])).collect()
}

fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

async fn status(web: &Web, id: &str) -> Value {
    web.get(&format!("/api/sessions/{id}")).send().await.expect(200)["status"].clone()
}

#[tokio::test]
async fn a_session_is_made_with_what_its_client_says_of_itself_and_a_token() {
    let web = Setup::open().start().await;
    let client = json!({ "client_id": "c1", "app_version": "2" });
    for body in [json!({ "client": client }), client.clone()] {
        let answer = web.post("/api/sessions").json(&body).send().await;
        let made = answer.expect(201);
        assert_eq!(made["client"], client);
        assert_eq!(made["expires_in_minutes"], 15);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let location = answer.header("location").unwrap();
        let seen = web.get(location).send().await.expect(200);
        assert_eq!(seen["session_id"], made["session_id"]);
        assert_eq!(members(&seen), FIELDS);
        web.reconnect(&word(&made["session_id"]), &word(&made["reconnect_token"]))
            .await
            .expect(200);
    }
    let bare = web.post("/api/mcp/sessions").send().await.expect(201);
    assert_eq!(bare["client"], json!({}));
}

#[tokio::test]
async fn a_record_says_how_things_stand() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    web.publish(&id, json!([{ "event": "a" }, { "event": "b" }])).await;
    let path = format!("/api/mcp/sessions/{id}");
    let parked = web.get(&path).send().await.expect(200);
    assert_eq!((&parked["attached"], &parked["transport"]), (&json!(false), &json!(null)));
    assert_eq!((&parked["last_seq"], &parked["buffered"]), (&json!(2), &json!(2)));
    assert_eq!((&parked["last_acked_seq"], &parked["generation"]), (&json!(0), &json!(0)));
    assert_eq!(parked["principal"], "anonymous");
    assert!(word(&parked["expires_at"]) > word(&parked["created_at"]));

    let _joined = web.attach(&id).await;
    let attached = web.get(&path).send().await.expect(200);
    assert_eq!(
        (&attached["attached"], &attached["transport"]),
        (&json!(true), &json!("websocket"))
    );
    assert_eq!(attached["generation"], 1);
}

#[tokio::test]
async fn lists_show_those_of_one_status_or_all_that_are_remembered() {
    let web = Setup::open().start().await;
    let (expired, _) = web.create().await;
    later(25 * HOUR).await;
    let (closed, _) = web.create().await;
    web.request("DELETE", &format!("/api/sessions/{closed}")).send().await.expect(200);
    let (active, _) = web.create().await;
    let listed = async |query: &str| {
        let page = web.get(&format!("/api/sessions{query}")).send().await.expect(200);
        assert_eq!(page["next"], json!(null));
        ids(&page)
    };
    assert_eq!(listed("?status=active").await, [active.as_str()]);
    assert_eq!(listed("/active").await, [active.as_str()]);
    assert_eq!(listed("?status=closed").await, [closed.as_str()]);
    assert_eq!(listed("?status=expired").await, [expired.as_str()]);
    let mut all = [active.clone(), closed, expired];
    all.sort();
    assert_eq!(listed("").await, all);
    let page = web.get("/api/mcp/sessions/active").send().await.expect(200);
    assert_eq!(ids(&page), [active]);
}

/// Whoever looks after deadlines may be late, and a crash now would bring back what somebody knows to be over.
#[tokio::test]
async fn a_session_is_ended_in_the_store_before_anybody_is_told_that_it_has_expired() {
    let store = FailingStore::new();
    let web = Setup { store: store.clone(), ..Setup::open() }.start().await;
    store.forget_deadlines();
    let message = json!({ "content": 1 });
    for (method, path, status) in
        [("GET", "", 200), ("GET", "/events", 410), ("POST", "/messages", 410), ("DELETE", "", 410)]
    {
        let (id, _) = web.create().await;
        later(25 * HOUR).await;
        let path = format!("/api/sessions/{id}{path}");
        let asked = web.request(method, &path);
        let asked = if method == "POST" { asked.json(&message) } else { asked };
        let told = asked.send().await.expect(status).to_string().to_lowercase();
        assert!(told.contains("expired"), "{method} {path}: {told}");
        let record = store.session(&SessionId::parse(&id).unwrap()).await.unwrap().unwrap();
        let ended = matches!(record.status, Status::Ended { ending: Ending::Expired, .. });
        assert!(ended, "{method} {path}: {:?}", record.status);
    }
}

#[tokio::test]
async fn pages_of_a_list_join_without_holes_or_doubles() {
    let web = Setup::open().start().await;
    let mut made = Vec::new();
    for number in 0..7 {
        let (id, _) = web.create().await;
        if number % 2 == 0 {
            made.push(id);
        } else {
            web.request("DELETE", &format!("/api/sessions/{id}")).send().await.expect(200);
        }
    }
    made.sort();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/sessions?status=active&limit=2{after}");
        let page = web.get(&path).send().await.expect(200);
        assert!(ids(&page).len() <= 2);
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found, made);
}

#[tokio::test]
async fn health_is_measured_against_the_nearer_bound() {
    let bounds = LogBounds { events: 10, bytes: 1_000, ..LogBounds::default() };
    let web = Setup {
        store: Arc::new(MemoryStore::new(bounds, 100)),
        service: ServiceSettings { bounds, ..ServiceSettings::default() },
        ..Setup::open()
    };
    let web = web.start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/health");
    let empty = web.get(&path).send().await.expect(200);
    assert_eq!((&empty["buffer_size"], &empty["oldest_event_seq"]), (&json!(0), &json!(null)));
    assert_eq!(empty["buffer_usage_percent"], 0.0);

    web.publish(&id, json!([{ "event": "a" }, { "event": "a" }])).await;
    let two = web.get(&path).send().await.expect(200);
    assert_eq!((&two["buffer_size"], &two["unacked_events"]), (&json!(2), &json!(2)));
    assert_eq!((&two["oldest_event_seq"], &two["newest_event_seq"]), (&json!(1), &json!(2)));
    assert_eq!(two["buffer_usage_percent"], 20.0);
    assert!(two["session_age_seconds"].as_f64().unwrap() >= 0.0);

    web.publish(&id, json!({ "event": "a", "content": "x".repeat(900) })).await;
    let large = web.get(&path).send().await.expect(200);
    assert!(large["buffer_usage_percent"].as_f64().unwrap() > 90.0, "{large}");
    assert!(large["buffer_bytes"].as_u64().unwrap() > 900);
}

#[tokio::test]
async fn ending_shows_the_record_and_after_that_the_session_is_gone() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}");
    let ended = web.request("DELETE", &path).send().await.expect(200);
    assert_eq!((&ended["status"], &ended["buffered"]), (&json!("closed"), &json!(0)));
    assert_eq!(
        web.request("DELETE", &path).send().await.expect(410)["error_code"],
        "SESSION_CLOSED"
    );
    assert_eq!(status(&web, &id).await, "closed");
}

#[tokio::test]
async fn a_connection_is_cut_and_the_session_kept() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/disconnect");
    assert_eq!(web.post(&path).send().await.expect(200)["disconnected"], false);
    let mut joined = web.attach(&id).await;
    assert_eq!(web.post(&path).send().await.expect(200)["disconnected"], true);
    while joined.attachment.next().await.is_some() {}
    let record = async || web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
    crate::common::until(async || record().await["attached"] == false).await;
    assert_eq!(status(&web, &id).await, "active");
}

#[tokio::test]
async fn restarting_an_agent_that_is_not_there_says_so_and_mcp_sessions_have_none() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/mcp/sessions/{id}/restart");
    assert_eq!(
        web.post(&path).send().await.expect(200),
        json!({ "session_id": id, "restarted": false })
    );
    let mcp = web.create_mcp().await;
    web.post(&format!("/api/sessions/{mcp}/restart")).send().await.expect(404);
}

#[tokio::test]
async fn everything_but_the_record_and_the_token_of_an_ended_session_is_gone() {
    let web = Setup::open().start().await;
    let (expired, _) = web.create().await;
    later(25 * HOUR).await;
    let (closed, _) = web.create().await;
    web.request("DELETE", &format!("/api/sessions/{closed}")).send().await.expect(200);
    for (id, code) in [(&expired, "SESSION_EXPIRED"), (&closed, "SESSION_CLOSED")] {
        let calls = [
            ("DELETE", "", "", 410),
            ("GET", "/health", "", 410),
            ("GET", "/events", "", 410),
            ("POST", "/events", r#"{"event":"a"}"#, 410),
            ("POST", "/messages", r#"{"content":1}"#, 410),
            ("POST", "/state", "", 410),
            ("POST", "/disconnect", "", 410),
            ("POST", "/restart", "", 410),
            ("GET", "/token", "", 400),
            ("POST", "/token", "", 400),
        ];
        for (method, path, body, status) in calls {
            let path = format!("/api/sessions/{id}{path}");
            let answer = web.request(method, &path).body(body).send().await.expect(status);
            assert_eq!(answer["error_code"], code, "{method} {path}");
        }
        let stream = web.get(&format!("/api/sessions/{id}/events")).stream().await;
        assert_eq!(stream.status, 410);
    }
}

#[tokio::test]
async fn unknown_foreign_and_impossible_sessions_look_the_same() {
    let web = Setup::keyed().start().await;
    let (alices, _) = web.create_by("alice").await;
    let ids = [alices.as_str(), "sess_unknown", "%00", "%FF", "a%2Fb", &"x".repeat(200)];
    let calls = [
        ("GET", "", ""),
        ("DELETE", "", ""),
        ("GET", "/health", ""),
        ("GET", "/token", ""),
        ("POST", "/token", ""),
        ("GET", "/events", ""),
        ("POST", "/events", r#"{"event":"a"}"#),
        ("POST", "/messages", r#"{"content":1}"#),
        ("POST", "/state", ""),
        ("POST", "/disconnect", ""),
        ("POST", "/restart", ""),
    ];
    for id in ids {
        for (method, path, body) in calls {
            let path = format!("/api/sessions/{id}{path}");
            let answer = web.request(method, &path).by("bob").body(body).send().await.expect(404);
            assert_eq!(answer["error_code"], "SESSION_NOT_FOUND", "{method} {path}");
        }
    }
    let seen = web.get(&format!("/api/sessions/{alices}")).by("alice").send().await.expect(200);
    assert_eq!(seen["status"], "active");
}

#[tokio::test]
async fn everybody_sees_their_own_sessions_and_an_administrator_all() {
    let web = Setup::keyed().start().await;
    let (alices, _) = web.create_by("alice").await;
    let (bobs, _) = web.create_by("bob").await;
    let listed = async |key: &str| ids(&web.get("/api/sessions").by(key).send().await.expect(200));
    assert_eq!(listed("alice").await, [alices.as_str()]);
    assert_eq!(listed("bob").await, [bobs.as_str()]);
    assert_eq!(listed("admin").await.len(), 2);
    for id in [&alices, &bobs] {
        web.get(&format!("/api/sessions/{id}/token")).by("admin").send().await.expect(200);
        web.request("DELETE", &format!("/api/sessions/{id}")).by("admin").send().await.expect(200);
    }
}

#[tokio::test]
async fn without_a_credential_nothing_is_answered_where_one_is_asked_for() {
    let web = Setup::keyed().start().await;
    for request in [
        web.get("/api/sessions"),
        web.post("/api/sessions"),
        web.get("/api/sessions/x").by("nobody"),
        web.get("/api/audit").header("x-api-key", "nobody"),
        web.get("/api/sessions").by("alice").header("x-api-key", "alice"),
    ] {
        let answer = request.send().await;
        assert_eq!(answer.expect(401)["error_code"], "UNAUTHORIZED");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    web.get("/api/sessions").header("x-api-key", "alice").send().await.expect(200);
}

#[tokio::test]
async fn a_full_server_says_when_to_come_again() {
    let service = ServiceSettings { max_sessions: 1, ..ServiceSettings::default() };
    let web = Setup { service, ..Setup::open() }.start().await;
    web.create().await;
    let answer = web.post("/api/sessions").send().await;
    assert_eq!(answer.expect(503)["error_code"], "SERVER_BUSY");
    assert_eq!(answer.header("retry-after"), Some("2"));
}

#[tokio::test]
async fn other_hosts_and_origins_are_turned_away() {
    let web = Setup { web: WebSettings::default(), ..Setup::open() }.start().await;
    web.get("/api/sessions").header("host", "evil.example").send().await.expect(403);
    web.get("/api/sessions").header("origin", "http://evil.example").send().await.expect(403);
    web.get("/api/sessions").header("origin", "http://localhost:3000").send().await.expect(200);
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    web.publish(&id, json!({ "event": "a" })).await;
    for path in ["", "/health", "/token", "/events"] {
        let path = format!("/api/sessions/{id}{path}");
        let (head, get) = (web.request("HEAD", &path).send(), web.get(&path).send());
        let (head, get) = (head.await, get.await);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.header("cache-control"), Some("no-store"));
    }
    let unknown = web.request("HEAD", "/api/sessions/unknown").send().await;
    assert_eq!((unknown.status, unknown.body.len()), (404, 0));
    let wait = Duration::from_secs(5);
    let stream = web.request("HEAD", &format!("/api/sessions/{id}/events"));
    let stream = tokio::time::timeout(wait, stream.header("accept", "text/event-stream").send());
    assert_eq!(stream.await.unwrap().status, 200, "a stream without a body ends at once");
}
