//! What the dashboard looks at: searches, timelines, the overview; and who may see it.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;

use crate::common::web::{Setup, Web, later, word};
use crate::common::{HOUR, SECOND, until};
use rejoin::core::SessionId;
use rejoin::core::limits::LogBounds;
use rejoin::core::position::Seq;
use rejoin::core::record::Transport;
use rejoin::core::resume::Asked;
use rejoin::service::{Admission, Joined, Visitor};
use rejoin::store::MemoryStore;
use rejoin::{Authenticate as _, Open};
use serde_json::{Value, json};

async fn search(web: &Web, query: &str) -> Value {
    web.get(&format!("/api/sessions/search?{query}")).send().await.expect(200)
}

fn ids(page: &Value) -> Vec<String> {
    page["sessions"].as_array().unwrap().iter().map(|record| word(&record["session_id"])).collect()
}

async fn end(web: &Web, id: &str) {
    web.request("DELETE", &format!("/api/sessions/{id}")).send().await.expect(200);
}

async fn timeline(web: &Web, id: &str) -> Value {
    web.get(&format!("/api/sessions/{id}/timeline")).send().await.expect(200)
}

fn words(timeline: &Value) -> Vec<String> {
    timeline["moments"].as_array().unwrap().iter().map(|moment| word(&moment["what"])).collect()
}

/// A client of anonymous comes back, and has everything up to `last_seq`.
async fn come_back(web: &Web, id: &str, last_seq: u64) -> Joined {
    let caller = Open.without_credential().unwrap();
    let visitor = Visitor::over(Transport::WebSocket, caller, None);
    let asked = Asked { last_seq: Some(Seq::new(last_seq)), ..Asked::default() };
    let admission = Admission { asked, token: None };
    let id = SessionId::parse(id).unwrap();
    web.service.join(&visitor, &id, Transport::WebSocket, admission).await.unwrap()
}

async fn is_parked(web: &Web, id: &str) -> bool {
    let record = web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
    record["attached"] == false
}

#[tokio::test]
async fn a_search_shows_a_window_of_what_it_finds_with_the_latest_first() {
    let web = Setup::open().start().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.insert(0, web.create().await.0);
        later(SECOND).await;
    }
    assert_eq!(ids(&search(&web, "").await), made);
    let window = search(&web, "offset=1&limit=2").await;
    assert_eq!((ids(&window), &window["found"]), (made[1..3].to_vec(), &json!(5)));
    let beyond = search(&web, "offset=9").await;
    assert_eq!((ids(&beyond).len(), &beyond["found"]), (0, &json!(5)));
}

#[tokio::test]
async fn a_search_counts_by_state_and_shows_those_of_one() {
    let web = Setup::open().start().await;
    let (expired, _) = web.create().await;
    later(25 * HOUR).await;
    let (closed, _) = web.create().await;
    end(&web, &closed).await;
    let (attached, _) = web.create().await;
    let _joined = web.attach(&attached).await;
    let (parked, _) = web.create().await;
    let counts = json!({ "attached": 1, "parked": 1, "closed": 1, "expired": 1 });
    for (state, id) in
        [("attached", attached), ("parked", parked), ("closed", closed), ("expired", expired)]
    {
        let page = search(&web, &format!("state={state}")).await;
        assert_eq!((ids(&page), &page["found"]), (vec![id], &json!(1)), "{state}");
        assert_eq!(page["counts"], counts);
    }
}

#[tokio::test]
async fn a_search_finds_parts_of_ids_and_of_what_clients_say_in_capitals_or_not() {
    let web = Setup::open().start().await;
    let (one, _) = web.create().await;
    let client = json!({ "client_id": "Ünderground-7" });
    let other = web.post("/api/sessions").json(&client).send().await.expect(201);
    assert_eq!(ids(&search(&web, &format!("q={}", &one[5..15].to_uppercase())).await), [one]);
    for text in ["underground", "%C3%9CNDERGROUND", "ground-7%22"] {
        let page = search(&web, &format!("q={text}")).await;
        let expected =
            if text == "underground" { vec![] } else { vec![word(&other["session_id"])] };
        assert_eq!(ids(&page), expected, "{text}");
        assert_eq!(page["counts"]["parked"], expected.len());
    }
    web.get(&format!("/api/sessions/search?q={}", "x".repeat(129))).send().await.expect(400);
    web.get("/api/sessions/search?state=working").send().await.expect(400);
}

#[tokio::test]
async fn a_search_shows_and_counts_nothing_of_other_principals_except_to_administrators() {
    let web = Setup::keyed().start().await;
    let (alices, _) = web.create_by("alice").await;
    let (bobs, _) = web.create_by("bob").await;
    let found = async |key: &str, query: &str| {
        let path = format!("/api/sessions/search?{query}");
        let page = web.get(&path).by(key).send().await.expect(200);
        (ids(&page).len(), page["counts"]["parked"].clone())
    };
    assert_eq!(found("alice", "").await, (1, json!(1)));
    assert_eq!(found("alice", &format!("q={bobs}")).await, (0, json!(0)));
    assert_eq!(found("alice", "q=bob").await, (0, json!(0)));
    assert_eq!(found("admin", "").await, (2, json!(2)));
    assert_eq!(found("admin", "q=ALICE").await, (1, json!(1)));
    for path in [format!("/api/sessions/{alices}/timeline"), "/api/sessions/x/timeline".into()] {
        web.get(&path).by("bob").send().await.expect(404);
    }
    web.get("/api/sessions/search").send().await.expect(401);
    web.get("/api/sessions/search").by("nobody").send().await.expect(401);
}

#[tokio::test]
async fn a_timeline_tells_who_came_and_went_and_what_they_missed() {
    let bounds = LogBounds { events: 4, ..LogBounds::default() };
    let store = Arc::new(MemoryStore::new(bounds, 100));
    let web = Setup { store, ..Setup::open() }.start().await;
    let (id, _) = web.create().await;
    drop(web.attach(&id).await);
    until(async || is_parked(&web, &id).await).await;
    for _ in 0..7 {
        web.publish(&id, json!({ "event": "a" })).await;
    }
    later(3 * SECOND).await;
    drop(come_back(&web, &id, 1).await);
    until(async || words(&timeline(&web, &id).await).last().unwrap() == "parked").await;
    end(&web, &id).await;
    let timeline = timeline(&web, &id).await;
    let expected = ["created", "attached", "parked", "attached", "resumed", "parked", "closed"];
    assert_eq!(words(&timeline), expected);
    let moments = timeline["moments"].as_array().unwrap();
    let generations: Vec<_> = moments.iter().map(|m| m["generation"].as_u64().unwrap()).collect();
    assert_eq!(generations, [0, 1, 1, 2, 2, 2, 2]);
    assert_eq!(moments[1]["transport"], "websocket");
    let resumed = &moments[4];
    let gap = json!({ "from": 2, "to": 3, "reason": "evicted", "lost": { "from": 2, "to": 3 } });
    assert_eq!((&resumed["replayed"], &resumed["lost"]), (&json!(4), &json!(2)));
    assert_eq!(resumed["gap"], gap);
    assert!(resumed["away_seconds"].as_f64().unwrap() >= 3.0);
}

#[tokio::test]
async fn a_timeline_shows_tokens_by_their_times_and_never_themselves() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let next = word(&web.reconnect(&id, &token).await.expect(200)["reconnect_token"]);
    let timeline = timeline(&web, &id).await;
    let states = |timeline: &Value| -> Vec<_> {
        let tokens = timeline["tokens"].as_array().unwrap();
        tokens.iter().map(|token| word(&token["state"])).collect()
    };
    assert_eq!(states(&timeline), ["live", "used"]);
    assert_eq!(timeline["tokens"][0]["used_at"], json!(null));
    assert!(word(&timeline["tokens"][1]["used_at"]) < word(&timeline["tokens"][1]["expires_at"]));
    let text = timeline.to_string();
    assert!(!text.contains(&token) && !text.contains(&next));
}

#[tokio::test]
async fn the_overview_of_the_whole_server_is_for_administrators() {
    let web = Setup::keyed().start().await;
    web.create_by("bob").await;
    let overview = async |key: &str| web.get("/api/overview").by(key).send().await.expect(200);
    let alices = overview("alice").await;
    assert_eq!(alices["caller"], json!({ "principal": "alice", "admin": false }));
    assert_eq!((&alices["whole_server"], &alices["authentication"]), (&json!(null), &json!(true)));
    let admins = overview("admin").await;
    assert_eq!(admins["whole_server"]["present"]["parked"], 1);
}

#[tokio::test]
async fn who_says_nothing_learns_from_the_overview_only_that_a_credential_is_asked_for() {
    let web = Setup::keyed().start().await;
    let overview = web.get("/api/overview").send().await.expect(200);
    let nothing = json!({
        "authentication": true,
        "caller": null,
        "server_version": null,
        "started_at": null,
        "now": null,
        "whole_server": null,
    });
    assert_eq!(overview, nothing);
    for request in [
        web.get("/api/overview").by("nobody"),
        web.get("/api/overview").header("authorization", "Basic alice"),
        web.get("/api/overview").by("alice").header("x-api-key", "admin"),
    ] {
        request.send().await.expect(401);
    }
}

#[tokio::test]
async fn the_overview_has_a_sample_every_five_seconds_and_one_of_now() {
    let web = Setup::open().start().await;
    let overview = async |query: &str| {
        let path = format!("/api/overview{query}");
        web.get(&path).send().await.expect(200)["whole_server"].clone()
    };
    let samples = |whole: &Value| whole["samples"].as_array().unwrap().clone();
    until(async || samples(&overview("").await).len() == 1).await;
    let (id, token) = web.create().await;
    let _joined = web.attach(&id).await;
    web.reconnect(&id, &token).await.expect(200);
    later(5 * SECOND).await;
    until(async || samples(&overview("").await).len() == 2).await;
    let whole = overview("").await;
    assert_eq!(whole["interval_seconds"], 5);
    let [first, second] = samples(&whole).try_into().unwrap();
    assert_eq!((&first["attached"], &first["reconnects"]), (&json!(0), &json!({})));
    assert_eq!((&second["attached"], &second["parked"]), (&json!(1), &json!(0)));
    assert_eq!(second["reconnects"], json!({ "reconnected": 1 }));
    assert_eq!(second["away"].as_array().unwrap().len(), 13);
    assert_eq!(whole["present"]["attached"], 1);
    let since = overview(&format!("?after_ms={}", first["at_ms"])).await;
    assert_eq!(samples(&since), [second]);
}
