//! The sessions that a restore may see. It follows a line from id to id, and an id alone says nothing about
//! whose session it is: here no session can be looked up without comparing that.

use std::collections::BTreeMap;

use super::{Create, NoRoom, RestoreRefused, SessionState};
use crate::ids::{Principal, SessionId};
use crate::record::{About, Kind};

/// Where a restore looks sessions up.
pub trait Sessions<B> {
    /// The session of that id, if it is known, whoever it belongs to.
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<B>>;

    /// Whether one more session may be made (see [`Create::room`]).
    fn check_room(&self, create: &Create) -> Result<(), NoRoom>;
}

impl<B> Sessions<B> for BTreeMap<SessionId, SessionState<B>> {
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<B>> {
        self.get_mut(id)
    }

    fn check_room(&self, create: &Create) -> Result<(), NoRoom> {
        let active = || self.values().filter(|session| session.is_active());
        let own = active().filter(|session| session.about.principal == create.about.principal);
        create.room.check(active().count(), own.count())
    }
}

/// The sessions of one principal and one kind.
pub(super) struct OwnSessions<'a, S> {
    all: &'a mut S,
    principal: Principal,
    kind: Kind,
}

impl<'a, S> OwnSessions<'a, S> {
    /// Those that are of the same principal and kind as this one.
    pub(super) fn of(about: &About, all: &'a mut S) -> Self {
        Self { all, principal: about.principal.clone(), kind: about.kind }
    }

    /// The session of that id, if it is known. Another's is an error.
    pub(super) fn find<B>(
        &mut self,
        id: &SessionId,
    ) -> Result<Option<&mut SessionState<B>>, RestoreRefused>
    where
        S: Sessions<B>,
    {
        let Some(session) = self.all.find(id) else { return Ok(None) };
        let about = &session.about;
        if about.principal != self.principal || about.kind != self.kind {
            return Err(RestoreRefused::Foreign { session: id.clone() });
        }
        Ok(Some(session))
    }

    /// Whether one more session may be made.
    pub(super) fn check_room<B>(&self, create: &Create) -> Result<(), NoRoom>
    where
        S: Sessions<B>,
    {
        self.all.check_room(create)
    }
}
