//! The table of error codes. That every error a client gets has the recovery of its code is checked with
//! every frame (`support/envelope.rs`); here it is that table that is checked, and codes that no other
//! file is about.

use rejoin_core::codes::ErrorCode;
use serde_json::json;

use crate::support::Server;
use crate::support::envelope::recovery;

#[test]
fn the_server_knows_the_codes_of_the_protocol_and_no_others() {
    for code in ErrorCode::ALL {
        assert_eq!(code.recovery().as_str(), recovery(code.as_str()), "{code}");
    }
    assert_eq!(ErrorCode::ALL.len(), 25);
}

#[tokio::test]
async fn a_known_session_that_the_connection_is_not_attached_to_is_not_owned() {
    let server = Server::start(&[]).await;
    let mut owner = server.connect().await;
    let id = owner.create().await;
    let mut other = server.connect().await;
    let requests = [
        json!({ "event": "user.message", "session_id": id, "content": 1 }),
        json!({ "event": "user.cancel", "session_id": id }),
        json!({ "event": "user.ack", "session_id": id, "metadata": { "last_seq": 0 } }),
        json!({ "event": "user.request_state", "session_id": id }),
        json!({ "event": "user.end_session", "session_id": id }),
    ];
    for request in requests {
        other.send(request.clone()).await;
        let refused = other.error("SESSION_NOT_OWNED").await;
        assert_eq!(refused["content"], "Session does not belong to this connection", "{request}");
        assert_eq!(refused["session_id"], id.as_str());
    }
    owner.thoughts(&id, 1).await;
}

#[tokio::test]
async fn an_unknown_session_is_not_found_whatever_is_asked() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = "sess_AAAAAAAAAAAAAAAAAAAAAA";
    let requests = [
        json!({ "event": "user.reconnect", "session_id": id }),
        json!({ "event": "user.message", "session_id": id, "content": 1 }),
        json!({ "event": "user.cancel", "session_id": id }),
        json!({ "event": "user.ack", "session_id": id, "metadata": { "last_seq": 0 } }),
        json!({ "event": "user.request_state", "session_id": id }),
        json!({ "event": "user.end_session", "session_id": id }),
    ];
    for request in requests {
        client.send(request).await;
        client.error("SESSION_NOT_FOUND").await;
    }
}

#[tokio::test]
async fn an_error_about_a_message_names_it() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let message = json!({
        "event": "user.message", "session_id": "sess_unknown", "content": 1, "message_id": "m7",
    });
    client.send(message).await;
    let refused = client.error("SESSION_NOT_FOUND").await;
    assert_eq!(refused["metadata"]["message_id"], "m7");
}
