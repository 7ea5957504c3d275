//! Exporting an agent's state to its client, sealed and in clear.

use std::time::Duration;

use rejoin_core::record::Record;
use rejoin_core::seal::{self, StateFacts};
use rejoin_core::{InSeq, Seq, SessionId, Timestamp};
use serde_json::{Map, Value};
use tracing::{Instrument as _, debug_span};

use super::speak::agents_only;
use super::state::{Include, clients_copy, sealed_copy};
use super::{Denial, Service, Visitor};
use crate::random;

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

impl Service {
    /// Exports the state of a session that the caller may use.
    pub async fn export(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        include: Include,
    ) -> Result<Exported, Denial> {
        let record = self.active_for(visitor, id, "export").await?;
        agents_only(&record)?;
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
        let mut state = clients_copy(record.id(), snapshot.as_ref(), taken_at);
        state.retain(|key, _| include.keeps(key));
        let facts = StateFacts {
            principal: record.about.principal.clone(),
            session_id: record.id().clone(),
            epoch: record.epoch.clone(),
            seq,
            in_seq,
            taken_at,
            sealed_at: Some(exported_at),
            expires_at: exported_at + lifetime,
            origin: Some(self.origin_of(record)),
        };
        let sealed = sealed_copy(&state, snapshot.as_ref());
        let content = serde_json::to_vec(&sealed).unwrap_or_default(); // JSON always is JSON
        let max_bytes = self.inner.settings.max_state_bytes;
        let (keys, nonce) = (self.keys(), random::bytes()?);
        let signed_state = seal::seal(&keys, &facts, &content, nonce, max_bytes)?;
        let valid_until = facts.expires_at;
        Ok(Exported { signed_state, state, seq, taken_at, exported_at, valid_until, lifetime })
    }
}
