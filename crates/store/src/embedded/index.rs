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
use crate::active::Active;
use crate::contract::{Due, Query};

/// Every session whose making is committed.
#[derive(Debug, Default)]
pub(super) struct Index(RwLock<Sessions>);

#[derive(Debug, Default)]
struct Sessions {
    by_id: BTreeMap<Id, Arc<Slot>>,
    /// How many go on.
    active: Active,
    /// Every session's [`Record::due_at`], to find the next one without looking at all.
    due: BTreeSet<(Timestamp, Id)>,
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

/// An id, and before it the same first characters as numbers that sort as they do: a search rarely
/// has to look at the id itself, which lies elsewhere in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    front: Front,
    id: SessionId,
}

type Front = [u64; 2];

impl Id {
    fn of(id: &SessionId) -> Self {
        Self { front: front(id), id: id.clone() }
    }
}

fn front(id: &SessionId) -> Front {
    let mut front = [0; 16];
    front.iter_mut().zip(id.as_str().bytes()).for_each(|(front, byte)| *front = byte);
    let [high, low] = [&front[..8], &front[8..]].map(|half| half.try_into().unwrap_or_default());
    [u64::from_be_bytes(high), u64::from_be_bytes(low)]
}

/// A session that opening puts into the index. It brings along all that will be in there: to go and
/// get it once more would take longer than the rest.
#[derive(Debug)]
pub(super) struct Entry {
    id: SessionId,
    slot: Arc<Slot>,
    due: Option<(Timestamp, SessionId)>,
}

impl Entry {
    /// The session in this slot, whose deadline is `due`.
    pub(super) fn new(id: &SessionId, slot: &Arc<Slot>, due: Option<Timestamp>) -> Self {
        let due = due.map(|due| (due, id.clone()));
        Self { id: id.clone(), slot: Arc::clone(slot), due }
    }
}

/// All that opening puts into the index.
#[derive(Debug, Default)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// Where in `entries` each is, in the order of their ids.
    order: Vec<(Front, u32)>,
    /// How many go on, of each principal.
    active: HashMap<Principal, usize>,
}

impl Entries {
    /// These, with how many go on of each principal.
    pub(super) fn new(entries: Vec<Entry>, active: HashMap<Principal, usize>) -> Self {
        let order = (0..).zip(&entries).map(|(index, entry)| (front(&entry.id), index)).collect();
        let mut new = Self { entries, order, active };
        new.sort();
        new
    }

    /// Adds others, which are of other sessions.
    pub(super) fn extend(&mut self, others: Self) {
        let before = self.entries.len() as u32;
        self.entries.extend(others.entries);
        self.order.extend(others.order.iter().map(|(front, index)| (*front, before + index)));
        for (principal, active) in others.active {
            *self.active.entry(principal).or_default() += active;
        }
        self.sort();
    }

    /// Fast if the order consists of parts that are sorted.
    fn sort(&mut self) {
        let id = |index: u32| &self.entries[index as usize].id;
        self.order.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| id(a.1).cmp(id(b.1))));
    }
}

impl Index {
    /// The session of this id.
    pub(super) fn find(&self, id: &SessionId) -> Option<Arc<Slot>> {
        self.read().by_id.get(&Id::of(id)).cloned()
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
            Some(principal) => sessions.active.of(principal),
            None => sessions.active.all(),
        }
    }

    /// The same numbers, for somebody who counts on from there.
    pub(super) fn active(&self) -> Active {
        self.read().active.clone()
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

    /// Puts all sessions in at once.
    pub(super) fn fill(&self, entries: Entries) {
        let Entries { entries, order, active } = entries;
        let active = Active::new(active);
        let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
        let mut due = Vec::with_capacity(entries.len());
        let mut by_id = Vec::with_capacity(entries.len());
        for (front, index) in order {
            let Some(entry) = entries[index as usize].take() else { continue };
            due.extend(entry.due.map(|(at, id)| (at, Id { front, id })));
            by_id.push((Id { front, id: entry.id }, entry.slot));
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
        let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(Id::of(id)));
        let sessions = self.read();
        let step = sessions.by_id.range((from, Bound::Unbounded));
        step.take(limits::LIST_STEP).map(|(id, slot)| (id.id.clone(), Arc::clone(slot))).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Sessions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    fn apply(&mut self, change: IndexChange) {
        match change {
            IndexChange::Add(id, slot) => drop(self.by_id.insert(Id::of(&id), slot)),
            IndexChange::Remove(id, due) => {
                let id = Id::of(&id);
                self.by_id.remove(&id);
                self.unschedule(id, due);
            }
            IndexChange::Count(principal, counts) => {
                self.active.change(&principal, !counts, counts)
            }
            IndexChange::Reschedule(id, was, due) => {
                let id = Id::of(&id);
                self.unschedule(id.clone(), was);
                if let Some(due) = due {
                    self.due.insert((due, id));
                }
            }
        }
    }

    fn unschedule(&mut self, id: Id, was: Option<Timestamp>) {
        if let Some(was) = was {
            self.due.remove(&(was, id));
        }
    }
}
