//! The shape of an agent's state: as its client sees it, as its agent gets it back, and which parts of
//! it are left out on request.

use rejoin_core::page::StoredSnapshot;
use rejoin_core::{SessionId, Timestamp};
use serde_json::{Map, Value};

/// Which parts of a state to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Include {
    /// `memory_snapshot`.
    pub memory: bool,
    /// `plan_context`.
    pub plan: bool,
    /// Everything else, besides what says where the agent stands.
    pub work: bool,
}

impl Default for Include {
    fn default() -> Self {
        Self { memory: true, plan: true, work: true }
    }
}

/// What says where an agent stands, and is in every export.
const ALWAYS: [&str; 4] = ["session_id", "stage", STEP, "timestamp"];
/// How far the agent has come, in its own count.
pub(super) const STEP: &str = "current_step";
const MEMORY: &str = "memory_snapshot";
const PLAN: &str = "plan_context";

/// The member that holds a state that is no object.
const BARE: &str = "state";

/// The stage of an agent that has stored nothing yet.
const NEW: &str = "new";

impl Include {
    /// Whether a member of the client's copy is in it.
    pub(super) fn keeps(self, key: &str) -> bool {
        match key {
            MEMORY => self.memory,
            PLAN => self.plan,
            _ => self.work || ALWAYS.contains(&key),
        }
    }
}

/// A state as its client sees it: what every client may look for, and all that the agent put in. An agent
/// that has stored nothing, or null, is new.
pub(super) fn clients_copy(
    id: &SessionId,
    snapshot: Option<&StoredSnapshot>,
    taken_at: Timestamp,
) -> Map<String, Value> {
    let stored = snapshot.and_then(|snapshot| serde_json::from_slice(&snapshot.body).ok());
    let is_new = stored.as_ref().is_none_or(Value::is_null);
    let mut state = Map::new();
    let mut put = |key: &str, value: Value| state.insert(key.to_owned(), value);
    put("stage", if is_new { NEW.into() } else { Value::Null });
    put(STEP, if is_new { 0.into() } else { Value::Null });
    put(PLAN, Value::Null);
    put(MEMORY, Value::Null);
    put("timestamp", taken_at.to_string().into());
    match stored {
        Some(Value::Object(own)) => state.extend(own),
        None | Some(Value::Null) => {}
        Some(other) => drop(state.insert(BARE.to_owned(), other)),
    }
    state.insert("session_id".to_owned(), id.as_str().into());
    state
}

/// A state as its agent gets it back.
pub(super) fn agents_copy(mut state: Map<String, Value>) -> String {
    let is_new = state.get("stage").is_some_and(|stage| stage == NEW)
        && state.get(PLAN).is_none_or(Value::is_null)
        && state.get(MEMORY).is_none_or(Value::is_null);
    if is_new && state.len() <= ALWAYS.len() + 2 {
        return Value::Null.to_string();
    }
    state.remove("session_id");
    match state.remove(BARE) {
        Some(bare) if !bare.is_object() => bare.to_string(),
        Some(object) => {
            state.insert(BARE.to_owned(), object);
            Value::Object(state).to_string()
        }
        None => Value::Object(state).to_string(),
    }
}
