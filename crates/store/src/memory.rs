//! A store that forgets everything when the process ends. It survives the crash of a client or an
//! agent, not its own; for tests, trials and sessions that are not worth a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::lifetime::Verdict;
use rejoin_core::limits::{self, LogBounds};
use rejoin_core::log::Entry;
use rejoin_core::record::{Record, Status};
use rejoin_core::state::{
    self, Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached,
    Create, Detach, End, EndRefused, Enter, EnterRefused, Entered, Holding, Keep, LeaseHeld,
    MadeSession, NewToken, NoRoom, OverBound, Renew, RenewRefused, Renewed, Restore,
    RestoreRefused, Restored, SessionOver, SessionState, Stale, TakeLease, Tokens,
};
use rejoin_core::{InSeq, Principal, Seq, SessionId, Term, Timestamp};

use crate::account::{Accounts, Adds, Bounds, Counted};
use crate::active::Active;
use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::changes::{ChangeBoard, Changes, News};
use crate::contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Query, Restoration, Store,
    StoredEntry, StoredEvent, StoredMessage, StoredSnapshot, Unavailable,
};
use crate::measure::{Measurements, StoreBytes};
use crate::relief;
use crate::shares::Shares;

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

#[derive(Debug, Default)]
struct MemoryTables {
    sessions: BTreeMap<SessionId, SessionState<Body>>,
    /// Every session's [`Record::due_at`], to find the next one without looking at all.
    due: BTreeSet<(Timestamp, SessionId)>,
    /// How many of them go on.
    active: Active,
    /// The audit trail, by place.
    audit: BTreeMap<u64, AuditRecord>,
    next_place: u64,
    shares: Shares,
    closed: bool,
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
        self.change_audited(id, now, |_| None, change)
    }

    /// The same for a change that may be in the audit trail.
    fn change_audited<T, R>(
        &self,
        id: &SessionId,
        now: Option<Timestamp>,
        audit: impl FnOnce(&Result<T, R>) -> Option<AuditRecord>,
        change: impl FnOnce(&mut SessionState<Body>) -> Result<T, R>,
    ) -> Result<T, Failure<R>> {
        let result = self.change_quietly(id, now, audit, change);
        self.changes.announce(id, News::Anything);
        result
    }

    /// The same, and nobody is told.
    fn change_quietly<T, R>(
        &self,
        id: &SessionId,
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
        result.map_err(Failure::Refused)
    }

    /// A session that was counted as `was` is counted as what it is now.
    fn recount(&self, session: &SessionState<Body>, was: Counted) {
        let (about, now) = (&session.about, counted(session));
        self.accounts.count(&about.principal, &about.id, was, now);
        self.measurements.holds(was.held_bytes(), now.held_bytes());
    }

    /// Has sessions give way if a principal, or all together, hold too much.
    fn keep_to_bound(&self, inner: &mut MemoryTables) {
        if !self.accounts.holds_too_much() {
            return;
        }
        for (principal, excess) in self.accounts.excesses() {
            self.relieve(inner, Some(&principal), excess);
        }
        self.relieve(inner, None, self.accounts.excess());
    }

    fn relieve(&self, inner: &mut MemoryTables, whose: Option<&Principal>, excess: usize) {
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
    fn make_room(
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
    fn forget_oldest(&self, inner: &mut MemoryTables, principal: &Principal) -> bool {
        let oldest = self.accounts.oldest_ended(principal, 1).pop();
        let session = oldest.and_then(|id| inner.remove(&id));
        session.as_ref().inspect(|session| self.uncount(session));
        session.as_ref().inspect(|session| self.refuse_seals_of(session));
        session.is_some()
    }

    /// A session is forgotten: if it was closed, states of it are not gone on from again.
    fn refuse_seals_of(&self, session: &SessionState<Body>) {
        if let Some(at) = relief::closed_at(session) {
            self.accounts.forget_seals(&session.about.principal, at);
        }
    }

    fn uncount(&self, session: &SessionState<Body>) {
        let (about, was) = (&session.about, counted(session));
        self.accounts.count(&about.principal, &about.id, was, Counted::default());
        self.measurements.holds(was.held_bytes(), 0);
    }

    /// Makes room for another session of a principal.
    fn make_room_for(
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

    fn insert(&self, inner: &mut MemoryTables, session: SessionState<Body>) -> Record {
        self.recount(&session, Counted::default());
        inner.insert(session)
    }

    /// Whether there is room for a message, if it is a new one.
    fn check_enter(
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
    fn check_restore(
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
    fn check_append(
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

    fn view<T>(
        &self,
        id: &SessionId,
        view: impl FnOnce(&SessionState<Body>) -> T,
    ) -> Result<Option<T>, Unavailable> {
        Ok(self.lock()?.sessions.get(id).map(view))
    }
}

fn counted(session: &SessionState<Body>) -> Counted {
    Counted::of(session, session.holding(), session.out.bytes())
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(LogBounds::default(), 100_000)
    }
}

impl MemoryTables {
    fn insert(&mut self, session: SessionState<Body>) -> Record {
        let record = session.record();
        self.reschedule(record.id(), None, record.due_at());
        self.active.change(&record.about.principal, false, record.is_active());
        self.sessions.insert(record.id().clone(), session);
        record
    }

    fn remove(&mut self, id: &SessionId) -> Option<SessionState<Body>> {
        let session = self.sessions.remove(id)?;
        self.active.change(&session.about.principal, session.is_active(), false);
        self.reschedule(id, session.due_at(), None);
        Some(session)
    }

    fn write_down(&mut self, record: AuditRecord, max: usize) {
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

    fn reschedule(&mut self, id: &SessionId, was: Option<Timestamp>, due: Option<Timestamp>) {
        if let Some(was) = was {
            self.due.remove(&(was, id.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, id.clone()));
        }
    }
}

/// The sessions that a restore looks at.
struct RestoreView<'a> {
    sessions: &'a mut BTreeMap<SessionId, SessionState<Body>>,
    active: &'a Active,
}

impl state::Sessions<Body> for RestoreView<'_> {
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<Body>> {
        self.sessions.get_mut(id)
    }

    fn check_room(&self, create: &Create) -> Result<(), NoRoom> {
        self.active.check_room(create)
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
        self.change_audited(id, None, audit, |session| session.attach(&attach))
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
        let entered = self.change_quietly(id, None, |_| None, |session| session.enter(enter));
        self.changes.announce(id, News::Messages);
        entered
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
        self.change_audited(id, None, audit, |session| session.renew(&renew))
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
