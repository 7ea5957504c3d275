//! Everything that is kept, under one lock.

use std::collections::{BTreeMap, BTreeSet};

use rejoin_core::attempt::Attempt;
use rejoin_core::record::Record;
use rejoin_core::state::{self, Create, NoRoom, SessionState};
use rejoin_core::{SessionId, Timestamp};

use crate::active::Active;
use crate::audit::AuditRecord;
use crate::contract::Body;
use crate::shares::Shares;

#[derive(Debug, Default)]
pub(super) struct MemoryTables {
    pub(super) sessions: BTreeMap<SessionId, SessionState<Body>>,
    /// Every session's [`Record::due_at`], to find the next one without looking at all.
    pub(super) due: BTreeSet<(Timestamp, SessionId)>,
    /// How many of them go on.
    pub(super) active: Active,
    /// The audit trail, by place.
    pub(super) audit: BTreeMap<u64, AuditRecord>,
    pub(super) next_place: u64,
    pub(super) shares: Shares,
    pub(super) closed: bool,
}

impl MemoryTables {
    pub(super) fn insert(&mut self, session: SessionState<Body>) -> Record {
        let record = session.record();
        self.reschedule(record.id(), None, record.due_at());
        self.active.change(&record.about.principal, false, record.is_active());
        self.sessions.insert(record.id().clone(), session);
        record
    }

    pub(super) fn remove(&mut self, id: &SessionId) -> Option<SessionState<Body>> {
        let session = self.sessions.remove(id)?;
        self.active.change(&session.about.principal, session.is_active(), false);
        self.reschedule(id, session.due_at(), None);
        Some(session)
    }

    pub(super) fn write_down(&mut self, record: AuditRecord, max: usize) {
        let Attempt { principal, address, .. } = &record.attempt;
        self.shares.add(principal, address.as_deref(), self.next_place);
        self.audit.insert(self.next_place, record);
        self.next_place += 1;
        while self.shares.len() > max
            && let Some(place) = self.shares.give_way()
        {
            self.audit.remove(&place);
        }
    }

    pub(super) fn reschedule(
        &mut self,
        id: &SessionId,
        was: Option<Timestamp>,
        due: Option<Timestamp>,
    ) {
        if let Some(was) = was {
            self.due.remove(&(was, id.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, id.clone()));
        }
    }
}

/// The sessions that a restore looks at.
pub(super) struct RestoreView<'a> {
    pub(super) sessions: &'a mut BTreeMap<SessionId, SessionState<Body>>,
    pub(super) active: &'a Active,
}

impl state::Sessions<Body> for RestoreView<'_> {
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<Body>> {
        self.sessions.get_mut(id)
    }

    fn check_room(&self, create: &Create) -> Result<(), NoRoom> {
        self.active.check_room(create)
    }
}
