//! A store that forgets everything when the process ends. It survives the crash of a client or an
//! agent, not its own; for tests, trials and sessions that are not worth a disk.

mod room;
mod tables;

use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rejoin_core::codes::Reason;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::lifetime::Verdict;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::Entry;
use rejoin_core::record::{Record, Status};
use rejoin_core::state::{
    self, Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached,
    Create, Detach, End, EndRefused, Enter, EnterRefused, Entered, Holding, Keep, LeaseHeld,
    MadeSession, NewToken, Renew, RenewRefused, Renewed, Restore, RestoreRefused, Restored,
    SessionOver, SessionState, Stale, TakeLease, Tokens,
};
use rejoin_core::{InSeq, Principal, Seq, SessionId, Term, Timestamp};

use self::room::counted;
use self::tables::{MemoryTables, RestoreView};
use crate::account::{Accounts, Bounds};
use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::changes::{ChangeBoard, Changes, News};
use crate::contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Query, Restoration, Store,
    StoredEntry, StoredEvent, StoredMessage, StoredSnapshot, Unavailable,
};
use crate::measure::{Measurements, StoreBytes};
use crate::relief;

/// Sessions in memory.
#[derive(Debug)]
pub struct MemoryStore {
    identity: StoreIdentity,
    bounds: LogBounds,
    /// What principals hold, and may hold.
    accounts: Accounts,
    max: Bounds,
    audit_max: usize,
    inner: Mutex<MemoryTables>,
    /// Held while a session is ended: it may go on only in one that is not ended meanwhile.
    ending: Mutex<()>,
    measurements: Measurements,
    changes: ChangeBoard,
}

impl MemoryStore {
    /// An empty store whose out logs keep to `bounds`, with at most `audit_max` audit records.
    pub fn new(bounds: LogBounds, audit_max: usize) -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random bytes");
        let (inner, ending) = (Mutex::default(), Mutex::default());
        let measurements = Measurements::default();
        let max = Bounds { all: u64::MAX, of_principal: u64::MAX };
        let (identity, accounts) = (StoreIdentity::new(random), Accounts::new(max));
        let changes = ChangeBoard::default();
        Self { identity, bounds, accounts, max, audit_max, inner, ending, measurements, changes }
    }

    /// With a bound for what all sessions hold together. Beyond it the events of those that need theirs
    /// least give way, and what would add to the rest is refused. To be said while there are none.
    #[must_use]
    pub fn max_buffered_bytes(self, bytes: u64) -> Self {
        self.bounded(|max| max.all = bytes)
    }

    /// The same for the sessions of one principal.
    #[must_use]
    pub fn max_bytes_per_principal(self, bytes: u64) -> Self {
        self.bounded(|max| max.of_principal = bytes)
    }

    fn bounded(mut self, change: impl FnOnce(&mut Bounds)) -> Self {
        change(&mut self.max);
        self.accounts = Accounts::new(self.max);
        self
    }

    fn lock(&self) -> Result<MutexGuard<'_, MemoryTables>, Unavailable> {
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
        self.change_audited((id, News::Anything), now, |_| None, change)
    }

    /// The same for a change that may be in the audit trail, or that only some readers wait for.
    fn change_audited<T, R>(
        &self,
        (id, news): (&SessionId, News),
        now: Option<Timestamp>,
        audit: impl FnOnce(&Result<T, R>) -> Option<AuditRecord>,
        change: impl FnOnce(&mut SessionState<Body>) -> Result<T, R>,
    ) -> Result<T, Failure<R>> {
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        let session = inner.sessions.get_mut(id).ok_or(Failure::NotFound)?;
        let (was_due, was) = (session.record().due_at(), counted(session));
        let was_active = session.is_active();
        let result = change(session);
        inner.active.change(&session.about.principal, was_active, session.is_active());
        if let Some(now) = now {
            let trimmed = session.settle(&self.bounds, now);
            self.measurements.overflowed(trimmed.unacked);
        }
        self.recount(session, was);
        let due = session.record().due_at();
        if due != was_due {
            inner.reschedule(id, was_due, due);
        }
        if let Some(record) = audit(&result) {
            inner.write_down(record, self.audit_max);
        }
        self.keep_to_bound(inner);
        self.changes.announce(id, news);
        result.map_err(Failure::Refused)
    }

    fn view<T>(
        &self,
        id: &SessionId,
        view: impl FnOnce(&SessionState<Body>) -> T,
    ) -> Result<Option<T>, Unavailable> {
        Ok(self.lock()?.sessions.get(id).map(view))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(LogBounds::default(), 100_000)
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
        let room = inner.active.check_room(&create);
        room.map_err(|no_room| Failure::Refused(CreateRefused::NoRoom(no_room)))?;
        let room = self.make_room_for(&mut inner, &create, 0);
        room.map_err(|over| Failure::Refused(CreateRefused::OverBound(over)))?;
        Ok(self.insert(&mut inner, SessionState::create(create)))
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        self.view(id, SessionState::record)
    }

    fn changes(&self, id: &SessionId) -> Changes {
        self.changes.subscribe(id)
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
        Ok(principal.map_or(inner.active.all(), |principal| inner.active.of(principal)))
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
        let audit = |outcome: &_| AuditRecord::of_change(attach.attempt.as_deref(), outcome);
        self.change_audited((id, News::Anything), None, audit, |session| session.attach(&attach))
    }

    async fn detach(
        &self,
        id: &SessionId,
        detach: Detach,
    ) -> Result<Option<Verdict>, Failure<Stale>> {
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
        self.check_enter(id, &enter)?;
        self.change_audited((id, News::Messages), None, |_| None, |session| session.enter(enter))
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
        self.check_append(id, &append)?;
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
        let audit = |outcome: &_| AuditRecord::of_change(renew.attempt.as_deref(), outcome);
        self.change_audited((id, News::Anything), None, audit, |session| session.renew(&renew))
    }

    async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>> {
        self.change(id, None, |session| session.keep(&keep))
    }

    async fn end(&self, id: &SessionId, end: End) -> Result<Record, Failure<EndRefused>> {
        let _one_at_a_time = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(to) = end.ending.leads_to() {
            let active = |session: &SessionState<Body>| session.vitals.status == Status::Active;
            if to == id || !self.view(to, active)?.unwrap_or(false) {
                return Err(Failure::NotFound);
            }
        }
        self.change(id, None, |session| session.end(&end).map(|()| session.record()))
    }

    async fn forget(&self, id: &SessionId, now: Timestamp) -> Result<(), Unavailable> {
        let mut inner = self.lock()?;
        let Some(session) = inner.sessions.get(id) else { return Ok(()) };
        if let Status::Ended { forget_at, .. } = session.vitals.status
            && forget_at <= now
            && let Some(session) = inner.remove(id)
        {
            self.uncount(&session);
            self.refuse_seals_of(&session);
            self.changes.announce(id, News::Anything);
        }
        Ok(())
    }

    async fn restore(
        &self,
        restore: Restore<Body>,
    ) -> Result<Restoration, Failure<RestoreRefused>> {
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        self.check_restore(inner, &restore)?;
        let before = |id| inner.sessions.get(id).map(|old| (old.record().due_at(), counted(old)));
        let candidates = [Some(&restore.from), restore.origin.stand_in()].into_iter().flatten();
        let before: Vec<_> = candidates.map(|id| (id.clone(), before(id))).collect();
        let principal = restore.create.about.principal.clone();
        let attempt = restore.attempt.clone();
        let mut line = RestoreView { sessions: &mut inner.sessions, active: &inner.active };
        let made = match state::restore(restore, &mut line).map_err(Failure::Refused)? {
            Restored::Joined(id) => {
                let session = inner.sessions.get(&id).ok_or(Failure::NotFound)?;
                return Ok(Restoration::Joined(Box::new(session.record())));
            }
            Restored::Made(made) => *made,
        };
        let MadeSession { session, from, trace, replaces_active } = made;
        inner.active.change(&principal, replaces_active, false);
        if let Some(attempt) = attempt {
            let record = AuditRecord { attempt: *attempt, reason: Reason::Reconnected };
            inner.write_down(record, self.audit_max);
        }
        let (was_due, was) = before
            .into_iter()
            .find(|(id, _)| *id == from)
            .and_then(|(_, was)| was)
            .unwrap_or_default();
        inner.sessions.get(&from).inspect(|old| self.recount(old, was));
        let old = inner.sessions.get(&from).map(SessionState::record);
        match (&old, trace) {
            (Some(old), _) => inner.reschedule(&from, was_due, old.due_at()),
            (None, Some(trace)) => drop(self.insert(inner, trace)),
            (None, None) => {}
        }
        self.changes.announce(&from, News::Anything);
        let replaced = old.filter(|_| replaces_active).map(Box::new);
        Ok(Restoration::Made { record: Box::new(self.insert(inner, session)), replaced })
    }

    async fn audit(&self, record: AuditRecord) -> Result<(), Unavailable> {
        let mut inner = self.lock()?;
        inner.write_down(record, self.audit_max);
        Ok(())
    }

    async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable> {
        let inner = self.lock()?;
        let before = query.before.unwrap_or(u64::MAX);
        let wanted = inner.audit.range(..before).rev().filter(|(_, record)| {
            query.session_id.is_none() || record.attempt.session_id == query.session_id
        });
        AuditPage::fill(query, wanted.map(|(place, record)| Ok((*place, record.clone()))))
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
                let was = counted(session);
                session.settle(&self.bounds, now);
                self.recount(session, was);
            }
        }
        Ok(again)
    }

    fn held_by(&self, principal: &Principal) -> Option<Holding> {
        Some(self.accounts.of(principal))
    }

    fn measurements(&self) -> Option<&Measurements> {
        Some(&self.measurements)
    }

    fn bytes(&self) -> StoreBytes {
        let memory = self.measurements.buffered_bytes.load(Relaxed);
        StoreBytes { memory, ..StoreBytes::default() }
    }

    async fn close(&self) -> Result<(), Unavailable> {
        self.lock()?.closed = true;
        self.changes.announce_failure();
        Ok(())
    }
}
