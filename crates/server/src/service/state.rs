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

/// The member of a sealed state, and of no other, that says what the agent had stored.
const FORM: &str = "rejoin/form";
const FORM_NOTHING: &str = "nothing";
const FORM_BARE: &str = "bare";
const FORM_OBJECT: &str = "object";

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
    let stored = stored(snapshot);
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
    state.insert("session_id".to_owned(), id.client_name().into());
    state
}

/// The same as it is sealed: what the agent had stored can be told from it.
pub(super) fn sealed_copy(
    clients: &Map<String, Value>,
    snapshot: Option<&StoredSnapshot>,
) -> Map<String, Value> {
    let form = match stored(snapshot) {
        None | Some(Value::Null) => FORM_NOTHING,
        Some(Value::Object(_)) => FORM_OBJECT,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => FORM_BARE,
    };
    let mut sealed = clients.clone();
    sealed.insert(FORM.to_owned(), form.into());
    sealed
}

/// A state as its agent gets it back, from what was sealed.
pub(super) fn agents_copy(mut sealed: Map<String, Value>) -> String {
    let form = sealed.remove(FORM);
    let state = match form.as_ref().and_then(Value::as_str) {
        Some(FORM_NOTHING) => Value::Null,
        // It was left out if the work was not to be exported.
        Some(FORM_BARE) => sealed.remove(BARE).unwrap_or_default(),
        Some(_) | None => {
            sealed.remove("session_id");
            Value::Object(sealed)
        }
    };
    state.to_string()
}

/// What the agent has stored.
fn stored(snapshot: Option<&StoredSnapshot>) -> Option<Value> {
    snapshot.and_then(|snapshot| serde_json::from_slice(&snapshot.body).ok())
}

#[cfg(test)]
mod tests {
    use rejoin_core::record::SnapshotMark;
    use rejoin_core::{InSeq, Seq};
    use serde_json::json;

    use super::*;

    /// What an agent gets back that has stored this, if these parts of it were exported.
    fn round_trip(stored: &Value, include: Include) -> Value {
        let at = Timestamp::from_millis(1);
        let mark = SnapshotMark { seq: Seq::new(1), in_seq: InSeq::new(1), at };
        let snapshot = StoredSnapshot { mark, body: stored.to_string().into_bytes().into() };
        let id = SessionId::from_random([1; 16]);
        let mut clients = clients_copy(&id, Some(&snapshot), at);
        clients.retain(|key, _| include.keeps(key));
        serde_json::from_str(&agents_copy(sealed_copy(&clients, Some(&snapshot)))).unwrap()
    }

    #[test]
    fn an_agent_gets_back_whatever_it_has_stored() {
        let states = [
            json!({ "state": "running", "items": [1, 2], "current_step": 4, "stage": "work" }),
            json!({ "state": { "deep": 1 } }),
            json!({ "stage": "new", "current_step": 3 }),
            json!({ "stage": "new", "current_step": 0 }),
            json!({}),
        ];
        for stored in states {
            let back = round_trip(&stored, Include::default());
            for (key, value) in stored.as_object().unwrap() {
                assert_eq!(back.get(key), Some(value), "{stored} came back as {back}");
            }
        }
        for stored in [json!(null), json!("text"), json!(7), json!([1, 2]), json!(true)] {
            assert_eq!(round_trip(&stored, Include::default()), stored);
        }
    }

    #[test]
    fn what_is_left_out_does_not_change_the_rest() {
        let stored = json!({ "stage": "new", "current_step": 0, "done": [1] });
        let only_work = Include { memory: false, plan: false, work: true };
        assert_eq!(round_trip(&stored, only_work)["done"], json!([1]));
        let no_work = Include { work: false, ..Include::default() };
        assert_eq!(round_trip(&stored, no_work)["current_step"], json!(0));
        assert_eq!(round_trip(&json!("text"), no_work), json!(null));
    }
}
