//! Whatever is sent, the server answers with a sentence and goes on.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::web::{Setup, Web, word};
use rejoin::web::WebSettings;
use serde_json::json;

async fn refused(web: &Web, method: &str, path: &str, body: &[u8]) {
    let answer = web.request(method, path).body(body).send().await;
    let text = String::from_utf8_lossy(body);
    assert_eq!(answer.status, 400, "{method} {path} {text}: {:?}", answer.json());
    let failure = answer.json();
    assert!(word(&failure["detail"]).len() > 10, "{failure}");
    let code = word(&failure["error_code"]);
    assert!(["INVALID_MESSAGE", "ID_INVALID"].contains(&code.as_str()), "{failure}");
}

#[tokio::test]
async fn bodies_that_are_no_json_objects_are_refused_everywhere() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let deep = format!(r#"{{"content":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let bad: [&[u8]; 12] = [
        b"{",
        b"nonsense",
        b"null",
        b"3",
        b"\"text\"",
        b"\0",
        b"{\"content\":\"\0\"}",
        b"{\"content\":\"\xff\"}",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"[1]",
        deep.as_bytes(),
    ];
    for path in ["", "/{id}/reconnect", "/{id}/events", "/{id}/messages", "/{id}/state"] {
        for place in ["/api/sessions", "/api/mcp/sessions"] {
            let path = format!("{place}{}", path.replace("{id}", &id));
            for body in bad {
                refused(&web, "POST", &path, body).await;
            }
        }
    }
}

#[tokio::test]
async fn members_that_are_missing_or_of_the_wrong_type_are_refused() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let cases = [
        ("", r#"{"client":3}"#),
        ("", r#"{"client":[]}"#),
        ("/{id}/reconnect", ""),
        ("/{id}/reconnect", "{}"),
        ("/{id}/reconnect", r#"{"token":null}"#),
        ("/{id}/reconnect", r#"{"token":3}"#),
        ("/{id}/reconnect", r#"{"token":["x"]}"#),
        ("/{id}/reconnect", r#"["x"]"#),
        ("/{id}/reconnect", r#"{"token":"x","token":"y"}"#),
        ("/{id}/messages", ""),
        ("/{id}/messages", "{}"),
        ("/{id}/messages", r#"{"content":1,"message_id":""}"#),
        ("/{id}/messages", r#"{"content":1,"message_id":7}"#),
        ("/{id}/events", ""),
        ("/{id}/events", "{}"),
        ("/{id}/events", "[]"),
        ("/{id}/events", r#"[{"event":"a"},{}]"#),
        ("/{id}/events", r#"{"event":"system.notice"}"#),
        ("/{id}/events", r#"{"event":"session.ended"}"#),
        ("/{id}/events", r#"{"event":"session.state"}"#),
        ("/{id}/events", r#"{"event":"agent.error"}"#),
        ("/{id}/events", r#"[{"event":"a"},{"event":"agent.session_created"}]"#),
        ("/{id}/events", r#"{"event":"a","metadata":[]}"#),
        ("/{id}/events", r#"{"event":"a","in_seq":-1}"#),
        ("/{id}/events", r#"{"event":"a","in_seq":1.5}"#),
        ("/{id}/events", r#"{"event":""}"#),
        ("/{id}/state", r#"{"include_memory":"yes"}"#),
        ("/{id}/state", r#"{"include_work":1}"#),
    ];
    for (path, body) in cases {
        let path = format!("/api/sessions{}", path.replace("{id}", &id));
        refused(&web, "POST", &path, body.as_bytes()).await;
    }
    let head = web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
    assert_eq!(head["last_seq"], 0, "nothing of all that was published");
}

#[tokio::test]
async fn parameters_that_are_none_are_refused() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let paths = [
        "/api/sessions?status=gone",
        "/api/sessions?status=",
        "/api/sessions?limit=0",
        "/api/sessions?limit=1001",
        "/api/sessions?limit=-1",
        "/api/sessions?limit=x",
        "/api/sessions?limit=1&limit=2",
        "/api/sessions?after=a%2Fb",
        "/api/sessions?after=",
        "/api/mcp/sessions/active?limit=0",
        "/api/audit?session_id=%00",
        "/api/audit?before=-1",
        "/api/audit?limit=99999999999999999999999",
        "/api/sessions/{id}/events?after=-1",
        "/api/sessions/{id}/events?after=1.5",
        "/api/sessions/{id}/events?after=18446744073709551616",
        "/api/sessions/{id}/events?wait=61s",
        "/api/sessions/{id}/events?wait=20",
        "/api/sessions/{id}/events?wait=",
    ];
    for path in paths {
        refused(&web, "GET", &path.replace("{id}", &id), b"").await;
    }
    for last in ["7", "abc", "abc:x", "\u{e9}:1"] {
        let path = format!("/api/sessions/{id}/events");
        web.get(&path).header("last-event-id", last).send().await.expect(400);
    }
}

#[tokio::test]
async fn numbers_at_the_end_of_their_range_do_no_harm() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let most = u64::MAX;
    web.publish(&id, json!({ "event": "a", "in_seq": most })).await;
    web.publish(&id, json!({ "event": "b" })).await;
    let path = format!("/api/sessions/{id}/messages");
    let sent = web.post(&path).json(&json!({ "content": 1 })).send().await.expect(200);
    assert_eq!(sent["in_seq"], 1);
    web.get(&format!("/api/audit?before={most}")).send().await.expect(200);
}

#[tokio::test]
async fn a_body_over_the_limit_is_too_large() {
    let web = WebSettings { max_frame_bytes: 1_000, ..WebSettings::default() };
    let web = Setup { web, ..Setup::open() }.start().await;
    let (id, _) = web.create().await;
    for path in ["", "/{id}/reconnect", "/{id}/events", "/{id}/messages", "/{id}/state"] {
        let path = format!("/api/sessions{}", path.replace("{id}", &id));
        let answer = web.post(&path).body("x".repeat(1_001)).send().await;
        assert_eq!(answer.expect(413)["error_code"], "MESSAGE_TOO_LARGE", "{path}");
    }
    let exactly = format!(r#"{{"event":"a","content":"{}"}}"#, "x".repeat(1_000 - 26));
    assert_eq!(exactly.len(), 1_000);
    web.post(&format!("/api/sessions/{id}/events")).body(exactly).send().await.expect(200);
}

#[tokio::test]
async fn what_a_client_says_of_itself_has_a_bound_of_its_own() {
    let web = Setup::open().start().await;
    let large = json!({ "client": { "name": "x".repeat(20_000) } });
    web.post("/api/sessions").json(&large).send().await.expect(413);
}

#[tokio::test]
async fn any_content_type_is_taken_if_it_is_json() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    for kind in ["application/json", "text/plain", "application/x-www-form-urlencoded", "nonsense"]
    {
        let request = web.post(&format!("/api/sessions/{id}/events")).header("content-type", kind);
        request.body(r#" {"event":"a"} "#).send().await.expect(200);
    }
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_answered_with_json() {
    let web = Setup::open().start().await;
    for path in [
        "/api",
        "/api/",
        "/api/nothing",
        "/api/sessions/",
        "/api/sessions/x/nothing",
        "/api/sessions/x/token/",
        "/api/mcp",
        "/api/mcp/audit",
    ] {
        let failure = web.get(path).send().await.expect(404);
        assert!(word(&failure["detail"]).len() > 10, "{path}");
    }
    for (method, path, allowed) in [
        ("PATCH", "/api/sessions", "GET,HEAD,POST"),
        ("DELETE", "/api/sessions", "GET,HEAD,POST"),
        ("POST", "/api/sessions/active", "GET,HEAD"),
        ("PUT", "/api/mcp/sessions/x", "GET,HEAD,DELETE"),
        ("GET", "/api/sessions/x/reconnect", "POST"),
        ("OPTIONS", "/api/audit", "GET,HEAD"),
    ] {
        let answer = web.request(method, path).send().await;
        answer.expect(405);
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}
