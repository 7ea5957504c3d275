//! A store that forgets everything when the process ends. It survives the crash of a client or an
//! agent, not its own; for tests, trials and sessions that are not worth a disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::Entry;
use rejoin_core::record::{Record, Status};
use rejoin_core::state::{
    self, Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached,
    Create, Detach, End, EndRefused, Enter, EnterRefused, Entered, Keep, LeaseHeld, MadeSession,
    NewToken, Renew, RenewRefused, Renewed, Restore, RestoreRefused, Restored, SessionOver,
    SessionState, Stale, TakeLease, Tokens,
};
use rejoin_core::{InSeq, Principal, Seq, SessionId, Term, Timestamp};

use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Query, Restoration, Store,
    StoredEntry, StoredEvent, StoredMessage, StoredSnapshot, Unavailable,
};
use crate::measure::Measurements;
use crate::relief;

/// Sessions in memory.
#[derive(Debug)]
pub struct MemoryStore {
    identity: StoreIdentity,
    bounds: LogBounds,
    /// What all out logs together may hold.
    max_buffered_bytes: u64,
    audit_max: usize,
    inner: Mutex<Inner>,
    measurements: Measurements,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<SessionId, SessionState<Body>>,
    /// Every session's [`Record::due_at`], to find the next one without looking at all.
    due: BTreeSet<(Timestamp, SessionId)>,
    audit: VecDeque<AuditRecord>,
    /// How many audit records have come and gone before the oldest one that is held.
    audit_dropped: u64,
    closed: bool,
}

impl MemoryStore {
    /// An empty store whose out logs keep to `bounds`, with at most `audit_max` audit records.
    pub fn new(bounds: LogBounds, audit_max: usize) -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random bytes");
        let (inner, measurements) = (Mutex::default(), Measurements::default());
        let (identity, max_buffered_bytes) = (StoreIdentity::new(random), u64::MAX);
        Self { identity, bounds, max_buffered_bytes, audit_max, inner, measurements }
    }

    /// With a bound for the events of all sessions together. Beyond it the sessions that need theirs
    /// least give way.
    #[must_use]
    pub fn max_buffered_bytes(mut self, bytes: u64) -> Self {
        self.max_buffered_bytes = bytes;
        self
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Unavailable> {
        // A panic inside a change would have been one of ours; what it left is still the truth.
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.closed { Err(Unavailable(Arc::from("it was closed"))) } else { Ok(inner) }
    }

    /// Applies a change to one session and lets go of what it pushed out.
    fn change<T, R>(
        &self,
        id: &SessionId,
        now: Option<Timestamp>,
        change: impl FnOnce(&mut SessionState<Body>) -> Result<T, R>,
    ) -> Result<T, Failure<R>> {
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        let session = inner.sessions.get_mut(id).ok_or(Failure::NotFound)?;
        let (was_due, held) = (session.record().due_at(), held(session));
        let result = change(session);
        if let Some(now) = now {
            let trimmed = session.settle(&self.bounds, now);
            self.measurements.overflowed(trimmed.unacked);
        }
        self.measurements.holds(held, self::held(session));
        let due = session.record().due_at();
        if due != was_due {
            inner.reschedule(id, was_due, due);
        }
        self.keep_to_bound(inner);
        result.map_err(Failure::Refused)
    }

    /// Has sessions give way if all of them together hold too much.
    fn keep_to_bound(&self, inner: &mut Inner) {
        let buffered = self.measurements.buffered_bytes.load(Ordering::Relaxed);
        let excess = relief::excess(buffered, self.max_buffered_bytes);
        if excess == 0 {
            return;
        }
        let ranked = inner.sessions.iter().map(|(id, session)| (relief::rank(session), id.clone()));
        relief::relieve(&mut ranked.collect::<Vec<_>>(), excess, |id, what, bytes| {
            let Some(session) = inner.sessions.get_mut(id) else { return 0 };
            let had = session.out.bytes();
            self.measurements.shed(session.shed(what, bytes));
            self.measurements.holds(had as u64, held(session));
            had - session.out.bytes()
        });
    }

    fn view<T>(
        &self,
        id: &SessionId,
        view: impl FnOnce(&SessionState<Body>) -> T,
    ) -> Result<Option<T>, Unavailable> {
        Ok(self.lock()?.sessions.get(id).map(view))
    }
}

/// Bytes of events that a session holds.
fn held(session: &SessionState<Body>) -> u64 {
    session.out.bytes() as u64
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(LogBounds::default(), 100_000)
    }
}

impl Inner {
    fn insert(&mut self, session: SessionState<Body>) -> Record {
        let record = session.record();
        self.reschedule(record.id(), None, record.due_at());
        self.sessions.insert(record.id().clone(), session);
        record
    }

    fn reschedule(&mut self, id: &SessionId, was: Option<Timestamp>, due: Option<Timestamp>) {
        if let Some(was) = was {
            self.due.remove(&(was, id.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, id.clone()));
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    async fn create(&self, create: Create) -> Result<Record, Failure<CreateRefused>> {
        let mut inner = self.lock()?;
        if inner.sessions.contains_key(&create.about.id) {
            return Err(Failure::Refused(CreateRefused::Exists));
        }
        Ok(inner.insert(SessionState::create(create)))
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        self.view(id, SessionState::record)
    }

    async fn sessions(&self, query: &Query) -> Result<Vec<Record>, Unavailable> {
        let inner = self.lock()?;
        let from = query.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let sessions = inner.sessions.range::<SessionId, _>((from, Bound::Unbounded));
        let wanted = sessions.map(|(_, session)| session).filter(|session| {
            let owned = query.principal.as_ref().is_none_or(|p| *p == session.about.principal);
            owned && (!query.active_only || session.vitals.status == Status::Active)
        });
        Ok(wanted.take(query.limit).map(SessionState::record).collect())
    }

    async fn count(&self, principal: Option<&Principal>) -> Result<usize, Unavailable> {
        let inner = self.lock()?;
        let counted = inner.sessions.values().filter(|session| {
            let owned = principal.is_none_or(|p| *p == session.about.principal);
            owned && session.vitals.status == Status::Active
        });
        Ok(counted.count())
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due, Unavailable> {
        let inner = self.lock()?;
        let ready = inner.due.iter().take_while(|(at, _)| *at <= now).take(limit);
        let records: Vec<Record> =
            ready.filter_map(|(_, id)| inner.sessions.get(id)).map(SessionState::record).collect();
        let next = inner.due.iter().nth(records.len()).map(|(at, _)| *at);
        Ok(Due { records, next })
    }

    async fn attach(
        &self,
        id: &SessionId,
        attach: Attach,
    ) -> Result<Attached, Failure<AttachRefused>> {
        self.change(id, None, |session| session.attach(&attach))
    }

    async fn detach(&self, id: &SessionId, detach: Detach) -> Result<(), Failure<Stale>> {
        self.change(id, Some(detach.now), |session| session.detach(&detach))
    }

    async fn ack(&self, id: &SessionId, ack: Ack) -> Result<(), Failure<AckRefused>> {
        self.change(id, None, |session| session.ack(&ack))
    }

    async fn enter(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.change(id, None, |session| session.enter(enter))
    }

    async fn take_lease(
        &self,
        id: &SessionId,
        take: TakeLease,
    ) -> Result<Term, Failure<LeaseHeld>> {
        self.change(id, None, |session| session.take_lease(&take))
    }

    async fn give_up_lease(&self, id: &SessionId, term: Term) -> Result<(), Unavailable> {
        if let Some(session) = self.lock()?.sessions.get_mut(id) {
            session.give_up_lease(term);
        }
        Ok(())
    }

    async fn append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>> {
        self.change(id, Some(append.now), |session| session.append(append))
    }

    async fn read(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Option<Page>, Unavailable> {
        self.view(id, |session| {
            let mut events: Vec<StoredEvent> = Vec::new();
            let mut bytes = 0;
            for (seq, held) in session.out.after(after).take(limit.events.max(1)) {
                bytes += held.weight.bytes();
                if bytes > limit.bytes && !events.is_empty() {
                    break;
                }
                events.push(StoredEvent { seq, at: held.at, body: Arc::clone(&held.body) });
            }
            Page { events, record: session.record() }
        })
    }

    async fn read_kept(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<StoredEvent>, Unavailable> {
        let kept = self.view(id, |session| {
            let (mut events, mut bytes) = (Vec::new(), 0);
            for (seq, held) in session.out.kept_after(after).take(limit.events.max(1)) {
                bytes += held.weight.bytes();
                if bytes > limit.bytes && !events.is_empty() {
                    break;
                }
                events.push(StoredEvent { seq, at: held.at, body: Arc::clone(&held.body) });
            }
            events
        })?;
        Ok(kept.unwrap_or_default())
    }

    async fn entries(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, Unavailable> {
        let entries = self.view(id, |session| {
            let waiting = session.inbox.after(after).take(limit);
            let stored = waiting.map(|(in_seq, entry)| StoredEntry {
                in_seq,
                kind: entry.kind,
                at: entry.at,
                body: Arc::clone(&entry.body),
            });
            stored.collect()
        })?;
        Ok(entries.unwrap_or_default())
    }

    async fn messages(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: PageLimit,
    ) -> Result<Option<MessagePage>, Unavailable> {
        self.view(id, |session| {
            let (mut messages, mut bytes) = (Vec::new(), 0);
            for (in_seq, entry, covered) in session.inbox.all_after(after) {
                bytes += entry.size as usize;
                if !limit.has_room(messages.len(), bytes) {
                    break;
                }
                let Entry { kind, at, body, .. } = entry;
                let entry = StoredEntry { in_seq, kind: *kind, at: *at, body: Arc::clone(body) };
                messages.push(StoredMessage { entry, covered });
            }
            MessagePage { messages, record: session.record() }
        })
    }

    async fn snapshot(&self, id: &SessionId) -> Result<Option<StoredSnapshot>, Unavailable> {
        let snapshot = self.view(id, |session| {
            let snapshot = session.snapshot.as_ref()?;
            Some(StoredSnapshot { mark: snapshot.mark, body: Arc::clone(&snapshot.body) })
        })?;
        Ok(snapshot.flatten())
    }

    async fn put_token(
        &self,
        id: &SessionId,
        token: NewToken,
        now: Timestamp,
    ) -> Result<(), Failure<SessionOver>> {
        self.change(id, None, |session| session.put_token(token, now))
    }

    async fn tokens(&self, id: &SessionId) -> Result<Option<Tokens>, Unavailable> {
        self.view(id, |session| session.tokens.clone())
    }

    async fn renew(&self, id: &SessionId, renew: Renew) -> Result<Renewed, Failure<RenewRefused>> {
        self.change(id, None, |session| session.renew(&renew))
    }

    async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>> {
        self.change(id, None, |session| session.keep(&keep))
    }

    async fn end(&self, id: &SessionId, end: End) -> Result<Record, Failure<EndRefused>> {
        self.change(id, None, |session| session.end(&end).map(|()| session.record()))
    }

    async fn forget(&self, id: &SessionId, now: Timestamp) -> Result<(), Unavailable> {
        let mut inner = self.lock()?;
        let Some(session) = inner.sessions.get(id) else { return Ok(()) };
        if let Status::Ended { forget_at, .. } = session.vitals.status
            && forget_at <= now
        {
            inner.sessions.remove(id);
            inner.reschedule(id, Some(forget_at), None);
        }
        Ok(())
    }

    async fn restore(
        &self,
        restore: Restore<Body>,
    ) -> Result<Restoration, Failure<RestoreRefused>> {
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        let before = |id| inner.sessions.get(id).map(|old| (old.record().due_at(), held(old)));
        let candidates = [Some(&restore.from), restore.origin.stand_in()].into_iter().flatten();
        let before: Vec<_> = candidates.map(|id| (id.clone(), before(id))).collect();
        let made = match state::restore(restore, &mut inner.sessions).map_err(Failure::Refused)? {
            Restored::Joined(id) => {
                let session = inner.sessions.get(&id).ok_or(Failure::NotFound)?;
                return Ok(Restoration::Joined(Box::new(session.record())));
            }
            Restored::Made(made) => *made,
        };
        let MadeSession { session, from, trace, replaces_active } = made;
        let (was_due, was_held) = before
            .into_iter()
            .find(|(id, _)| *id == from)
            .and_then(|(_, was)| was)
            .unwrap_or_default();
        let still_held = inner.sessions.get(&from).map_or(0, held);
        self.measurements.holds(was_held, still_held + held(&session));
        let old = inner.sessions.get(&from).map(SessionState::record);
        match (&old, trace) {
            (Some(old), _) => inner.reschedule(&from, was_due, old.due_at()),
            (None, Some(trace)) => drop(inner.insert(trace)),
            (None, None) => {}
        }
        let replaced = old.filter(|_| replaces_active).map(Box::new);
        Ok(Restoration::Made { record: Box::new(inner.insert(session)), replaced })
    }

    async fn audit(&self, record: AuditRecord) -> Result<(), Unavailable> {
        let mut inner = self.lock()?;
        inner.audit.push_back(record);
        if inner.audit.len() > self.audit_max {
            inner.audit.pop_front();
            inner.audit_dropped += 1;
        }
        Ok(())
    }

    async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable> {
        let inner = self.lock()?;
        let numbered = inner.audit.iter().enumerate();
        let mut wanted = numbered
            .map(|(index, record)| (inner.audit_dropped + index as u64, record))
            .rev()
            .filter(|(place, _)| query.before.is_none_or(|before| *place < before))
            .filter(|(_, r)| query.session_id.is_none() || r.session_id == query.session_id);
        let page: Vec<_> = wanted.by_ref().take(query.limit).collect();
        let next = wanted.next().and(page.last()).map(|(place, _)| *place);
        Ok(AuditPage { records: page.into_iter().map(|(_, r)| r.clone()).collect(), next })
    }

    async fn settle(&self, now: Timestamp) -> Result<Option<Timestamp>, Unavailable> {
        let mut inner = self.lock()?;
        let again = Some(relief::look_again(&self.bounds, now));
        if !self.measurements.holds_any() {
            return Ok(again);
        }
        for session in inner.sessions.values_mut() {
            let (bounds, settled) = (session.bounds(&self.bounds), session.grows_old());
            let messages = session.has_outlived_messages(&self.bounds, now);
            if messages || session.out.has_outlived(&bounds, settled, now) {
                let had = held(session);
                session.settle(&self.bounds, now);
                self.measurements.holds(had, held(session));
            }
        }
        Ok(again)
    }

    fn measurements(&self) -> Option<&Measurements> {
        Some(&self.measurements)
    }

    async fn close(&self) -> Result<(), Unavailable> {
        self.lock()?.closed = true;
        Ok(())
    }
}
