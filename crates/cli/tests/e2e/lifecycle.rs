//! How long a session lives without a client: the policies, expiry, and what a restart changes.

use std::time::Duration;

use rejoin_core::Timestamp;
use serde_json::{Value, json};

use crate::support::client::seqs;
use crate::support::{Client, Server, until};

/// The answer to coming back, whatever it is.
async fn attempt(client: &mut Client, id: &str) -> Value {
    client.send(json!({ "event": "user.request_state", "session_id": id })).await;
    client.next().await
}

/// Waits until a session without a client is over, and says how that is called.
async fn over(server: &Server, id: &str) -> String {
    let (mut client, mut code) = (server.connect().await, String::new());
    until("the session is over", async || {
        code =
            attempt(&mut client, id).await["metadata"]["error_code"].as_str().unwrap_or("").into();
        code != "SESSION_NOT_OWNED"
    })
    .await;
    code
}

#[tokio::test]
async fn a_parked_session_expires_after_disconnect_ttl_and_says_so() {
    let server = Server::start(&["--disconnect-ttl=200ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 1).await;
    drop(client);
    assert_eq!(over(&server, &id).await, "SESSION_EXPIRED");
    let mut client = server.connect().await;
    client.ask_back(&id, json!({})).await;
    let refused = client.error("SESSION_EXPIRED").await;
    assert_eq!(refused["content"], "Session expired, please create new session");
    let event = "user.reconnect_with_state";
    client.send(json!({ "event": event, "session_id": id, "content": { "last_seq": 1 } })).await;
    client.recovery_failed("SESSION_EXPIRED").await;
    client.send(json!({ "event": "user.message", "session_id": id, "content": 1 })).await;
    client.error("SESSION_EXPIRED").await;
    client.create().await;
}

#[tokio::test]
async fn session_ttl_is_the_default_and_an_attached_session_never_expires() {
    let server = Server::start(&["--session-ttl=300ms"]).await;
    let mut attached = server.connect().await;
    let stays = attached.create().await;
    let mut client = server.connect().await;
    let goes = client.create().await;
    drop(client);
    assert_eq!(over(&server, &goes).await, "SESSION_EXPIRED");
    // By now the other one is older than that as well.
    attached.thoughts(&stays, 1).await;
    assert_eq!(attached.reconnect(&stays, json!({})).await["metadata"]["last_seq"], 1);
}

#[tokio::test]
async fn a_client_that_is_back_in_time_stops_the_clock() {
    let server = Server::start(&["--disconnect-ttl=1s"]).await;
    let mut client = server.connect().await;
    let (id, witness) = (client.create().await, server.connect().await.create().await);
    drop(client);
    let mut client = server.connect().await;
    client.reconnect(&id, json!({})).await;
    client.notice("replay_complete").await;
    assert_eq!(over(&server, &witness).await, "SESSION_EXPIRED");
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn immediate_ends_a_session_with_its_connection_even_with_work_under_way() {
    let server = Server::start(&["--on-disconnect=immediate"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("never");
    client.tell(&id, json!({ "wait": gate.path(), "count": 1 })).await;
    drop(client);
    assert_eq!(over(&server, &id).await, "SESSION_INACTIVE");
    assert_eq!(server.record(&id).await["ended_reason"], "policy");
}

#[tokio::test]
async fn while_pending_keeps_a_session_as_long_as_it_has_work() {
    let server = Server::start(&["--on-disconnect=while_pending"]).await;
    let mut client = server.connect().await;
    let (busy, gate) = (client.create().await, server.puppet.gate("go"));
    client.tell(&busy, json!({ "wait": gate.path(), "count": 2 })).await;
    drop(client);
    let mut client = server.connect().await;
    let idle = client.create().await;
    drop(client);
    over(&server, &idle).await;
    // The one with work outlives the one without, and can be come back to.
    let mut client = server.connect().await;
    client.reconnect(&busy, json!({})).await;
    client.notice("replay_complete").await;
    drop(client);
    gate.open();
    over(&server, &busy).await;
    // However long it took, it is the policy that has ended them, and their time is not to come.
    for id in [idle, busy] {
        let record = server.record(&id).await;
        let how = (&record["status"], &record["ended_reason"]);
        assert_eq!(how, (&json!("closed"), &json!("policy")), "{record}");
        assert!(record["expires_at"].as_str() <= Some(&now()), "{record}");
    }
}

/// Now, as records have it.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(since.as_millis() as u64 + 1).to_string()
}

#[tokio::test]
async fn while_pending_with_a_disconnect_ttl_leaves_time_to_fetch_the_answer() {
    let flags = ["--on-disconnect=while_pending", "--disconnect-ttl=1h"];
    let server = Server::start(&flags).await;
    let mut client = server.connect().await;
    let (id, gate) = (client.create().await, server.puppet.gate("go"));
    client.tell(&id, json!({ "wait": gate.path(), "count": 2 })).await;
    drop(client);
    gate.open();
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0 })).await;
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(client.next().await["seq"].as_u64());
    }
    assert_eq!(got, [1, 2]);
}

#[tokio::test]
async fn a_session_with_work_under_way_outlives_its_disconnect_ttl() {
    let server = Server::start(&["--disconnect-ttl=200ms"]).await;
    let mut client = server.connect().await;
    let (busy, gate) = (client.create().await, server.puppet.gate("go"));
    client.tell(&busy, json!({ "wait": gate.path(), "count": 2 })).await;
    drop(client);
    let idle = server.connect().await.create().await;
    assert_eq!(over(&server, &idle).await, "SESSION_EXPIRED");
    let mut client = server.connect().await;
    client.reconnect(&busy, json!({ "last_seq": 0 })).await;
    client.notice("replay_complete").await;
    gate.open();
    assert_eq!(seqs(&[client.next().await, client.next().await]), [1, 2]);
}

#[tokio::test]
async fn nothing_expires_right_after_a_restart() {
    let mut server = Server::start(&["--disconnect-ttl=100ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 2).await;
    server.kill_nine().await;
    // The server is away for longer than the session has.
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart().await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0 })).await;
    assert_eq!(seqs(&client.replay().await), [1, 2]);
}

#[tokio::test]
async fn sessions_that_were_attached_when_the_server_was_killed_are_parked() {
    let mut server = Server::start(&["--takeover=reject"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    server.kill_nine().await;
    server.restart().await;
    let back = server.connect().await.reconnect(&id, json!({})).await;
    assert_eq!(back["metadata"]["generation"], 2);
    client.gone().await;
}
