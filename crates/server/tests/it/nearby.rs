//! What a server without authentication tells only to callers on the same machine.

use std::net::SocketAddr;

use crate::common::web::{Setup, Web};
use serde_json::json;

/// A server whose callers seem to come from there.
async fn called_from(peer: &str) -> Web {
    let peer: SocketAddr = peer.parse().expect("an address");
    Setup { peer: Some(peer), ..Setup::open() }.start().await
}

const FAR_AWAY: [&str; 3] = ["192.0.2.7:4711", "[2001:db8::7]:4711", "[::ffff:192.0.2.7]:4711"];
const ON_THIS_MACHINE: [&str; 4] =
    ["127.0.0.1:4711", "127.0.0.2:4711", "[::1]:4711", "[::ffff:127.0.0.1]:4711"];

/// Paths that name everybody's sessions or hand out credentials.
fn private(id: &str) -> [(&'static str, String); 8] {
    [
        ("GET", "/api/sessions/search".to_owned()),
        ("GET", "/api/overview".to_owned()),
        ("GET", "/api/sessions".to_owned()),
        ("GET", "/api/sessions/active".to_owned()),
        ("GET", "/api/mcp/sessions/active".to_owned()),
        ("GET", format!("/api/sessions/{id}/token")),
        ("POST", format!("/api/mcp/sessions/{id}/token")),
        ("GET", "/api/audit".to_owned()),
    ]
}

#[tokio::test]
async fn sessions_tokens_and_the_audit_trail_are_not_for_callers_from_elsewhere() {
    for peer in FAR_AWAY {
        let web = called_from(peer).await;
        let (id, token) = web.create().await;
        for (method, path) in private(&id) {
            let answer = web.request(method, &path).send().await.expect(403);
            assert!(!answer.to_string().contains(&id), "{peer} {path}: {answer}");
        }
        web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
        web.reconnect(&id, &token).await.expect(200); // who has the id and a token may use them
    }
}

#[tokio::test]
async fn callers_on_this_machine_are_told_by_whichever_address_they_come() {
    for peer in ON_THIS_MACHINE {
        let web = called_from(peer).await;
        let (id, _) = web.create().await;
        for (method, path) in private(&id) {
            web.request(method, &path).send().await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_request_that_a_proxy_passes_on_is_not_of_this_machine() {
    let web = called_from(ON_THIS_MACHINE[0]).await;
    let (id, _) = web.create().await;
    for header in [
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
        "cf-connecting-ip",
        "true-client-ip",
    ] {
        for (method, path) in private(&id) {
            let asked = web.request(method, &path).header(header, "127.0.0.1");
            let answer = asked.send().await.expect(403);
            assert!(!answer.to_string().contains(&id), "{header} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn with_authentication_the_credential_decides_and_not_the_address() {
    let peer = Some(FAR_AWAY[0].parse().expect("an address"));
    let web = Setup { peer, ..Setup::keyed() }.start().await;
    let (id, _) = web.create_by("alice").await;
    let token = format!("/api/sessions/{id}/token");
    assert_eq!(web.get(&token).by("alice").send().await.expect(200)["session_id"], json!(id));
    web.get(&token).by("bob").send().await.expect(404);
    web.get(&token).send().await.expect(401);
}
