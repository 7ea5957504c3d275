//! Everything that can be observed of a store.

use std::sync::atomic::Ordering;

use rejoin_core::record::Record;
use rejoin_core::{InSeq, Principal, Seq, SessionId};
use rejoin_store::audit::{AuditQuery, AuditRecord};
use rejoin_store::{PageLimit, Query, Store, StoredEvent};

use super::world::{World, bounds, principal};
use crate::support::{at, read_all, session_id};

const ALL: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

impl World {
    /// Everything a reader can see of a session.
    pub(super) async fn compare(&self, id: &SessionId) {
        let (a, b) = self.stores();
        let (mut x, mut y) = (a.session(id).await.unwrap(), b.session(id).await.unwrap());
        if let (Some(x), Some(y)) = (&mut x, &mut y) {
            // The memory store trims also when an append is refused.
            assert!(x.oldest <= y.oldest, "trimmed too early: {x:?}, not {y:?}");
            assert!(x.held() <= bounds().events as u64, "nothing is kept for ever");
            (x.oldest, x.held_bytes) = (y.oldest, y.held_bytes);
            if self.loose.contains(id) {
                assert!(x.acked <= y.acked, "a crash takes acks back, and makes none up");
                x.acked = y.acked;
            }
        }
        assert_eq!(x, y);
        let Some(record) = y else { return };
        self.compare_events(id, &record).await;
        assert_eq!(a.entries(id, InSeq::ZERO, 99).await, b.entries(id, InSeq::ZERO, 99).await);
        self.compare_messages(id).await;
        assert_eq!(a.snapshot(id).await, b.snapshot(id).await, "the state of {id}");
        assert_eq!(a.tokens(id).await, b.tokens(id).await, "the tokens of {id}");
    }

    async fn compare_events(&self, id: &SessionId, record: &Record) {
        let (a, b) = self.stores();
        let mut events = read_all(a, id).await;
        let mut held = a.read_kept(id, Seq::ZERO, ALL).await.unwrap();
        held.extend(events.iter().cloned());
        self.assert_was_said(id, &held);
        let left = b.read_kept(id, Seq::ZERO, ALL).await.unwrap();
        assert!(left.iter().all(|event| held.contains(event)), "a result of {id} went too early");
        events.retain(|event| event.seq >= record.oldest);
        assert_eq!(events, read_all(b, id).await);
        let limit = PageLimit { events: 3, bytes: 1_000 };
        let (x, y) =
            (a.read(id, record.oldest, limit).await, b.read(id, record.oldest, limit).await);
        assert_eq!(x.unwrap().map(|page| page.events), y.unwrap().map(|page| page.events));
    }

    /// Messages that are dealt with may be trimmed, and a trim may be lost in a crash.
    async fn compare_messages(&self, id: &SessionId) {
        let (a, b) = self.stores();
        let (x, y) =
            (a.messages(id, InSeq::ZERO, ALL).await, b.messages(id, InSeq::ZERO, ALL).await);
        let (x, y) = (x.unwrap().unwrap().messages, y.unwrap().unwrap().messages);
        assert!(y.iter().all(|message| x.contains(message)), "{id} has {x:?}, not {y:?}");
        let mut others = x.iter().filter(|message| !y.contains(message));
        assert!(others.all(|message| message.covered), "{id} has {x:?}, not {y:?}");
    }

    /// What was trimmed may come back with a restart, but only what the session's own log has said.
    fn assert_was_said(&self, id: &SessionId, held: &[StoredEvent]) {
        for event in held {
            let said = self.said.get(id).and_then(|said| said.get(&event.seq));
            assert_eq!(said, Some(&event.body), "event {} was never said in {id}", event.seq);
        }
    }

    pub(super) async fn compare_all(&self) {
        for id in self.ids() {
            self.compare(&id).await;
        }
        let ben = principal(0);
        for principal in [None, Some(ben.clone()), Some(Principal::anonymous())] {
            for active_only in [false, true] {
                self.compare_lists(principal.clone(), active_only).await;
            }
        }
        self.compare_due().await;
        self.compare_audit().await;
        self.compare_accounts();
        for store in [self.stores().0, self.stores().1] {
            assert_held_is_counted(store).await;
        }
    }

    async fn compare_lists(&self, principal: Option<Principal>, active_only: bool) {
        let (a, b) = self.stores();
        let count = a.count(principal.as_ref()).await;
        assert_eq!(count, b.count(principal.as_ref()).await);
        let query = Query { principal, active_only, after: Some(session_id(2)), limit: 5 };
        let (x, y) = (a.sessions(&query).await.unwrap(), b.sessions(&query).await.unwrap());
        assert_eq!(ids(&x), ids(&y));
    }

    fn compare_accounts(&self) {
        let (a, b) = self.stores();
        for principal in [principal(0), Principal::anonymous()] {
            let fixed = |store: &dyn Store| store.held_by(&principal).unwrap().fixed;
            assert_eq!(fixed(a), fixed(b), "what {principal} holds besides events");
        }
    }

    async fn compare_due(&self) {
        let (a, b) = self.stores();
        for now in [self.now(), at(u64::MAX)] {
            let (x, y) = (a.due(now, 3).await.unwrap(), b.due(now, 3).await.unwrap());
            assert_eq!((ids(&x.records), x.next), (ids(&y.records), y.next));
        }
    }

    async fn compare_audit(&self) {
        for session_id in [None, Some(session_id(1))] {
            let (a, b) = self.stores();
            let (x, y) = (trail(a, session_id.clone()).await, trail(b, session_id).await);
            assert_eq!(x, y);
        }
    }
}

/// The whole trail, page by page.
async fn trail(store: &dyn Store, session_id: Option<SessionId>) -> Vec<AuditRecord> {
    let mut query = AuditQuery { session_id, limit: 7, ..AuditQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = store.audit_trail(&query).await.unwrap();
        all.extend(page.records);
        let Some(next) = page.next else { return all };
        query.before = Some(next);
    }
}

async fn assert_held_is_counted(store: &dyn Store) {
    let query = Query { limit: 100, ..Query::default() };
    let held: u64 = store.sessions(&query).await.unwrap().iter().map(|r| r.held_bytes as u64).sum();
    let counted = store.measurements().unwrap().buffered_bytes.load(Ordering::Relaxed);
    assert_eq!(counted, held, "what is held is counted");
}

fn ids(records: &[Record]) -> Vec<SessionId> {
    records.iter().map(|record| record.id().clone()).collect()
}
