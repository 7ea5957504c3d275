//! What `hook_url` is told of a session's life, and what its answers do.

use serde_json::{Value, json};

use crate::support::{Client, Hook, Server};

/// A server with a hook, and a session with a client that the hook has heard of.
async fn attached(hook: &mut Hook, flags: &[&str]) -> (Server, Client, String) {
    let url = hook.flag();
    let server = Server::start(&[&[url.as_str()], flags].concat()).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    assert_eq!(hook.next(&id).await.0, "created");
    assert_eq!(hook.next(&id).await.0, "attached");
    (server, client, id)
}

/// The session's next event, which must be `disconnected`.
async fn disconnected(hook: &mut Hook, id: &str) -> Value {
    let (kind, session) = hook.next(id).await;
    assert_eq!(kind, "disconnected");
    session
}

#[tokio::test]
async fn a_session_that_a_restore_takes_over_is_closed() {
    let mut hook = Hook::start().await;
    let (server, mut client, id) = attached(&mut hook, &["--auto-export-interval=1h"]).await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    let mut other = server.connect().await;
    other.restore(&sealed, json!({ "last_seq": 1 })).await;
    let (kind, session) = hook.next(&id).await;
    assert_eq!(kind, "closed");
    assert_eq!(session["ended_reason"], "restored");
}

#[tokio::test]
async fn after_a_crash_the_hook_is_asked_about_sessions_that_were_attached() {
    let mut hook = Hook::start().await;
    let (mut server, client, id) = attached(&mut hook, &[]).await;
    hook.answer(json!({ "cleanup": true }));
    server.kill_nine().await;
    server.restart().await;
    drop(client);
    assert_eq!(disconnected(&mut hook, &id).await["attached"], false);
    assert_eq!(hook.next(&id).await.0, "closed");
    assert_eq!(server.over(&id).await["ended_reason"], "policy");
}

#[tokio::test]
async fn after_a_drain_the_hook_is_asked_about_sessions_that_were_attached() {
    let mut hook = Hook::start().await;
    let (mut server, mut client, id) = attached(&mut hook, &["--disconnect-ttl=1h"]).await;
    hook.answer(json!({ "keep_for": "10m" }));
    server.terminate();
    assert_eq!(client.closed().await.code, 4000);
    server.ended().await;
    server.restart().await;
    let parked = disconnected(&mut hook, &id).await;
    crate::support::until("it is kept for ten minutes", async || {
        let record = server.record(&id).await;
        record["expires_at"].as_str() < parked["expires_at"].as_str()
    })
    .await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({})).await;
    assert_eq!(hook.next(&id).await.0, "attached", "it was asked once");
}

#[tokio::test]
async fn a_hook_that_leaves_it_to_the_settings_takes_nothing_from_a_session_after_a_restart() {
    let mut hook = Hook::start().await;
    let (mut server, client, id) = attached(&mut hook, &["--on-disconnect=immediate"]).await;
    server.kill_nine().await;
    drop(client);
    server.restart().await;
    let deadline = disconnected(&mut hook, &id).await["expires_at"].clone();
    let mut client = server.connect().await;
    client.settled().await;
    assert_eq!(server.record(&id).await["expires_at"], deadline);
    client.reconnect(&id, json!({})).await;
}
