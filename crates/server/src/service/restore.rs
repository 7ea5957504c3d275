//! Going on from a sealed state that a client brings: in a new session, or in the one where its line
//! goes on already.

use rejoin_core::record::{About, Ending, Kind, Record, Status, Transport};
use rejoin_core::resume::Asked;
use rejoin_core::seal::{self, OpenError, OpenedState, StateFacts};
use rejoin_core::state::{Create, NewSnapshot, Restore};
use rejoin_core::{Epoch, LogId, Seq, SessionId};
use serde_json::{Map, Value};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, debug_span};

use super::reconnect::Joined;
use super::state::agents_copy;
use super::{Denial, Service, StateProblem, Visitor};
use crate::random;

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

impl Service {
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
        let named = session_named(&opened).cloned();
        let span = debug_span!(
            target: "rejoin", "restore", session = Empty, transport = visitor.over, reason = Empty
        );
        span.record("session", named.as_ref().map(display));
        let attempt = async {
            match opened {
                Ok(opened) => self.go_on(visitor, opened, request.asked, transport).await,
                Err(error) => Err(error.into()),
            }
        };
        self.attempt(visitor, named.as_ref(), "restore", attempt).instrument(span).await
    }

    async fn go_on(
        &self,
        visitor: &Visitor,
        opened: OpenedState,
        asked: Asked,
        transport: Transport,
    ) -> Result<Restored, Denial> {
        if self.is_draining() {
            return Err(super::busy("The server is going down and will be back"));
        }
        let OpenedState { facts, content } = opened;
        let old = self.sessions().store().session(&facts.session_id).await?;
        let log_gone = old.as_ref().is_none_or(is_emptied);
        let not_ours = || Denial::State(StateProblem::NotAuthentic);
        let state: Map<String, Value> = serde_json::from_slice(&content).map_err(|_| not_ours())?;
        let step = state.get("current_step").cloned().unwrap_or(Value::Null);
        let restore = self.restore_of(visitor, &facts, state, asked.last_seq)?;
        let record = self.sessions().restore(restore).await?;
        let asked = Asked { epoch: same_line(asked.epoch, &facts, old.as_ref()), ..asked };
        let joined = self.attach(visitor, &record, transport, Some(asked), None).await?;
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

/// Whether nothing is left of what a session said.
fn is_emptied(record: &Record) -> bool {
    match &record.status {
        Status::Active | Status::Ended { ending: Ending::Restored { .. }, .. } => false,
        Status::Ended { ending: Ending::Expired | Ending::Closed | Ending::CleanedUp, .. } => true,
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

/// The session that a state is of, as far as it could be opened.
fn session_named(opened: &Result<OpenedState, OpenError>) -> Option<&SessionId> {
    match opened {
        Ok(opened) => Some(&opened.facts.session_id),
        Err(OpenError::Expired { session_id, .. }) => Some(session_id),
        Err(OpenError::NotAuthentic | OpenError::TooLarge) => None,
    }
}
