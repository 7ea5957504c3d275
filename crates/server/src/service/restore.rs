//! Going on from a sealed state that a client brings: in a new session, or in the one where its line
//! goes on already.

use rejoin_core::page::Body;
use rejoin_core::record::{About, Ending, Kind, Record, SnapshotMark, Status, Transport};
use rejoin_core::resume::Asked;
use rejoin_core::seal::{self, OpenError, OpenedState, SealOrigin, StateFacts};
use rejoin_core::state::{Create, NewSnapshot, Origin, Restore, RestoreRefused, Takeover};
use rejoin_core::token::TokenRefusal;
use rejoin_core::{Epoch, InSeq, LogId, Principal, Seq, SessionId};
use rejoin_store::{Failure, Unavailable};
use serde_json::{Map, Value};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, debug_span};

use super::attempts::Trying;
use super::reconnect::{Admission, Joined, Presented};
use super::state::{STEP, agents_copy, clients_copy};
use super::{Denial, Service, StateProblem, Visitor};
use crate::random;

/// A client brings a sealed state.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The sealed state.
    pub signed_state: String,
    /// Where it wants to go on. A token counts only where `takeover = "reject"` needs one.
    pub admission: Admission,
}

/// A client goes on from its snapshot.
#[derive(Debug)]
pub struct Restored {
    /// It is attached to the session that goes on.
    pub joined: Joined,
    /// The session that the snapshot was taken of.
    pub original: SessionId,
    /// The step that the state in force says: the one that was brought, or a later one.
    pub step: Value,
    /// Whether what the old session had said is gone.
    pub log_gone: bool,
}

impl Service {
    /// Goes on from a sealed state and attaches the caller where its line goes on.
    pub async fn restore(
        &self,
        visitor: &Visitor,
        request: RestoreRequest,
        transport: Transport,
    ) -> Result<Restored, Denial> {
        let (keys, now) = (self.keys(), self.now());
        let max_bytes = self.inner.settings.max_state_bytes;
        let principal = &visitor.caller.principal;
        let lifetime = self.sessions().settings().state_ttl;
        let opened = seal::open(&keys, &request.signed_state, principal, now, max_bytes)
            .and_then(|opened| opened.within(lifetime, now));
        let named = session_named(&opened).cloned();
        let span = debug_span!(
            target: "rejoin", "restore", session = Empty, transport = visitor.over, reason = Empty
        );
        span.record("session", named.as_ref().map(display));
        let (service, known_by) = (self.clone(), visitor.clone());
        let attempt = self.attempt(visitor, named.as_ref(), "restore", move |trying| {
            let restoring = async move {
                let opened = opened.map_err(Denial::from)?;
                service.go_on(trying, &known_by, opened, request.admission, transport).await
            };
            Box::pin(restoring)
        });
        attempt.instrument(span).await
    }

    async fn go_on(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        opened: OpenedState,
        admission: Admission,
        transport: Transport,
    ) -> Result<Restored, Denial> {
        self.check_open()?;
        let Admission { asked, token } = admission;
        let OpenedState { facts, content } = opened;
        let not_ours = || Denial::State(StateProblem::NotAuthentic);
        let state: Map<String, Value> = serde_json::from_slice(&content).map_err(|_| not_ours())?;
        let restore = self.restore_of(visitor, &facts, state, &asked)?;
        let old = self.line_start(&restore).await?;
        let line = self.take_line(trying, visitor, restore.clone(), old.as_ref(), token).await?;
        let (record, presented) = line;
        let start = self.line_start(&restore).await?; // the restore may have found that its log was lost
        let asked = Asked { epoch: same_line(&asked, &facts, start.as_ref()), ..asked };
        let joined =
            self.attach(trying, visitor, &record, transport, Some(asked), presented).await?;
        let going_on = &joined.confirmed.record;
        let log_gone = old.is_none_or(|old| is_emptied(&old, going_on));
        let step = self.step_in_force(going_on).await?;
        Ok(Restored { joined, original: facts.session_id, step, log_gone })
    }

    /// The session that a snapshot was taken of, if this store has it or remembers it.
    async fn line_start(&self, restore: &Restore<Body>) -> Result<Option<Record>, Unavailable> {
        let store = self.sessions().store();
        if let Some(stand_in) = restore.origin.stand_in()
            && let Some(trace) = store.session(stand_in).await?
        {
            return Ok(Some(trace));
        }
        let named = store.session(&restore.from).await?;
        Ok(named.filter(|named| restore.is_of(&named.about, &named.status, &named.epoch)))
    }

    /// The session where the line goes on, with the newest state that is known of it. If an older one was
    /// restored before and nothing has happened since, that is gone on from once more.
    async fn take_line(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        restore: Restore<Body>,
        old: Option<&Record>,
        token: Option<String>,
    ) -> Result<(Record, Option<Presented>), Denial> {
        let (record, presented) = self.join_line(trying, visitor, restore.clone(), token).await?;
        if !is_newer(&restore, &record, old) {
            return Ok((record, presented));
        }
        let only_at = Some((record.head, record.in_head));
        let (from, origin) = (record.id().clone(), self.origin(&record));
        let newer = Restore { from, origin, only_at, ..restore };
        match self.restore_in(trying, newer).await {
            Ok(joined) if joined.id() == record.id() => Ok((joined, presented)),
            Ok(made) => Ok((made, None)),
            // Whoever is attached there stays.
            Err(Failure::Refused(RestoreRefused::AlreadyAttached { .. })) => {
                Ok((record, presented))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// The session where the line goes on. Who is attached there stays under `takeover = "reject"`,
    /// unless a token is brought; it is given back if it is still to be used up there.
    async fn join_line(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        restore: Restore<Body>,
        token: Option<String>,
    ) -> Result<(Record, Option<Presented>), Denial> {
        let session = match self.restore_in(trying, restore.clone()).await {
            Ok(record) => return Ok((record, None)),
            Err(Failure::Refused(RestoreRefused::AlreadyAttached { session })) => session,
            Err(failure) => return Err(failure.into()),
        };
        let token = token.ok_or(Denial::AlreadyAttached)?;
        let presented = match self.judge(token, &session, restore.now) {
            Ok(presented) => presented,
            // It can't know where its line goes on: a token of a session before that counts as none.
            Err(TokenRefusal::SessionIdMismatch) => return Err(Denial::AlreadyAttached),
            Err(refusal) => return Err(refusal.into()),
        };
        let ends_here = session == restore.from;
        if ends_here {
            let record = self.own(visitor, &session).await?;
            self.use_up(trying, visitor, &record, &presented).await?;
        }
        let restore = Restore { takeover: Takeover::Replace, ..restore };
        let record = self.restore_in(trying, restore).await?;
        Ok((record, (!ends_here).then_some(presented)))
    }

    /// Restores, and notes the attempt with it.
    async fn restore_in(
        &self,
        trying: &mut Trying,
        restore: Restore<Body>,
    ) -> Result<Record, Failure<RestoreRefused>> {
        let makes = restore.create.about.id.clone();
        let attempt = trying.to_be_noted().map(Box::new);
        let restore = Restore { attempt, ..restore };
        let record = self.sessions().restore_in(trying.owned(), restore).await?;
        if *record.id() == makes {
            trying.is_noted();
        }
        Ok(record)
    }

    /// The step that a session's state says.
    async fn step_in_force(&self, record: &Record) -> Result<Value, Unavailable> {
        let snapshot = self.sessions().store().snapshot(record.id()).await?;
        let mut state = clients_copy(record.id(), snapshot.as_ref(), self.now());
        Ok(state.remove(STEP).unwrap_or(Value::Null))
    }

    /// What tells a session of this store from others of its id.
    fn origin(&self, record: &Record) -> Origin {
        self.sealed_origin(record.id(), &record.about.principal, Some(&self.origin_of(record)))
    }

    fn sealed_origin(
        &self,
        id: &SessionId,
        principal: &Principal,
        origin: Option<&SealOrigin>,
    ) -> Origin {
        let Some(SealOrigin { store, created_at }) = origin else { return Origin::Unsaid };
        let here = self.sessions().store().identity();
        Origin::Sealed {
            created_at: *created_at,
            in_this_store: *store == here.mark(),
            stand_in: here.stand_in(store, id, principal, *created_at),
        }
    }

    fn restore_of(
        &self,
        visitor: &Visitor,
        facts: &StateFacts,
        state: Map<String, Value>,
        asked: &Asked,
    ) -> Result<Restore<Body>, Denial> {
        let now = self.now();
        let settings = self.sessions().settings();
        let body = agents_copy(state);
        Ok(Restore {
            from: facts.session_id.clone(),
            origin: self.sealed_origin(&facts.session_id, &facts.principal, facts.origin.as_ref()),
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
                room: self.room(),
            },
            epoch: facts.epoch.clone(),
            seq: facts.seq,
            in_seq: facts.in_seq,
            taken_at: facts.taken_at,
            state: NewSnapshot {
                size: u32::try_from(body.len()).unwrap_or(u32::MAX),
                body: body.into_bytes().into(),
            },
            last_seq: asked.last_seq,
            takeover: settings.takeover,
            // The session that it is of stays superseded for as long as the state could be brought again.
            remember_for: settings.remember_for().max(facts.expires_at.since(now)),
            only_at: None,
            attempt: None,
            now,
        })
    }
}

/// Whether a state that is brought is newer than that of a session in which nothing has happened since it was
/// restored: its numbers are those of the state, or of the old session where that is remembered.
fn is_newer(restore: &Restore<Body>, record: &Record, old: Option<&Record>) -> bool {
    let Some(SnapshotMark { seq, in_seq, .. }) = record.snapshot else { return false };
    let (head, in_head) = old.map_or((Seq::ZERO, InSeq::ZERO), |old| (old.head, old.in_head));
    let nothing_said = record.held() == 0 && record.head <= restore.seq.max(head);
    let nothing_entered = record.in_head <= in_seq.max(in_head);
    nothing_said && nothing_entered && (in_seq, seq) < (restore.in_seq, restore.seq)
}

/// Whether nothing is left of what a session said. If its line had gone on before, the session that goes on
/// has what is left.
fn is_emptied(old: &Record, going_on: &Record) -> bool {
    match &old.status {
        Status::Active => false,
        Status::Ended { ending: Ending::Restored { .. }, .. } => {
            going_on.held() == 0 && going_on.head > Seq::ZERO
        }
        Status::Ended { ending: Ending::Expired | Ending::Closed | Ending::CleanedUp, .. } => true,
    }
}

/// The epoch that a position counts in, as the session that goes on understands it. It has an epoch of
/// its own; a position in the old one means the same there, as long as nothing was lost in between.
fn same_line(asked: &Asked, facts: &StateFacts, old: Option<&Record>) -> Option<Epoch> {
    let whole = old.is_none_or(|old| old.epoch == facts.epoch);
    match &asked.epoch {
        Some(epoch) if *epoch == facts.epoch && whole => None,
        // It matches nothing: the gap is told. Who names no position goes on after the last ack.
        None if !whole && asked.last_seq.is_some() => Some(facts.epoch.clone()),
        epoch => epoch.clone(),
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
