//! Frames of the client.

use rejoin_core::client::{ClientCommand, Secret};
use rejoin_core::{Epoch, Seq};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a client says about itself when it asks for a new session.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_version: Option<String>,
}

/// `user.authenticate`.
pub(crate) fn authenticate(token: &Secret) -> String {
    json!({ "event": "user.authenticate", "content": { "token": token.reveal() } }).to_string()
}

/// A command of the brain, as it goes over the wire.
pub(crate) fn command(command: &ClientCommand, about: &About) -> String {
    match command {
        ClientCommand::CreateSession => {
            json!({ "event": "user.create_session", "content": about }).to_string()
        }
        ClientCommand::Reconnect { session_id, last_seq, epoch, token } => {
            let mut content = position(*last_seq, epoch.as_ref());
            if let Some(token) = token {
                content["reconnect_token"] = token.reveal().into();
            }
            json!({ "event": "user.reconnect", "session_id": session_id, "content": content })
                .to_string()
        }
        ClientCommand::RestoreState { signed_state, last_seq, epoch } => json!({
            "event": "user.reconnect_with_state",
            "signed_state": signed_state.reveal(),
            "content": position(*last_seq, epoch.as_ref()),
        })
        .to_string(),
        ClientCommand::Message { session_id, message_id, content } => {
            message(session_id.as_str(), message_id.as_str(), content)
        }
        ClientCommand::Cancel { session_id, message_id } => json!({
            "event": "user.cancel", "session_id": session_id, "message_id": message_id,
        })
        .to_string(),
        ClientCommand::Ack { session_id, last_seq, received_count, gap_detected } => json!({
            "event": "user.ack",
            "session_id": session_id,
            "metadata": {
                "last_seq": last_seq,
                "received_count": received_count,
                "gap_detected": gap_detected,
            },
        })
        .to_string(),
        ClientCommand::RequestState { session_id } => {
            json!({ "event": "user.request_state", "session_id": session_id }).to_string()
        }
        ClientCommand::EndSession { session_id } => {
            json!({ "event": "user.end_session", "session_id": session_id }).to_string()
        }
    }
}

/// The replay is asked for in batches: a frame for each event costs more than the event.
fn position(last_seq: Seq, epoch: Option<&Epoch>) -> Value {
    let mut content = json!({ "last_seq": last_seq, "batch": true });
    if let Some(epoch) = epoch {
        content["epoch"] = epoch.as_str().into();
    }
    content
}

/// The content goes through byte for byte, so that a message sent again is the same message.
fn message(session_id: &str, message_id: &str, content: &[u8]) -> String {
    #[derive(Serialize)]
    struct Message<'a> {
        event: &'static str,
        session_id: &'a str,
        message_id: &'a str,
        content: Option<&'a RawValue>,
    }
    let content = serde_json::from_slice(content).ok();
    let message = Message { event: "user.message", session_id, message_id, content };
    serde_json::to_string(&message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rejoin_core::{MessageId, SessionId};

    fn written(which: &ClientCommand) -> Value {
        serde_json::from_str(&command(which, &About::default())).unwrap()
    }

    #[test]
    fn coming_back_names_the_position_and_shows_the_token() {
        let session_id = SessionId::parse("sess_1").unwrap();
        let (last_seq, epoch) = (Seq::new(41), Some(Epoch::from_text("e")));
        let token = Some(Secret::new("t"));
        let full = ClientCommand::Reconnect { session_id, last_seq, epoch: epoch.clone(), token };
        let expected = json!({
            "event": "user.reconnect", "session_id": "sess_1",
            "content": { "last_seq": 41, "epoch": "e", "reconnect_token": "t", "batch": true },
        });
        assert_eq!(written(&full), expected);
        let signed_state = Secret::new("s");
        let expected = json!({
            "event": "user.reconnect_with_state", "signed_state": "s",
            "content": { "last_seq": 41, "epoch": "e", "batch": true },
        });
        assert_eq!(
            written(&ClientCommand::RestoreState { signed_state, last_seq, epoch }),
            expected
        );
    }

    #[test]
    fn content_of_a_message_is_not_touched() {
        let content = br#"{ "b" : 1.50, "a": "\u00fc" }"#.as_slice();
        let message = ClientCommand::Message {
            session_id: SessionId::parse("sess_1").unwrap(),
            message_id: MessageId::parse("m1").unwrap(),
            content: content.into(),
        };
        let text = command(&message, &About::default());
        assert!(text.contains(std::str::from_utf8(content).unwrap()), "{text}");
        assert!(
            text.starts_with(r#"{"event":"user.message","session_id":"sess_1","message_id":"m1""#)
        );
    }

    #[test]
    fn a_new_session_is_asked_for_with_what_is_known_of_the_client() {
        let about = About { client_id: Some("tail".to_owned()), app_version: None };
        let text = command(&ClientCommand::CreateSession, &about);
        assert_eq!(text, r#"{"content":{"client_id":"tail"},"event":"user.create_session"}"#);
    }
}
