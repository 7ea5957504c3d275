//! What pages of other sites can do to a server on the machine of whoever looks at them: nothing.

use crate::common::web::{Setup, Web};

/// Paths that make, reveal or change something, by methods that a page may use without asking first.
fn plain_gets(id: &str) -> [String; 8] {
    [
        "/sse".to_owned(),
        format!("/api/sessions/{id}/token"),
        format!("/api/sessions/{id}"),
        format!("/api/sessions/{id}/events"),
        "/api/sessions".to_owned(),
        "/api/overview".to_owned(),
        "/api/audit".to_owned(),
        "/metrics".to_owned(),
    ]
}

async fn sessions(web: &Web) -> usize {
    let list = web.get("/api/sessions").send().await.expect(200);
    list["sessions"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn plain_requests_of_other_sites_do_nothing() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let before = sessions(&web).await;
    for path in plain_gets(&id) {
        for mode in ["no-cors", "navigate", "websocket"] {
            let asked = web.get(&path).header("sec-fetch-site", "cross-site");
            let asked = asked.header("sec-fetch-mode", mode).header("sec-fetch-dest", "document");
            asked.send().await.expect(403);
        }
    }
    // A form can be posted to any site without being asked for permission.
    let form = web.post("/api/sessions").header("sec-fetch-site", "cross-site");
    form.send().await.expect(403);
    assert_eq!(sessions(&web).await, before);
    web.reconnect(&id, &token).await.expect(200); // nobody has used up the client's token
}

#[tokio::test]
async fn own_pages_people_and_programs_are_answered() {
    let web = Setup::open().start().await;
    for site in [None, Some("same-origin"), Some("same-site"), Some("none")] {
        let asked = web.get("/api/sessions");
        let asked = match site {
            Some(site) => asked.header("sec-fetch-site", site),
            None => asked,
        };
        asked.send().await.expect(200);
    }
    // A page on this machine under another name says where it comes from.
    let asked = web.get("/api/sessions").header("sec-fetch-site", "cross-site");
    asked.clone().header("origin", "http://localhost:3000").send().await.expect(200);
    asked.header("origin", "https://evil.example").send().await.expect(403);
}

#[tokio::test]
async fn a_foreign_name_or_origin_is_refused_on_every_transport() {
    let web = Setup::open().start().await;
    for path in ["/ws", "/mcp", "/sse", "/api/sessions", "/metrics"] {
        web.get(path).header("host", "evil.example").send().await.expect(403);
        let upgrade = web.get(path).header("origin", "https://evil.example");
        let upgrade = upgrade.header("connection", "upgrade").header("upgrade", "websocket");
        upgrade.send().await.expect(403);
    }
}
