//! What principals may hold, and who gives way if they hold more.

use std::sync::Arc;

use rejoin_core::record::{Record, Status};
use rejoin_core::state::{
    Append, AppendRefused, Create, Enter, EnterRefused, OverBound, Restore, RestoreRefused,
    SessionState,
};
use rejoin_core::{Principal, SessionId, limits};

use super::MemoryStore;
use super::tables::MemoryTables;
use crate::account::{Adds, Counted};
use crate::contract::{Body, Failure};
use crate::relief;

impl MemoryStore {
    /// A session that was counted as `was` is counted as what it is now.
    pub(super) fn recount(&self, session: &SessionState<Body>, was: Counted) {
        let (about, now) = (&session.about, counted(session));
        self.accounts.count(&about.principal, &about.id, was, now);
        self.measurements.holds(was.held_bytes(), now.held_bytes());
    }

    /// Has sessions give way if a principal, or all together, hold too much.
    pub(super) fn keep_to_bound(&self, inner: &mut MemoryTables) {
        if !self.accounts.holds_too_much() {
            return;
        }
        for (principal, excess) in self.accounts.excesses() {
            self.relieve(inner, Some(&principal), excess);
        }
        self.relieve(inner, None, self.accounts.excess());
    }

    pub(super) fn relieve(
        &self,
        inner: &mut MemoryTables,
        whose: Option<&Principal>,
        excess: usize,
    ) {
        let concerned = inner.sessions.iter().filter(|(_, session)| {
            session.holding().events > 0
                && whose.is_none_or(|whose| *whose == session.about.principal)
        });
        let ranked = concerned.map(|(id, session)| (relief::rank(session), id.clone()));
        relief::relieve(&mut ranked.collect::<Vec<_>>(), excess, |id, what, bytes| {
            let Some(session) = inner.sessions.get_mut(id) else { return 0 };
            let was = counted(session);
            let (trimmed, freed) = relief::shed(session, what, bytes);
            self.measurements.shed(trimmed);
            self.recount(session, was);
            freed
        });
    }

    /// Sees to it that a principal may hold so many bytes more, if need be by forgetting sessions that have
    /// ended.
    pub(super) fn make_room(
        &self,
        inner: &mut MemoryTables,
        principal: &Principal,
        more: u64,
        adds: Adds,
    ) -> Result<(), OverBound> {
        while let Err(over) = self.accounts.check(principal, more, adds) {
            let whose = match over {
                OverBound::Principal => Some(principal.clone()),
                OverBound::Server => self.accounts.most_ended(),
            };
            if !whose.is_some_and(|whose| self.forget_oldest(inner, &whose)) {
                return Err(over);
            }
        }
        Ok(())
    }

    /// Forgets the session of a principal that ended first, if there is one. States of it are not gone on
    /// from again.
    pub(super) fn forget_oldest(&self, inner: &mut MemoryTables, principal: &Principal) -> bool {
        let oldest = self.accounts.oldest_ended(principal, 1).pop();
        let session = oldest.and_then(|id| inner.remove(&id));
        session.as_ref().inspect(|session| self.uncount(session));
        session.as_ref().inspect(|session| self.refuse_seals_of(session));
        session.is_some()
    }

    /// A session is forgotten: if it was closed, states of it are not gone on from again.
    pub(super) fn refuse_seals_of(&self, session: &SessionState<Body>) {
        if let Some(at) = relief::closed_at(session) {
            self.accounts.forget_seals(&session.about.principal, at);
        }
    }

    pub(super) fn uncount(&self, session: &SessionState<Body>) {
        let (about, was) = (&session.about, counted(session));
        self.accounts.count(&about.principal, &about.id, was, Counted::default());
        self.measurements.holds(was.held_bytes(), 0);
    }

    /// Makes room for another session of a principal.
    pub(super) fn make_room_for(
        &self,
        inner: &mut MemoryTables,
        create: &Create,
        more: u64,
    ) -> Result<(), OverBound> {
        let principal = &create.about.principal;
        while self.accounts.ended(principal) >= limits::ENDED_SESSIONS
            && self.forget_oldest(inner, principal)
        {}
        self.make_room(inner, principal, create.fixed_bytes() + more, Adds::Client)
    }

    pub(super) fn insert(&self, inner: &mut MemoryTables, session: SessionState<Body>) -> Record {
        self.recount(&session, Counted::default());
        inner.insert(session)
    }

    /// Whether there is room for a message, if it is a new one.
    pub(super) fn check_enter(
        &self,
        id: &SessionId,
        enter: &Enter<Body>,
    ) -> Result<(), Failure<EnterRefused>> {
        let more = enter.fixed_bytes();
        if !self.accounts.must_check(more) {
            return Ok(());
        }
        let inner = &mut *self.lock()?;
        let session = inner.sessions.get(id).ok_or(Failure::NotFound)?;
        if session.check_enter(enter).map_err(Failure::Refused)?.is_some() {
            return Ok(());
        }
        let about = Arc::clone(&session.about);
        let room = self.make_room(inner, &about.principal, more, Adds::Client);
        room.map_err(|over| Failure::Refused(over.into()))
    }

    /// Whether there is room for what a restore may make, and whether its snapshot may be gone on from if its
    /// session is not known.
    pub(super) fn check_restore(
        &self,
        inner: &mut MemoryTables,
        restore: &Restore<Body>,
    ) -> Result<(), Failure<RestoreRefused>> {
        let old = inner.sessions.get(&restore.from);
        let stand_in = restore.origin.stand_in().is_some_and(|id| inner.sessions.contains_key(id));
        if !stand_in && self.accounts.may_be_forgotten(restore, old) {
            return Err(Failure::Refused(RestoreRefused::Superseded));
        }
        if old.is_some_and(|old| old.vitals.status == Status::Active) {
            return Ok(()); // it makes room for itself
        }
        let more = u64::from(restore.state.size) + limits::SESSION_BYTES as u64;
        let room = self.make_room_for(inner, &restore.create, more);
        room.map_err(|over| Failure::Refused(over.into()))
    }

    /// Whether there is room for a state.
    pub(super) fn check_append(
        &self,
        id: &SessionId,
        append: &Append<Body>,
    ) -> Result<(), Failure<AppendRefused>> {
        let inner = &mut *self.lock()?;
        let session = inner.sessions.get(id).ok_or(Failure::NotFound)?;
        let more = append.fixed_growth(session);
        if !self.accounts.must_check(more)
            || session.check_append(append).map_err(Failure::Refused)?.is_some()
        {
            return Ok(());
        }
        let about = Arc::clone(&session.about);
        let room = self.make_room(inner, &about.principal, more, Adds::Agent);
        room.map_err(|over| Failure::Refused(over.into()))
    }
}

pub(super) fn counted(session: &SessionState<Body>) -> Counted {
    Counted::of(session, session.holding(), session.out.bytes())
}
