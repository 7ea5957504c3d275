//! `rejoin keys rotate` beside a server that runs: what was given out under the old key stays good until
//! that is retired.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::support::{Server, text};

/// The key that a token says it was signed by.
fn key_of(token: &str) -> String {
    let header = BASE64.decode(token.split('.').next().unwrap()).unwrap();
    text(&serde_json::from_slice::<Value>(&header).unwrap()["kid"])
}

fn token(frame: &Value) -> String {
    text(&frame["metadata"]["reconnect_token"])
}

#[tokio::test]
async fn tokens_and_states_of_the_old_key_are_good_after_a_rotation_and_not_after_its_retirement() {
    let server = Server::start(&["--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, old_token) = (text(&created["session_id"]), token(&created));
    let sealed = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    let other = server.connect().await.created().await;

    server.keys(&["rotate"]).await;
    let back = client.reconnect(&id, json!({ "reconnect_token": old_token })).await;
    let new_token = token(&back);
    assert_ne!(key_of(&new_token), key_of(&old_token), "the new key signs");
    client.notice("replay_complete").await;
    let restored = client.restore(&sealed, json!({})).await;
    assert_eq!(restored["metadata"]["original_session_id"], id.as_str());
    client.notice("replay_complete").await;

    server.keys(&["retire", &key_of(&old_token)]).await;
    let mut late = server.connect().await;
    late.ask_back(&text(&other["session_id"]), json!({ "reconnect_token": token(&other) })).await;
    late.error("TOKEN_INVALID").await;
    late.ask_restore(&sealed, json!({})).await;
    late.error("STATE_VERIFICATION_FAILED").await;
}
