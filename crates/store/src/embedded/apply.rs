//! A request becomes a change of the state in memory and records of what it did. What a change means
//! is decided in `rejoin_core::state`; here it is written down.

use std::sync::{Arc, MutexGuard};

use rejoin_core::codes::Reason;
use rejoin_core::log::Held;
use rejoin_core::record::{Record, Status};
use rejoin_core::state::{
    self, Append, AppendRefused, Appended, Create, Enter, EnterRefused, Entered, MadeSession,
    NewEvent, NewSnapshot, NoRoom, Restore, RestoreRefused, Restored, SessionState, Sessions,
};
use rejoin_core::{InSeq, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::batch::{Aftermath, Batch};
use super::cleanup;
use super::desk::Papers;
use super::index::IndexChange;
use super::journal::{Head, Key};
use super::key_map::{IdMap, KeyMap};
use super::piece::{Ledger, Piece};
use super::request::{Answer, Applied, Change, Entering, Request};
use super::shared::Shared;
use super::slot::{Session, Slot, Touches, Trace};
use crate::active::Active;
use crate::audit::AuditRecord;
use crate::changes::News;
use crate::contract::{Body, CreateRefused, Failure, Restoration};

/// Every session there is as of the last change, committed or not.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) by_id: IdMap<Arc<Slot>>,
    pub(super) by_key: KeyMap<Arc<Slot>>,
    /// How many of them go on.
    pub(super) active: Active,
    /// No session has this key or a higher one.
    pub(super) next_key: u64,
    /// How many rows the table of sessions has.
    pub(super) rows: u64,
    /// Their checksums, combined by exclusive or.
    pub(super) rows_sum: u32,
}

impl Tables {
    fn new_key(&mut self) -> Key {
        let key = Key(self.next_key);
        self.next_key += 1;
        key
    }

    fn is_active(&self, id: &SessionId) -> bool {
        let active = |slot: &Arc<Slot>| slot.lock().state.vitals.status == Status::Active;
        self.by_id.get(id).is_some_and(active)
    }

    /// The row of a session is going to be deleted.
    fn delete_row(&mut self, session: &mut Session, batch: &mut Batch) {
        if let Some(sum) = session.row_sum.take() {
            self.rows -= 1;
            self.rows_sum ^= sum;
            batch.deleted.push(session.key);
        }
    }

    /// The row of a session is going to be written.
    pub(super) fn put_row(&mut self, session: &mut Session, sum: u32) {
        match session.row_sum.replace(sum) {
            Some(was) => self.rows_sum ^= was,
            None => self.rows += 1,
        }
        self.rows_sum ^= sum;
    }
}

impl Papers {
    /// Applies one request about the session in `slot`, if there is one. Its answer is in the batch
    /// then, except for [`Request::Close`], which the loop deals with.
    pub(super) fn apply(&mut self, request: Request, slot: Option<Arc<Slot>>) {
        let answer = match request {
            Request::Append(_, append, reply) => Answer::Append(reply, self.append(slot, append)),
            Request::Enter(_, Entering { enter, early }, reply) => {
                let outcome = self.enter(slot, enter);
                foretell(early, &outcome);
                Answer::Enter(reply, outcome)
            }
            Request::Change(_, change) => self.change(slot, change),
            Request::Create(create, reply) => Answer::new(reply, self.create(*create)),
            Request::Forget(id, now, reply) => {
                slot.into_iter().for_each(|slot| self.forget(&id, &slot, now));
                Answer::new(reply, Ok(()))
            }
            Request::Restore(restore, reply) => Answer::new(reply, self.restore(*restore)),
            Request::Audit(record, reply) => {
                self.batch.audit.push(*record);
                Answer::new(reply, Ok(()))
            }
            Request::TidyUp(reply) => Answer::new(reply, Ok(())),
            Request::Close(reply) => return self.closing.push(reply),
        };
        self.batch.aftermath.answers.push(answer);
    }

    fn append(
        &mut self,
        slot: Option<Arc<Slot>>,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>> {
        let slot = &slot.ok_or(Failure::NotFound)?;
        self.check_append(slot, &append)?;
        let (shared, ledger) = (&self.shared, &self.ledger);
        Appending { shared, ledger, batch: &mut self.batch, slot }.apply(&mut slot.lock(), append)
    }

    fn enter(
        &mut self,
        slot: Option<Arc<Slot>>,
        enter: Enter<Body>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        let slot = &slot.ok_or(Failure::NotFound)?;
        self.check_enter(slot, &enter)?;
        let batch = &mut self.batch;
        let session = &mut *slot.lock();
        let (digest, at) = (enter.digest, enter.now);
        let enter = Enter {
            body: batch.piece(Arc::clone(&enter.body)),
            generation: enter.generation,
            kind: enter.kind,
            digest,
            size: enter.size,
            max_waiting_bytes: enter.max_waiting_bytes,
            keep_for: enter.keep_for,
            now: at,
        };
        if let Some(known) = session.state.check_enter(&enter).map_err(Failure::Refused)? {
            return Ok(known);
        }
        batch.touch_messages(slot, session);
        let remembered = session.state.ids();
        let entered = session.state.enter(enter).map_err(Failure::Refused)?;
        self.ledger.change_ids(remembered, session.state.ids());

        let deadline = Some(session.state.vitals.expires_at);
        if let Some(entry) = session.state.inbox.get_mut(entered.in_seq)
            && let Some(body) = entry.body.body().cloned()
        {
            let (key, in_seq) = (session.key, entered.in_seq);
            let (kind, size) = (entry.kind, entry.size);
            let head = Head::Entry { key, in_seq, at, kind, size, digest, deadline };
            entry.body.put_at(batch.records.put(&head, &body));
        }
        batch.has_ids |= digest.is_some();
        batch.says_something_of(session);
        self.shared.count_held(session);
        Ok(entered)
    }

    fn change(&mut self, slot: Option<Arc<Slot>>, change: Change) -> Answer {
        let Change { beside, touches, settle_at, apply } = change;
        let stands_alone = beside.is_none_or(|beside| self.tables.is_active(&beside));
        let Some(slot) = slot.as_ref().filter(|_| stands_alone) else { return apply(None).answer };
        let session = &mut *slot.lock();
        self.batch.touch(slot, session, touches);
        let waiting = waiting_entries(&session.state, touches);
        let (remembered, was_active) = (session.state.ids(), session.state.is_active());
        let Applied { trace, audit, answer } = apply(Some(&mut session.state));
        self.ledger.change_ids(remembered, session.state.ids());
        write_forgotten(session, &waiting, &mut self.batch);
        self.tables.active.change(
            &session.state.about.principal,
            was_active,
            session.state.is_active(),
        );
        self.batch.audit.extend(audit);
        self.batch.leave(slot, session, trace);
        self.shared.count_held(session);
        if let Some(now) = settle_at {
            self.batch.settle(session, now);
        }
        answer
    }

    fn create(&mut self, create: Create) -> Result<Record, Failure<CreateRefused>> {
        if self.tables.by_id.contains_key(&create.about.id) {
            return Err(Failure::Refused(CreateRefused::Exists));
        }
        let room = self.tables.active.check_room(&create);
        room.map_err(|no_room| Failure::Refused(CreateRefused::NoRoom(no_room)))?;
        let room = self.make_room_for(&create, 0);
        room.map_err(|over| Failure::Refused(CreateRefused::OverBound(over)))?;
        let key = self.tables.new_key();
        Ok(self.insert(key, SessionState::create(create)))
    }

    fn forget(&mut self, id: &SessionId, slot: &Arc<Slot>, now: Timestamp) {
        let over = match slot.lock().state.vitals.status {
            Status::Ended { forget_at, .. } => forget_at <= now,
            Status::Active => false,
        };
        if over {
            self.refuse_seals_of(slot);
            self.remove(id, slot);
        }
    }

    fn restore(&mut self, restore: Restore<Body>) -> Result<Restoration, Failure<RestoreRefused>> {
        self.check_restore(&restore)?;
        let candidates = [Some(&restore.from), restore.origin.stand_in()].into_iter().flatten();
        for slot in candidates.filter_map(|id| self.tables.by_id.get(id)) {
            self.batch.touch(slot, &mut slot.lock(), Touches::Everything);
        }
        let (principal, attempt) =
            (restore.create.about.principal.clone(), restore.attempt.clone());
        let restore = in_row(restore, &self.batch);
        let Tables { by_id, active, .. } = &self.tables;
        let mut line = RestoreLine { by_id, active, locked: Vec::new() };
        let made = match state::restore(restore, &mut line).map_err(Failure::Refused)? {
            Restored::Made(made) => *made,
            Restored::Joined(id) => {
                let joined = line.find(&id).ok_or(Failure::NotFound)?;
                return Ok(Restoration::Joined(Box::new(joined.record())));
            }
        };
        drop(line);
        self.tables.active.change(&principal, made.replaces_active, false);
        let record =
            attempt.map(|attempt| AuditRecord { attempt: *attempt, reason: Reason::Reconnected });
        self.batch.audit.extend(record);

        let MadeSession { session: mut new, from, trace, replaces_active } = made;
        let fresh = self.tables.new_key();
        let mut replaced = None;
        let old = self.tables.by_id.get(&from).cloned();
        let key = match (&old, trace) {
            (Some(old), _) => {
                // The logs stay where they are; it is the old session that gets another key. Those of a
                // session that had ended are gone, and what the journal still has of them must not come
                // back: only the message ids go on.
                let key = if replaces_active { self.change_key(old, fresh) } else { fresh };
                let session = &mut *old.lock();
                self.batch.leave(old, session, Trace::Row);
                self.shared.count_held(session);
                replaced = replaces_active.then(|| Box::new(session.state.record()));
                key
            }
            (None, Some(trace)) => {
                self.insert(fresh, trace);
                self.tables.new_key()
            }
            (None, None) => fresh,
        };
        if !replaces_active {
            write_ids(key, &new, &mut self.batch);
        }
        if new.snapshot.as_ref().is_some_and(|snapshot| snapshot.body.is_unwritten()) {
            write_snapshot(key, &mut new, &mut self.batch);
        }
        let record = Box::new(self.insert(key, new));
        if let (Some(old), Some(new)) = (old, self.tables.by_id.get(record.id()))
            && replaces_active
        {
            new.lock().has_logs_of(&mut old.lock());
        }
        Ok(Restoration::Made { record, replaced })
    }

    /// Adds a session. One of the same id is replaced.
    fn insert(&mut self, key: Key, state: SessionState<Piece>) -> Record {
        let (id, record) = (state.about.id.clone(), state.record());
        self.tables.active.change(&record.about.principal, false, record.is_active());
        if let Some(same_id) = self.tables.by_id.get(&id).cloned() {
            self.remove(&id, &same_id);
        }
        let slot = Slot::new(key, state);
        let session = &mut *slot.lock();
        self.batch.touch(&slot, session, Touches::Record);
        self.batch.leave(&slot, session, Trace::Row);
        session.plan.is_new = true;
        self.shared.count_held(session);
        self.tables.by_id.insert(id.clone(), Arc::clone(&slot));
        self.tables.by_key.insert(key, Arc::clone(&slot));
        self.batch.aftermath.index_changes.push(IndexChange::Add(id, Arc::clone(&slot)));
        record
    }

    pub(super) fn remove(&mut self, id: &SessionId, slot: &Arc<Slot>) {
        let session = &mut *slot.lock();
        self.tables.active.change(&session.state.about.principal, session.state.is_active(), false);
        self.tables.delete_row(session, &mut self.batch);
        self.tables.by_id.remove(id);
        self.tables.by_key.remove(&session.key);
        self.ledger.change_ids(session.state.ids(), 0);
        self.shared.uncount(session);
        session.plan.trace = Trace::Nothing;
        session.plan.reschedule = false;
        let Aftermath { changed, index_changes, .. } = &mut self.batch.aftermath;
        changed.push((Arc::clone(&session.state.about), News::Anything));
        index_changes.push(IndexChange::Remove(id.clone(), session.due()));
    }

    /// Gives a session another key and says which one it had.
    fn change_key(&mut self, slot: &Arc<Slot>, key: Key) -> Key {
        let session = &mut *slot.lock();
        self.tables.delete_row(session, &mut self.batch);
        session.unnoted_from = None; // its row will be written, and says everything
        let had = std::mem::replace(&mut session.key, key);
        self.tables.by_key.remove(&had);
        self.tables.by_key.insert(key, Arc::clone(slot));
        had
    }
}

/// An append that is being applied, and what it needs.
pub(super) struct Appending<'a> {
    pub(super) shared: &'a Shared,
    pub(super) ledger: &'a Ledger,
    pub(super) batch: &'a mut Batch,
    pub(super) slot: &'a Arc<Slot>,
}

impl Appending<'_> {
    /// Applies it to its session.
    pub(super) fn apply(
        self,
        session: &mut Session,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>> {
        let Self { shared, ledger, batch, slot } = self;
        if let Some(before) = session.state.check_append(&append).map_err(Failure::Refused)? {
            return Ok(before);
        }

        let Append { term, first, events, snapshot, covers, answered, named, key, now } = append;
        let replaces = covers.is_some() || !answered.is_empty() || snapshot.is_some();
        batch.touch(slot, session, if replaces { Touches::Inbox } else { Touches::End });
        cleanup::say_what_is_trimmed(session, batch);
        for event in events {
            write_event(session, event, now, batch);
        }
        let mut appended = Appended {
            head: session.state.out.head(),
            covered: session.state.inbox.covered(),
            snapshot: None,
            named: session.state.vitals.named,
            before: None,
        };
        if let Some(digest) = key {
            let remembered = session.state.ids();
            let publication = session.state.remember_key(digest, first, now);
            ledger.change_ids(remembered, session.state.ids());
            batch.records.put(&Head::SeenKey { key: session.key, publication }, &[]);
            batch.has_ids = true;
        }
        if replaces {
            let snapshot = snapshot.map(|NewSnapshot { size, body }| {
                let body = batch.piece(body);
                NewSnapshot { size, body }
            });
            let first = session.state.out.head().next();
            let events = Vec::new();
            let (key, out_of_order) = (None, answered.clone());
            let rest = Append { term, first, events, snapshot, covers, answered, named, key, now };
            let named_before = session.state.vitals.named;
            appended = session.state.append(rest).map_err(Failure::Refused)?;
            if appended.named != named_before {
                batch.leave(slot, session, Trace::Row); // its row is the only place that says so
            }
            write_cover_and_state(session, &appended, &out_of_order, batch);
        }
        batch.says_something_of(session);
        // Rarely is there more to do than this, or anything that can't be done now.
        if !session.plan.listed && session.in_line && session.may_be_trimmed(&shared.bounds) {
            shared.trim(session, now);
            shared.count_held(session);
        } else if replaces {
            batch.list(slot, session);
            batch.settle(session, now);
            shared.count_held(session);
        } else {
            batch.list(slot, session);
            batch.settle(session, now);
        }
        Ok(appended)
    }
}

/// Says which number a new message has, before it is durable, to whoever wants to know.
fn foretell(
    early: Option<oneshot::Sender<InSeq>>,
    outcome: &Result<Entered, Failure<EnterRefused>>,
) {
    if let (Some(early), Ok(Entered { in_seq, duplicate: false, .. })) = (early, outcome) {
        let _ = early.send(*in_seq); // it may have gone: the answer says it too
    }
}

/// Writes an event down at the end of the out log.
fn write_event(session: &mut Session, event: NewEvent<Body>, at: Timestamp, batch: &mut Batch) {
    let NewEvent { weight, body } = event;
    let (key, seq) = (session.key, session.state.out.head().next());
    let place = batch.records.put(&Head::Event { key, seq, at, weight }, &body);
    session.state.out.push(Held { at, weight, body: Piece::hot(&batch.row, place, body) });
    session.hide_event(weight.bytes());
}

/// Writes down what came with the events. The cover says all that was answered in order.
fn write_cover_and_state(
    session: &mut Session,
    appended: &Appended,
    answered: &[InSeq],
    batch: &mut Batch,
) {
    let (key, covered, head) = (session.key, appended.covered, session.state.inbox.head());
    batch.records.put(&Head::Cover { key, in_seq: covered }, &[]);
    // What was never entered may be one day: nothing is said of it.
    for in_seq in answered.iter().copied().filter(|n| covered < *n && *n <= head) {
        batch.records.put(&Head::Answered { key, in_seq }, &[]);
    }
    if appended.snapshot.is_some() {
        write_snapshot(session.key, &mut session.state, batch);
    }
}

/// Writes the snapshot down that a session has just got.
fn write_snapshot(key: Key, state: &mut SessionState<Piece>, batch: &mut Batch) {
    let Some(snapshot) = &mut state.snapshot else { return };
    let Some(body) = snapshot.body.body().cloned() else { return };
    let head = Head::Snapshot { key, mark: snapshot.mark, size: snapshot.size };
    snapshot.body.put_at(batch.records.put(&head, &body));
}

/// Writes down the message ids that a session takes over from one whose logs it does not have.
fn write_ids(key: Key, state: &SessionState<Piece>, batch: &mut Batch) {
    for message in state.seen.iter().copied() {
        batch.records.put(&Head::Seen { key, message }, &[]);
        batch.has_ids = true;
    }
}

/// The entries that wait for the agent, if a change may end the session.
fn waiting_entries(state: &SessionState<Piece>, touches: Touches) -> Vec<InSeq> {
    match touches {
        Touches::End | Touches::Record | Touches::Inbox => Vec::new(),
        Touches::Everything => state.inbox.after(InSeq::ZERO).map(|(in_seq, _)| in_seq).collect(),
    }
}

/// Writes down whose ids a session has forgotten that ended while these entries waited: their own records
/// may be in the journal still.
fn write_forgotten(session: &Session, waiting: &[InSeq], batch: &mut Batch) {
    let restorable = match &session.state.vitals.status {
        Status::Active => false,
        Status::Ended { ending, .. } => ending.is_restorable(),
    };
    for in_seq in waiting.iter().copied().filter(|_| restorable) {
        batch.records.put(&Head::Forgotten { key: session.key, in_seq }, &[]);
    }
}

fn in_row(restore: Restore<Body>, batch: &Batch) -> Restore<Piece> {
    let NewSnapshot { size, body } = restore.state;
    Restore {
        state: NewSnapshot { size, body: batch.piece(body) },
        from: restore.from,
        origin: restore.origin,
        create: restore.create,
        epoch: restore.epoch,
        seq: restore.seq,
        in_seq: restore.in_seq,
        taken_at: restore.taken_at,
        last_seq: restore.last_seq,
        takeover: restore.takeover,
        remember_for: restore.remember_for,
        only_at: restore.only_at,
        attempt: restore.attempt,
        now: restore.now,
    }
}

/// The sessions that a restore looks at; they stay locked until it is done.
struct RestoreLine<'a> {
    by_id: &'a IdMap<Arc<Slot>>,
    active: &'a Active,
    locked: Vec<(SessionId, MutexGuard<'a, Session>)>,
}

impl Sessions<Piece> for RestoreLine<'_> {
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<Piece>> {
        let index = match self.locked.iter().position(|(locked, _)| locked == id) {
            Some(index) => index,
            None => {
                self.locked.push((id.clone(), self.by_id.get(id)?.lock()));
                self.locked.len() - 1
            }
        };
        self.locked.get_mut(index).map(|(_, session)| &mut session.state)
    }

    fn check_room(&self, create: &Create) -> Result<(), NoRoom> {
        self.active.check_room(create)
    }
}
