//! The store, as far as a crash can tell: sessions that are durable, and a queue of writes that are
//! not yet. Writes take effect in order; a crash loses the queue from some point on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rejoin_core::limits::{LogBounds, PAGE_EVENTS};
use rejoin_core::page::{Body, Page, StoredEntry, StoredEvent};
use rejoin_core::record::Record;
use rejoin_core::state::{
    self, Ack, Append, AppendRefused, Appended, Attach, AttachRefused, Attached, Create, Detach,
    End, EndRefused, Enter, EnterRefused, Entered, Keep, MadeSession, NewToken, Recovery, Restore,
    RestoreRefused, Restored, SessionState, TakeLease,
};
use rejoin_core::worker::Ticket;
use rejoin_core::{AttachmentId, Epoch, InSeq, LogId, Seq, SessionId, Term, Timestamp};

use crate::judge::Judge;
use crate::random::Random;

/// Small bounds, so that eviction is an everyday thing.
pub(crate) const BOUNDS: LogBounds =
    LogBounds { events: 12, bytes: 600, retention: HALF_A_MINUTE, result_retention: HALF_A_MINUTE };

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// A write that a server process has asked for.
#[derive(Debug)]
pub(crate) enum Write {
    Create { connection: u64, create: Box<Create>, token: NewToken },
    Attach { attachment: AttachmentId, attach: Box<Attach> },
    Detach(Detach),
    Ack(Ack),
    Enter { ticket: Ticket, enter: Box<Enter<Body>> },
    Append(Box<Append<Body>>),
    Lease(TakeLease),
    Keep(Keep),
    End(End),
    Restore { connection: u64, restore: Box<Restore<Body>> },
}

/// What the process learns once a write is durable.
#[derive(Debug)]
pub(crate) enum Reply {
    Attached { attachment: AttachmentId, answer: Box<Result<Attached, AttachRefused>> },
    Entered { ticket: Ticket, answer: Result<Entered, EnterRefused> },
    Appended(Result<Appended, AppendRefused>),
    Created { connection: u64, record: Box<Record> },
    Leased(Term),
    Ended(Result<(), EndRefused>),
    Restored { connection: u64, result: Result<Box<Record>, RestoreRefused> },
    Nothing,
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) sessions: BTreeMap<SessionId, SessionState<Body>>,
    queue: VecDeque<(SessionId, Write)>,
    /// Sessions whose readers are to be told that there is something new: an ack is nothing to them.
    pub(crate) changed: Vec<SessionId>,
}

impl Disk {
    pub(crate) fn ask(&mut self, session: &SessionId, write: Write) {
        self.queue.push_back((session.clone(), write));
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.queue.is_empty()
    }

    /// The message that was asked to be entered last, with the number that it will have; nothing if it
    /// will be refused, is known already, or that can't be told yet.
    pub(crate) fn foresee(&self, id: &SessionId) -> Option<StoredEntry> {
        let mut session = self.sessions.get(id)?.clone();
        let mut foreseen = None;
        for (_, write) in self.queue.iter().filter(|(other, _)| other == id) {
            foreseen = match write {
                Write::Enter { enter, .. } => enter_ahead(&mut session, enter),
                Write::Restore { .. } | Write::End(_) | Write::Attach { .. } => return None,
                Write::Create { .. }
                | Write::Detach(_)
                | Write::Ack(_)
                | Write::Append(_)
                | Write::Lease(_)
                | Write::Keep(_) => continue,
            };
        }
        foreseen
    }

    /// Makes the oldest write durable.
    pub(crate) fn commit_one(
        &mut self,
        now: Timestamp,
        judge: &mut Judge,
    ) -> Option<(SessionId, Reply)> {
        let (id, write) = self.queue.pop_front()?;
        let before = self.sessions.get(&id).map(SessionState::record);
        if !matches!(write, Write::Ack(_) | Write::Keep(_)) {
            self.changed.push(id.clone());
        }
        let reply = self.apply(&id, write, now, judge);
        if let Some(session) = self.sessions.get_mut(&id) {
            judge.changed(before.as_ref(), session);
            session.settle(&BOUNDS, now);
        }
        Some((id, reply))
    }

    /// The process dies: some of what it asked for has become durable, the rest never will.
    pub(crate) fn crash(&mut self, random: &mut Random, now: Timestamp, judge: &mut Judge) {
        let survive = random.below(self.queue.len() + 1);
        for _ in 0..survive {
            self.commit_one(now, judge);
        }
        self.queue.clear();
    }

    /// Another process begins on what is there.
    pub(crate) fn recover(&mut self, now: Timestamp) {
        let day = Duration::from_secs(24 * 60 * 60);
        for session in self.sessions.values_mut() {
            if session.record().is_active() {
                session.recover(&Recovery { now, keep_for: day, longest: day }, None);
            }
        }
    }

    /// Some of what was durable is lost, as by a damaged file: the log begins another epoch.
    pub(crate) fn lose_tail(&mut self, id: &SessionId, random: &mut Random, judge: &mut Judge) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let keep = session.out.len().saturating_sub(1 + random.below(4));
        let head = session.out.oldest().plus(keep as u64).previous();
        let mut shorter = rejoin_core::log::OutLog::starting_after(
            session.out.oldest().previous(),
            session.out.acked().min(head),
        );
        for (seq, held) in session.out.after(Seq::ZERO) {
            if seq <= head {
                shorter.push(held.clone());
            }
        }
        shorter.ack(session.out.acked().min(head));
        session.out = shorter;
        session.begin_epoch(Epoch::from_random(random.bytes()), LogId::from_random(random.bytes()));
        judge.lost(session);
    }

    pub(crate) fn read(&self, id: &SessionId, after: Seq) -> Option<Box<Page>> {
        let session = self.sessions.get(id)?;
        let events = session
            .out
            .after(after)
            .take(PAGE_EVENTS.min(5))
            .map(|(seq, held)| StoredEvent { seq, at: held.at, body: Body::clone(&held.body) });
        Some(Box::new(Page { events: events.collect(), record: session.record() }))
    }

    pub(crate) fn entries(&self, id: &SessionId, after: InSeq) -> Vec<StoredEntry> {
        self.entries_up_to(id, after, 3)
    }

    /// All that no agent has dealt with.
    pub(crate) fn waiting(&self, id: &SessionId) -> Vec<StoredEntry> {
        self.entries_up_to(id, InSeq::ZERO, usize::MAX)
    }

    fn entries_up_to(&self, id: &SessionId, after: InSeq, limit: usize) -> Vec<StoredEntry> {
        let Some(session) = self.sessions.get(id) else { return Vec::new() };
        let entries = session.inbox.after(after).take(limit).map(|(in_seq, entry)| StoredEntry {
            in_seq,
            kind: entry.kind,
            at: entry.at,
            body: Body::clone(&entry.body),
        });
        entries.collect()
    }

    fn apply(&mut self, id: &SessionId, write: Write, now: Timestamp, judge: &mut Judge) -> Reply {
        match write {
            Write::Create { connection, create, token } => {
                let mut session = SessionState::create(*create);
                // Refused only if the write waited for longer than the session lives.
                let _ = session.put_token(token, now);
                let record = Box::new(session.record());
                self.sessions.insert(id.clone(), session);
                Reply::Created { connection, record }
            }
            Write::Restore { connection, restore } => self.restore(connection, *restore, judge),
            Write::Attach { .. }
            | Write::Detach(_)
            | Write::Ack(_)
            | Write::Enter { .. }
            | Write::Append(_)
            | Write::Lease(_)
            | Write::Keep(_)
            | Write::End(_) => match self.sessions.get_mut(id) {
                Some(session) => apply_to(session, write, judge),
                None => Reply::Nothing,
            },
        }
    }

    fn restore(&mut self, connection: u64, ask: Restore<Body>, judge: &mut Judge) -> Reply {
        let old = self.sessions.get(&ask.from).map(SessionState::record);
        let result = match state::restore(ask, &mut self.sessions) {
            Ok(Restored::Joined(id)) => Ok(Box::new(self.sessions[&id].record())),
            Ok(Restored::Made(made)) => {
                let MadeSession { session, from, trace, .. } = *made;
                judge.restored(old.as_ref(), &session);
                let record = Box::new(session.record());
                self.sessions.extend(trace.map(|trace| (from, trace)));
                self.sessions.insert(record.id().clone(), session);
                Ok(record)
            }
            Err(refused) => Err(refused),
        };
        Reply::Restored { connection, result }
    }
}

fn enter_ahead(session: &mut SessionState<Body>, enter: &Enter<Body>) -> Option<StoredEntry> {
    let (kind, at, body) = (enter.kind, enter.now, Body::clone(&enter.body));
    let entered = session.enter(enter.clone()).ok().filter(|entered| !entered.duplicate)?;
    Some(StoredEntry { in_seq: entered.in_seq, kind, at, body })
}

fn apply_to(session: &mut SessionState<Body>, write: Write, judge: &mut Judge) -> Reply {
    match write {
        Write::Attach { attachment, attach } => {
            let answer = Box::new(session.attach(&attach));
            judge.token_used(&attach, &answer);
            Reply::Attached { attachment, answer }
        }
        Write::Detach(detach) => {
            let _ = session.detach(&detach);
            Reply::Nothing
        }
        Write::Ack(ack) => {
            let _ = session.ack(&ack);
            Reply::Nothing
        }
        Write::Enter { ticket, enter } => {
            let message = Body::clone(&enter.body);
            let answer = session.enter(*enter);
            if answer.as_ref().is_ok_and(|entered| entered.duplicate) {
                judge.known_already(session, &message);
            }
            Reply::Entered { ticket, answer }
        }
        Write::Append(append) => Reply::Appended(session.append(*append)),
        Write::Lease(take) => session.take_lease(&take).map_or(Reply::Nothing, Reply::Leased),
        Write::Keep(keep) => {
            let _ = session.keep(&keep);
            Reply::Nothing
        }
        Write::End(end) => {
            let before = session.clone();
            let result = session.end(&end);
            if result.is_ok() {
                judge.ended(&before, &end);
            }
            Reply::Ended(result)
        }
        Write::Create { .. } | Write::Restore { .. } => Reply::Nothing,
    }
}
