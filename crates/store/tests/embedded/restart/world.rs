//! Both stores, the time, and what a restart may have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rejoin_core::limits::{GRACE_AFTER_START, LogBounds};
use rejoin_core::record::Record;
use rejoin_core::state::{Detach, Keep, Recovery};
use rejoin_core::{Principal, Seq, SessionId, Timestamp};
use rejoin_store::embedded::{EmbeddedStore, Options};
use rejoin_store::{Body, MemoryStore, Store};

use crate::support::{Dice, HOUR, at, departure, events_from, options, session_id};

/// Sessions that a history makes, at most.
pub(super) const SESSIONS: u64 = 12;

/// How many audit records are kept.
pub(super) const AUDIT_MAX: usize = 40;

/// What was ever said in the log that a session has now.
pub(super) type Said = BTreeMap<Seq, Body>;

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) now: u64,
    pub(super) embedded: EmbeddedStore,
    pub(super) memory: MemoryStore,
    pub(super) made: u64,
    /// Sessions some of whose acks and trims a restart may have taken back.
    pub(super) loose: BTreeSet<SessionId>,
    pub(super) said: BTreeMap<SessionId, Said>,
}

pub(super) fn bounds() -> LogBounds {
    let minute = Duration::from_secs(60);
    LogBounds { events: 20, bytes: 8_000, retention: minute, result_retention: 3 * minute }
}

fn small_store(directory: &Path, now: u64) -> Options {
    let mut options = options(directory);
    options.bounds = bounds();
    options.audit_max = AUDIT_MAX;
    options.memory_bytes = 20_000;
    options.recovery = recovery(now);
    options
}

fn recovery(now: u64) -> Recovery {
    Recovery { now: at(now), keep_for: HOUR, longest: 1000 * HOUR }
}

impl World {
    pub(super) fn new(directory: &Path, seed: u64) -> Self {
        let (embedded, report) = EmbeddedStore::open(small_store(directory, 1)).unwrap();
        assert_eq!(report.damage, []);
        let memory = MemoryStore::new(bounds(), AUDIT_MAX);
        let (loose, said) = (BTreeSet::new(), BTreeMap::new());
        Self { dice: Dice(seed), now: 1, embedded, memory, made: 0, loose, said }
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.now)
    }

    pub(super) fn stores(&self) -> (&dyn Store, &dyn Store) {
        (&self.embedded, &self.memory)
    }

    pub(super) async fn record(&self, id: &SessionId) -> Option<Record> {
        self.memory.session(id).await.unwrap()
    }

    /// Every id that a session may have.
    pub(super) fn ids(&self) -> impl Iterator<Item = SessionId> + use<> {
        (0..=self.made).map(session_id)
    }

    /// Closes or drops the embedded store and opens it again; does to the memory store what opening does.
    pub(super) async fn restart(mut self, directory: &Path) -> Self {
        let orderly = self.dice.one_in(3);
        self.embedded.note_alive(self.now());
        if orderly {
            self.embedded.close().await.unwrap();
        }
        drop(self.embedded);
        let attached = attached(&self.memory, self.made).await;
        let (embedded, report) = EmbeddedStore::open(small_store(directory, self.now)).unwrap();
        assert_eq!(report.damage, []);
        let parked: Vec<SessionId> = report.parked.into_iter().map(|parked| parked.id).collect();
        assert_eq!(parked.into_iter().collect::<BTreeSet<_>>(), attached, "parked by the restart");
        self.embedded = embedded;
        for id in self.ids() {
            if !orderly {
                self.loose.insert(id.clone());
            }
            self.recover(&id).await;
        }
        // Opening parks sessions, and the first commit writes that down: until then another restart would
        // park them as of its own time.
        self.audit().await;
        self
    }

    /// What opening does to a session.
    async fn recover(&self, id: &SessionId) {
        let Some(record) = self.record(id).await.filter(Record::is_active) else { return };
        let (memory, now) = (&self.memory, self.now());
        if record.attached.is_some() {
            let detach = Detach { now, ..departure(record.generation) };
            memory.detach(id, detach).await.unwrap();
        }
        memory.give_up_lease(id, record.term).await.unwrap();
        let expires = self.record(id).await.unwrap().expires_at;
        let until = expires.clamp(now + GRACE_AFTER_START, now + 1000 * HOUR);
        memory.keep(id, Keep { generation: record.generation, until }).await.unwrap();
        // Opening trims, and the memory store trims when something is appended.
        let mut nothing = events_from(record.head.next(), &[]);
        (nothing.term, nothing.now, nothing.named) = (record.term, now, false);
        memory.append(id, nothing).await.unwrap();
    }
}

async fn attached(memory: &MemoryStore, made: u64) -> BTreeSet<SessionId> {
    let mut attached = BTreeSet::new();
    for id in (0..=made).map(session_id) {
        let record = memory.session(&id).await.unwrap();
        if record.is_some_and(|record| record.attached.is_some()) {
            attached.insert(id);
        }
    }
    attached
}

/// Two principals share the store.
pub(super) fn principal(number: u64) -> Principal {
    if number.is_multiple_of(3) { Principal::new("ben") } else { Principal::anonymous() }
}
