//! What a client keeps between its runs: enough to come back after a reload or a restart.
//!
//! Messages are not in it. They are the application's until it is told that they were accepted;
//! sent again under the same id, in whichever run, they are entered once.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::position::{Position, Seq};

/// What to keep, and to bring to [`Client::new`](super::Client::new) the next time. Without the
/// position, everything the server still holds is delivered again, as a page that was reloaded wants
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// The session to come back to.
    pub session_id: Option<SessionId>,
    /// The last event delivered. It is saved before it is acked, so it may lag, never lead.
    pub position: Option<Position>,
    /// The reconnect token.
    pub token: Option<Secret>,
    /// What to restore from when the session is gone.
    pub snapshot: Option<Snapshot>,
}

/// A sealed state to restore from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The sealed state.
    pub signed_state: Secret,
    /// The out position it stands for.
    pub seq: Seq,
}

/// Text that must not show up in a log: a reconnect token, a sealed state.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Arc<str>);

impl Secret {
    /// A secret as the server gave it.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, for the wire and the storage only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Epoch;

    #[test]
    fn what_is_saved_shows_no_secret_and_reads_back_the_same() {
        let saved = Saved {
            session_id: Some(SessionId::from_random([7; 16])),
            position: Some(Position { epoch: Epoch::from_text("e1"), seq: Seq::new(42) }),
            token: Some(Secret::new("hunter2")),
            snapshot: Some(Snapshot { signed_state: Secret::new("sealed"), seq: Seq::new(40) }),
        };
        let shown = format!("{saved:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("sealed"), "{shown}");
        let text = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<Saved>(&text).unwrap(), saved);
        assert_eq!(serde_json::from_str::<Saved>("{}").unwrap(), Saved::default());
    }
}
