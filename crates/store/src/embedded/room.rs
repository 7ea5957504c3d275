//! Makes room for what would add to what a principal holds: sessions that have ended are forgotten before
//! their time, the oldest first. If that is not enough it is refused.

use std::sync::Arc;

use rejoin_core::limits;
use rejoin_core::record::Status;
use rejoin_core::state::{
    Append, AppendRefused, Create, Enter, EnterRefused, OverBound, Restore, RestoreRefused,
};
use rejoin_core::{Principal, SessionId};

use super::desk::Papers;
use super::slot::Slot;
use crate::account::Adds;
use crate::contract::{Body, Failure};
use crate::relief;

/// Sessions that are looked at to find one that can be forgotten: the commit under way may have changed some.
const LOOKED_AT: usize = 64;

impl Papers {
    /// Whether there is room for a message, if it is a new one.
    pub(super) fn check_enter(
        &mut self,
        slot: &Slot,
        enter: &Enter<Body>,
    ) -> Result<(), Failure<EnterRefused>> {
        let more = enter.fixed_bytes();
        if !self.shared.accounts.must_check(more) {
            return Ok(());
        }
        let session = slot.lock();
        if session.state.check_enter(enter).map_err(Failure::Refused)?.is_some() {
            return Ok(());
        }
        let about = Arc::clone(&session.state.about);
        drop(session);
        let room = self.make_room(&about.principal, more, Adds::Client);
        room.map_err(|over| Failure::Refused(over.into()))
    }

    /// Whether there is room for a state.
    pub(super) fn check_append(
        &mut self,
        slot: &Slot,
        append: &Append<Body>,
    ) -> Result<(), Failure<AppendRefused>> {
        let session = slot.lock();
        let more = append.fixed_growth(&session.state);
        if more == 0 || !self.shared.accounts.must_check(more) {
            return Ok(());
        }
        if session.state.check_append(append).map_err(Failure::Refused)?.is_some() {
            return Ok(());
        }
        let about = Arc::clone(&session.state.about);
        drop(session);
        let room = self.make_room(&about.principal, more, Adds::Agent);
        room.map_err(|over| Failure::Refused(over.into()))
    }

    /// Whether there is room for what a restore may make, and whether its snapshot may be gone on from if its
    /// session is not known.
    pub(super) fn check_restore(
        &mut self,
        restore: &Restore<Body>,
    ) -> Result<(), Failure<RestoreRefused>> {
        let old = self.tables.by_id.get(&restore.from).map(|slot| slot.lock());
        let stand_in = restore.origin.stand_in();
        let stand_in = stand_in.is_some_and(|id| self.tables.by_id.contains_key(id));
        let state = old.as_ref().map(|old| &old.state);
        if !stand_in && self.shared.accounts.may_be_forgotten(restore, state) {
            return Err(Failure::Refused(RestoreRefused::Superseded));
        }
        if state.is_some_and(|state| state.vitals.status == Status::Active) {
            return Ok(()); // it makes room for itself
        }
        drop(old);
        let more = u64::from(restore.state.size) + limits::SESSION_BYTES as u64;
        let room = self.make_room_for(&restore.create, more);
        room.map_err(|over| Failure::Refused(over.into()))
    }

    /// Makes room for another session of a principal.
    pub(super) fn make_room_for(&mut self, create: &Create, more: u64) -> Result<(), OverBound> {
        let principal = &create.about.principal;
        while self.shared.accounts.ended(principal) >= limits::ENDED_SESSIONS
            && self.forget_oldest(principal)
        {}
        self.make_room(principal, create.fixed_bytes() + more, Adds::Client)
    }

    fn make_room(&mut self, principal: &Principal, more: u64, adds: Adds) -> Result<(), OverBound> {
        while let Err(over) = self.shared.accounts.check(principal, more, adds) {
            let whose = match over {
                OverBound::Principal => Some(principal.clone()),
                OverBound::Server => self.shared.accounts.most_ended(),
            };
            if !whose.is_some_and(|whose| self.forget_oldest(&whose)) {
                return Err(over);
            }
        }
        Ok(())
    }

    /// Forgets the session of a principal that ended first, if there is one that nothing is on its way for.
    /// States of it are not gone on from again.
    fn forget_oldest(&mut self, principal: &Principal) -> bool {
        let oldest = self.shared.accounts.oldest_ended(principal, LOOKED_AT);
        let Some((id, slot)) = oldest.into_iter().find_map(|id| self.at_rest(id)) else {
            return false;
        };
        self.refuse_seals_of(&slot);
        self.remove(&id, &slot);
        true
    }

    /// A session is about to be forgotten: if it was closed, states of it are not gone on from again.
    pub(super) fn refuse_seals_of(&mut self, slot: &Slot) {
        let state = &slot.lock().state;
        if let Some(at) = relief::closed_at(state) {
            let notes = self.shared.accounts.forget_seals(&state.about.principal, at);
            self.batch.forgotten_seals.extend(notes);
        }
    }

    fn at_rest(&self, id: SessionId) -> Option<(SessionId, Arc<Slot>)> {
        let slot = self.tables.by_id.get(&id)?;
        let session = slot.lock_packed();
        let at_rest = !session.plan.is_changed() && !session.waited_for;
        at_rest.then(|| (id, Arc::clone(slot)))
    }
}
