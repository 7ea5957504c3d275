//! What clients send, as it is stored in the in log and handed to the agent.

use rejoin_core::MessageId;
use rejoin_core::page::Body;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The body of an entry: what the client said, as it came, and the id it gave it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntryBody {
    /// What it says; nothing for a cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Box<RawValue>>,
    /// The id the client gave it, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}

impl EntryBody {
    /// The bytes to store.
    pub fn to_body(&self) -> Body {
        // Text, and JSON that was read as such before: it can't fail.
        serde_json::to_vec(self).unwrap_or_else(|_| b"{}".to_vec()).into()
    }

    /// What was stored. Bytes that are none of ours read as an empty entry.
    pub fn from_body(body: &[u8]) -> Self {
        let empty = Self { content: None, message_id: None };
        serde_json::from_slice(body).unwrap_or(empty)
    }
}
