//! The agent's state in the client's hands: sealing it for the way out, and going on from one that
//! comes back.

use std::time::Duration;

use rejoin_core::log::MessageDigest;
use rejoin_core::page::StoredSnapshot;
use rejoin_core::record::{About, Ending, Kind, Record, Status, Transport};
use rejoin_core::resume::Asked;
use rejoin_core::seal::{self, OpenedState, StateFacts};
use rejoin_core::state::{Create, NewSnapshot, Restore};
use rejoin_core::{Epoch, InSeq, LogId, Seq, SessionId, Timestamp};
use serde_json::{Map, Value};
use tracing::field::Empty;
use tracing::{Instrument as _, debug_span};

use super::reconnect::Joined;
use super::{Denial, Service, StateProblem, Visitor};
use crate::random;

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

/// A state on its way to a client.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The sealed copy.
    pub signed_state: String,
    /// The clear copy.
    pub state: Map<String, Value>,
    /// The out position it stands for.
    pub seq: Seq,
    /// When the agent stored it.
    pub taken_at: Timestamp,
    /// When it was exported.
    pub exported_at: Timestamp,
    /// When it ceases to be good.
    pub valid_until: Timestamp,
    /// How long that is.
    pub lifetime: Duration,
}

impl Exported {
    /// How long it is good, as the wire has it: a whole number where it is one.
    pub fn expire_after_hours(&self) -> Value {
        let hours = self.lifetime.as_secs_f64() / 3600.0;
        if hours.fract() == 0.0 { Value::from(hours as u64) } else { Value::from(hours) }
    }
}

/// A client brings a sealed state.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The sealed state.
    pub signed_state: String,
    /// Where it wants to go on.
    pub asked: Asked,
}

/// A client goes on from its snapshot.
#[derive(Debug)]
pub struct Restored {
    /// It is attached to the session that goes on.
    pub joined: Joined,
    /// The session that the snapshot was taken of.
    pub original: SessionId,
    /// The step that the state says.
    pub step: Value,
    /// Whether what the old session had said is gone.
    pub log_gone: bool,
}

/// What says where an agent stands, and is in every export.
const ALWAYS: [&str; 4] = ["session_id", "stage", "current_step", "timestamp"];
const MEMORY: &str = "memory_snapshot";
const PLAN: &str = "plan_context";

/// The member that holds a state that is no object.
const BARE: &str = "state";

/// The stage of an agent that has stored nothing yet.
const NEW: &str = "new";

impl Service {
    /// Exports the state of a session that the caller may use.
    pub async fn export(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        include: Include,
    ) -> Result<Exported, Denial> {
        let record = self.active(visitor, id).await?;
        self.export_record(&record, include).await
    }

    /// Exports the state of a session to the client that is attached to it.
    pub async fn export_record(
        &self,
        record: &Record,
        include: Include,
    ) -> Result<Exported, Denial> {
        let span = debug_span!(target: "rejoin", "export", session = %record.id());
        self.seal(record, include).instrument(span).await
    }

    async fn seal(&self, record: &Record, include: Include) -> Result<Exported, Denial> {
        let snapshot = self.sessions().store().snapshot(record.id()).await?;
        let exported_at = self.now();
        let lifetime = self.sessions().settings().state_ttl;
        let (seq, in_seq, taken_at) = match &snapshot {
            Some(snapshot) => (snapshot.mark.seq, snapshot.mark.in_seq, snapshot.mark.at),
            None => (Seq::ZERO, InSeq::ZERO, record.about.created_at),
        };
        let mut state = clear_copy(record.id(), snapshot.as_ref(), taken_at);
        state.retain(|key, _| include.keeps(key));
        let facts = StateFacts {
            principal: record.about.principal.clone(),
            session_id: record.id().clone(),
            epoch: record.epoch.clone(),
            seq,
            in_seq,
            taken_at,
            expires_at: exported_at + lifetime,
        };
        let content = serde_json::to_vec(&state).unwrap_or_default(); // JSON always is JSON
        let max_bytes = self.inner.settings.max_state_bytes;
        let (keys, nonce) = (self.keys(), random::bytes()?);
        let signed_state = seal::seal(&keys, &facts, &content, nonce, max_bytes)?;
        let valid_until = facts.expires_at;
        Ok(Exported { signed_state, state, seq, taken_at, exported_at, valid_until, lifetime })
    }

    /// Goes on from a sealed state, in a new session or in the one where its line goes on already, and
    /// attaches the caller there.
    pub async fn restore(
        &self,
        visitor: &Visitor,
        request: RestoreRequest,
        transport: Transport,
    ) -> Result<Restored, Denial> {
        let (keys, now) = (self.keys(), self.now());
        let max_bytes = self.inner.settings.max_state_bytes;
        let principal = &visitor.caller.principal;
        let opened = seal::open(&keys, &request.signed_state, principal, now, max_bytes);
        // What can't be read names no session: the attempt is counted against the seal itself.
        let named = match &opened {
            Ok(opened) => opened.facts.session_id.clone(),
            Err(_) => unread(&request.signed_state),
        };
        let span = debug_span!(
            target: "rejoin", "restore", session = %named, transport = visitor.over, reason = Empty
        );
        let attempt = async {
            match opened {
                Ok(opened) => self.go_on(visitor, opened, request.asked, transport).await,
                Err(error) => Err(error.into()),
            }
        };
        self.attempt(visitor, &named, "restore", attempt).instrument(span).await
    }

    async fn go_on(
        &self,
        visitor: &Visitor,
        opened: OpenedState,
        asked: Asked,
        transport: Transport,
    ) -> Result<Restored, Denial> {
        self.check_open()?;
        let OpenedState { facts, content } = opened;
        let old = self.sessions().store().session(&facts.session_id).await?;
        let log_gone = old.as_ref().is_none_or(is_emptied);
        let not_ours = || Denial::State(StateProblem::NotAuthentic);
        let state: Map<String, Value> = serde_json::from_slice(&content).map_err(|_| not_ours())?;
        let step = state.get("current_step").cloned().unwrap_or(Value::Null);
        let restore = self.restore_of(visitor, &facts, state, asked.last_seq)?;
        let record = self.sessions().restore(restore).await?;
        let asked = Asked { epoch: same_line(asked.epoch, &facts, old.as_ref()), ..asked };
        let (attachment, confirmed) =
            self.attach_to(visitor, record.id(), transport, Some(asked), None).await?;
        let token = self.issue(&confirmed.record).await?;
        let joined = Joined { attachment, confirmed, token };
        Ok(Restored { joined, original: facts.session_id, step, log_gone })
    }

    fn restore_of(
        &self,
        visitor: &Visitor,
        facts: &StateFacts,
        state: Map<String, Value>,
        last_seq: Option<Seq>,
    ) -> Result<Restore<rejoin_core::page::Body>, Denial> {
        let now = self.now();
        let settings = self.sessions().settings();
        let body = agents_copy(state);
        Ok(Restore {
            from: facts.session_id.clone(),
            create: Create {
                about: About {
                    id: SessionId::from_random(random::bytes()?),
                    principal: visitor.caller.principal.clone(),
                    kind: Kind::Agent,
                    client: "{}".into(),
                    created_at: now,
                },
                log: LogId::from_random(random::bytes()?),
                epoch: Epoch::from_random(random::bytes()?),
                keep_for: settings.session.lifetime.session_ttl,
            },
            seq: facts.seq,
            in_seq: facts.in_seq,
            taken_at: facts.taken_at,
            state: NewSnapshot {
                size: u32::try_from(body.len()).unwrap_or(u32::MAX),
                body: body.into_bytes().into(),
            },
            last_seq,
            remember_for: settings.remember_for(),
            now,
        })
    }
}

impl Include {
    fn keeps(self, key: &str) -> bool {
        match key {
            MEMORY => self.memory,
            PLAN => self.plan,
            _ => self.work || ALWAYS.contains(&key),
        }
    }
}

/// A state as its client sees it: what every client may look for, and all that the agent put in.
fn clear_copy(
    id: &SessionId,
    snapshot: Option<&StoredSnapshot>,
    taken_at: Timestamp,
) -> Map<String, Value> {
    let mut state = Map::new();
    let mut put = |key: &str, value: Value| state.insert(key.to_owned(), value);
    put("stage", if snapshot.is_none() { NEW.into() } else { Value::Null });
    put("current_step", if snapshot.is_none() { 0.into() } else { Value::Null });
    put(PLAN, Value::Null);
    put(MEMORY, Value::Null);
    put("timestamp", taken_at.to_string().into());
    match snapshot.map(|snapshot| serde_json::from_slice(&snapshot.body)) {
        Some(Ok(Value::Object(own))) => state.extend(own),
        Some(Ok(other)) => drop(state.insert(BARE.to_owned(), other)),
        Some(Err(_)) | None => {}
    }
    state.insert("session_id".to_owned(), id.as_str().into());
    state
}

/// A state as its agent gets it back.
fn agents_copy(mut state: Map<String, Value>) -> String {
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

/// Whether nothing is left of what a session said.
fn is_emptied(record: &Record) -> bool {
    match &record.status {
        Status::Active | Status::Ended { ending: Ending::Restored { .. }, .. } => false,
        Status::Ended { ending: Ending::Expired | Ending::Closed, .. } => true,
    }
}

/// The epoch that a position counts in, as the session that goes on understands it. It has an epoch of
/// its own; a position in the old one means the same there, as long as nothing was lost in between.
fn same_line(asked: Option<Epoch>, facts: &StateFacts, old: Option<&Record>) -> Option<Epoch> {
    let whole = old.is_none_or(|old| old.epoch == facts.epoch);
    match asked {
        Some(epoch) if epoch == facts.epoch && whole => None,
        None if !whole => Some(facts.epoch.clone()), // it matches nothing: the gap is told
        asked => asked,
    }
}

/// A name for a state that can't be read, to count attempts with it by.
fn unread(signed_state: &str) -> SessionId {
    let digest = format!("{:?}", MessageDigest::of(signed_state, b""));
    let hex: String = digest.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    SessionId::parse(&format!("unread_{hex}")).unwrap_or_else(|_| SessionId::from_random([0; 16]))
}
