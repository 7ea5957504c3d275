//! The sessions that readers can see, by id and by deadline. Writers of this index hold its lock for
//! the moment after a commit; readers for one look, or one step of a list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rejoin_core::record::Record;
use rejoin_core::{Principal, SessionId, Timestamp};

use super::limits;
use super::parallel;
use super::slot::Slot;
use crate::contract::{Due, Query};

/// Every session whose making is committed.
#[derive(Debug, Default)]
pub(super) struct Index(RwLock<Sessions>);

#[derive(Debug, Default)]
struct Sessions {
    by_id: BTreeMap<SessionId, Arc<Slot>>,
    /// How many go on, of each principal.
    active: HashMap<Principal, usize>,
    /// Every session's [`Record::due_at`], to find the next one without looking at all.
    due: BTreeSet<(Timestamp, SessionId)>,
}

/// What a commit changes in the index.
#[derive(Debug)]
pub(super) enum IndexChange {
    /// A session has come; its deadline is told when it is known.
    Add(SessionId, Arc<Slot>),
    /// A session has gone, whose deadline was this.
    Remove(SessionId, Option<Timestamp>),
    /// A session's deadline was one and is another.
    Reschedule(SessionId, Option<Timestamp>, Option<Timestamp>),
    /// A session of this principal goes on from now, or does no longer.
    Count(Principal, bool),
}

/// A session that opening puts into the index. It brings along all that will be in there: to go and
/// get it once more would take longer than the rest.
#[derive(Debug)]
pub(super) struct Entry {
    /// The first characters of the id as a number that sorts as they do.
    front: u128,
    id: SessionId,
    slot: Arc<Slot>,
    due: Option<(Timestamp, SessionId)>,
    /// Whose it is, if it goes on.
    active_of: Option<Principal>,
}

impl Entry {
    /// The session in this slot, whose deadline is `due`.
    pub(super) fn new(
        id: &SessionId,
        slot: &Arc<Slot>,
        due: Option<Timestamp>,
        active_of: Option<Principal>,
    ) -> Self {
        let mut front = [0; 16];
        front.iter_mut().zip(id.as_str().bytes()).for_each(|(front, byte)| *front = byte);
        Self {
            front: u128::from_be_bytes(front),
            id: id.clone(),
            slot: Arc::clone(slot),
            due: due.map(|due| (due, id.clone())),
            active_of,
        }
    }

    /// Sorts them by their ids. Fast if they consist of parts that are sorted.
    pub(super) fn sort(entries: &mut [Self]) {
        entries.sort_by(|a, b| a.front.cmp(&b.front).then_with(|| a.id.cmp(&b.id)));
    }
}

impl Index {
    /// The session of this id.
    pub(super) fn find(&self, id: &SessionId) -> Option<Arc<Slot>> {
        self.read().by_id.get(id).cloned()
    }

    /// The sessions that a query asks for. Filtering happens between looks, so that a long list does
    /// not keep the writer waiting.
    pub(super) fn list(&self, query: &Query) -> Vec<Record> {
        let mut found = Vec::new();
        let mut after = query.after.clone();
        while found.len() < query.limit {
            let step = self.step(after.as_ref());
            let Some((last, _)) = step.last() else { break };
            after = Some(last.clone());
            let records = step.iter().map(|(_, slot)| slot.lock().record());
            let wanted = records.filter(|record| {
                let owned = query.principal.as_ref().is_none_or(|p| *p == record.about.principal);
                owned && (!query.active_only || record.is_active())
            });
            found.extend(wanted.take(query.limit - found.len()));
        }
        found
    }

    /// How many sessions go on: all, or those of one principal.
    pub(super) fn count(&self, principal: Option<&Principal>) -> usize {
        let sessions = self.read();
        match principal {
            Some(principal) => sessions.active.get(principal).copied().unwrap_or(0),
            None => sessions.active.values().sum(),
        }
    }

    /// Sessions whose time has come.
    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Due {
        let sessions = self.read();
        let ready = sessions.due.iter().take_while(|(at, _)| *at <= now).take(limit);
        let slots: Vec<Arc<Slot>> =
            ready.filter_map(|(_, id)| sessions.by_id.get(id)).cloned().collect();
        let next = sessions.due.iter().nth(slots.len()).map(|(at, _)| *at);
        drop(sessions);
        Due { records: slots.iter().map(|slot| slot.lock().record()).collect(), next }
    }

    /// Puts all sessions in at once. They come in the order of their ids.
    pub(super) fn fill(&self, entries: Vec<Entry>) {
        let mut due = Vec::with_capacity(entries.len());
        let mut by_id = Vec::with_capacity(entries.len());
        let mut active = HashMap::new();
        for entry in entries {
            if let Some(principal) = entry.active_of {
                *active.entry(principal).or_default() += 1;
            }
            due.extend(entry.due);
            by_id.push((entry.id, entry.slot));
        }
        let (due, by_id) =
            parallel::both(|| due.into_iter().collect(), || by_id.into_iter().collect());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Sessions { by_id, active, due };
    }

    /// Applies what a commit changed.
    pub(super) fn apply(&self, changes: impl IntoIterator<Item = IndexChange>) {
        let mut sessions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            sessions.apply(change);
        }
    }

    /// Some sessions, in the order of their ids, from after `after`.
    pub(super) fn step(&self, after: Option<&SessionId>) -> Vec<(SessionId, Arc<Slot>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let sessions = self.read();
        let step = sessions.by_id.range::<SessionId, _>((from, Bound::Unbounded));
        step.take(limits::LIST_STEP).map(|(id, slot)| (id.clone(), Arc::clone(slot))).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Sessions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    fn apply(&mut self, change: IndexChange) {
        match change {
            IndexChange::Add(id, slot) => drop(self.by_id.insert(id, slot)),
            IndexChange::Remove(id, due) => {
                self.by_id.remove(&id);
                self.unschedule(id, due);
            }
            IndexChange::Count(principal, true) => {
                *self.active.entry(principal).or_default() += 1;
            }
            IndexChange::Count(principal, false) => {
                if let Some(count) = self.active.get_mut(&principal) {
                    *count -= 1;
                    if *count == 0 {
                        self.active.remove(&principal);
                    }
                }
            }
            IndexChange::Reschedule(id, was, due) => {
                self.unschedule(id.clone(), was);
                if let Some(due) = due {
                    self.due.insert((due, id));
                }
            }
        }
    }

    fn unschedule(&mut self, id: SessionId, was: Option<Timestamp>) {
        if let Some(was) = was {
            self.due.remove(&(was, id));
        }
    }
}
