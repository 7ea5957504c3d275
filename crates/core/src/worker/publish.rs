//! What the agent says, and the lease that lets it. Events get their seq here, are sent to the store,
//! and exist for nobody before the store has them.

use std::collections::VecDeque;

use super::{Ticket, Worker, WorkerOutput};
use crate::event_body::EventBody;
use crate::limits;
use crate::log::{MessageDigest, Weight};
use crate::page::Body;
use crate::position::{InSeq, Seq, Term};
use crate::state::{Append, AppendRefused, Appended, NewEvent, NewSnapshot};
use crate::time::Timestamp;

/// What the agent says at once: stored together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// Events, in order; may be none.
    pub events: Vec<EventBody>,
    /// Whether they are results: where the log is over its bounds these go last.
    pub results: bool,
    /// The agent's state after them.
    pub state: Option<Body>,
    /// Entries up to this one are dealt with.
    pub in_seq: Option<InSeq>,
    /// Entries that are dealt with one by one, whatever waits before them: for an agent that works on
    /// several at once.
    pub answered: Vec<InSeq>,
    /// What it is known by, if it may be sent again: it is published once.
    pub key: Option<MessageDigest>,
}

impl Publication {
    /// Whether it says of any entry that it is dealt with.
    fn names_entries(&self) -> bool {
        self.in_seq.is_some() || !self.answered.is_empty()
    }

    /// Bytes of its events and its state.
    fn bytes(&self) -> usize {
        let events: usize = self.events.iter().map(|event| event.len()).sum();
        events + self.state.as_ref().map_or(0, |state| state.len())
    }
}

/// Events that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The first of them; the next one to come if there were none.
    pub first: Seq,
    /// The last event there is.
    pub last: Seq,
}

/// Why nothing was published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefused {
    /// This process does not run the session's agent.
    #[error("this process does not hold the session's lease")]
    NoLease,
    /// Too much is on its way already.
    #[error("{0} appends are on their way; wait for one")]
    Busy(usize),
    /// The store refused.
    #[error(transparent)]
    Refused(#[from] AppendRefused),
}

/// How it is known which entries an agent has dealt with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Covering {
    /// It says so, with `in_seq`.
    Named,
    /// Nobody knows yet whether it will say so; until it does, an entry counts as dealt with when
    /// it takes the next one.
    #[default]
    Unknown,
}

/// What there is to do for an agent, as far as that can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Nothing: every entry is dealt with.
    Nothing,
    /// It has taken every entry and never says what it has dealt with: it may be at work or not.
    Unsure,
    /// There are entries that it has not dealt with.
    Waiting,
}

/// The agent's side of a session in this process.
#[derive(Debug, Default)]
pub(super) struct AgentSide {
    /// The lease, while this process has it: only then it may publish.
    term: Option<Term>,
    /// The agent that is handed entries, while one runs here.
    running: Option<Running>,
    /// What was said while an append was on its way: it goes together with the next one, so that a
    /// talkative agent costs one commit at a time and not one for each event.
    waiting: VecDeque<Said>,
    /// Bytes of that.
    waiting_bytes: usize,
    /// What the append that is on its way consists of; empty if none is.
    in_flight: Vec<Receipt>,
}

#[derive(Debug)]
struct Running {
    covering: Covering,
    /// The last entry the agent was handed.
    handed: InSeq,
    /// The last entry it took from what it was handed.
    taken: InSeq,
    /// Whether it has said anything. Until then nobody knows whether it has even begun to read.
    spoken: bool,
    /// The entry after which more were asked for and have not come yet.
    asked: Option<InSeq>,
}

/// A publication and who waits for it; nobody for covers of our own.
#[derive(Debug)]
struct Said {
    ticket: Option<Ticket>,
    publication: Box<Publication>,
}

/// Who waits for which part of an append.
#[derive(Debug)]
struct Receipt {
    ticket: Option<Ticket>,
    first: Seq,
    last: Seq,
}

impl AgentSide {
    /// What is said next, if it can go with what is in the append so far. What has a key goes alone,
    /// so that the store's answer, which may be that of another time, is its own.
    fn next_said(&mut self) -> Option<Said> {
        let has_key = self.waiting.front()?.publication.key.is_some();
        if has_key && !self.in_flight.is_empty() {
            return None;
        }
        let said = self.waiting.pop_front()?;
        self.waiting_bytes -= said.publication.bytes();
        Some(said)
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < limits::WAITING_PUBLICATIONS
            && self.waiting_bytes < limits::WAITING_PUBLICATION_BYTES
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty() || !self.waiting.is_empty()
    }

    pub(super) fn accepts(&self) -> bool {
        self.term.is_some() && self.has_room()
    }

    /// The entry after which the agent wants more, if it wants any and none are on their way.
    pub(super) fn wants_entries(&mut self, in_head: InSeq) -> Option<InSeq> {
        let running = self.running.as_mut()?;
        if running.asked.is_some() || running.handed >= in_head {
            return None;
        }
        running.asked = Some(running.handed);
        running.asked
    }

    pub(super) fn expects_entries(&mut self, after: InSeq) -> bool {
        match &mut self.running {
            Some(running) if running.asked == Some(after) => {
                running.asked = None;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn hand(&mut self, last: InSeq) {
        if let Some(running) = &mut self.running {
            running.handed = running.handed.max(last);
        }
    }

    /// Whether the agent can be handed this entry now: it is the next one, and none is on its way.
    pub(super) fn hand_next(&mut self, in_seq: InSeq) -> bool {
        match &mut self.running {
            Some(running) if running.asked.is_none() && running.handed.next() == in_seq => {
                running.handed = in_seq;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The last entry that was taken by an agent that covers entries by taking the next.
    fn taken_unnamed(&self) -> Option<InSeq> {
        let unnamed = |running: &&Running| running.covering == Covering::Unknown;
        self.running.as_ref().filter(unnamed).map(|running| running.taken)
    }
}

impl Worker {
    pub(super) fn on_leased(&mut self, term: Term) {
        self.record.term = term;
        self.agent.term = Some(term);
    }

    pub(super) fn on_agent_ready(&mut self, covering: Covering) {
        let covering = if self.record.named { Covering::Named } else { covering };
        let handed = self.record.covered;
        self.agent.running =
            Some(Running { covering, handed, taken: handed, spoken: false, asked: None });
        self.ask_for_entries();
    }

    pub(super) fn on_took(&mut self, in_seq: InSeq, now: Timestamp) {
        let Some(running) = &mut self.agent.running else { return };
        running.taken = running.taken.max(in_seq);
        self.cover_taken(now);
    }

    /// An agent that never says what it has dealt with gets only the newest again after a crash, so
    /// everything before that one is covered by taking it. For one that has said nothing yet that waits:
    /// a child whose pipe was filled before it was awake, and that would have named its entries, has
    /// taken nothing. Of one that stays silent only the last few are kept.
    fn cover_taken(&mut self, now: Timestamp) {
        let Some(running) = &self.agent.running else { return };
        let kept = if running.spoken { 1 } else { limits::TAKEN_IN_SILENCE };
        if running.covering == Covering::Unknown {
            self.cover_unnamed(InSeq::new(running.taken.get().saturating_sub(kept)), now);
        }
    }

    /// It has been silent for so long that what it took counts as dealt with; one that says itself
    /// what it has dealt with is believed.
    pub(super) fn on_agent_idle(&mut self, now: Timestamp) {
        if let Some(taken) = self.agent.taken_unnamed() {
            self.cover_unnamed(taken, now);
        }
    }

    fn cover_unnamed(&mut self, in_seq: InSeq, now: Timestamp) {
        if in_seq > self.record.covered {
            self.cover(in_seq, now);
        }
    }

    /// What there is to do for the agent.
    pub fn workload(&self) -> Workload {
        match self.agent.taken_unnamed() {
            _ if !self.record.has_work() => Workload::Nothing,
            Some(taken) if taken >= self.record.in_head => Workload::Unsure,
            Some(_) | None => Workload::Waiting,
        }
    }

    /// What it said before is on its way still: the store will say what became of it.
    pub(super) fn on_agent_gone(&mut self) {
        self.agent.running = None;
    }

    pub(super) fn on_publish(
        &mut self,
        ticket: Ticket,
        publication: Box<Publication>,
        now: Timestamp,
    ) {
        let refused = match self.agent.term {
            None => Some(PublishRefused::NoLease),
            Some(_) if !self.agent.has_room() => {
                Some(PublishRefused::Busy(self.agent.waiting.len()))
            }
            Some(_) => None,
        };
        if let Some(refused) = refused {
            return self.emit(WorkerOutput::Published { ticket, result: Err(refused) });
        }
        if let Some(running) = &mut self.agent.running {
            running.spoken = true;
            if publication.names_entries() {
                running.covering = Covering::Named;
            }
        }
        self.say(Some(ticket), publication, now);
        self.cover_taken(now);
    }

    /// Covers entries without an event or a state.
    fn cover(&mut self, in_seq: InSeq, now: Timestamp) {
        let publication = Publication { in_seq: Some(in_seq), ..Publication::default() };
        self.say(None, Box::new(publication), now);
    }

    fn say(&mut self, ticket: Option<Ticket>, publication: Box<Publication>, now: Timestamp) {
        self.agent.waiting_bytes += publication.bytes();
        self.agent.waiting.push_back(Said { ticket, publication });
        self.append_waiting(now);
    }

    /// Sends what waits to the store as one append, unless one is on its way.
    fn append_waiting(&mut self, now: Timestamp) {
        let Some(term) = self.agent.term else { return };
        if !self.agent.in_flight.is_empty() || self.agent.waiting.is_empty() {
            return;
        }
        let first = self.record.head.next();
        let events = Vec::with_capacity(self.agent.waiting.len());
        let (snapshot, covers, answered, named, key) = (None, None, Vec::new(), false, None);
        let mut append =
            Append { term, first, events, snapshot, covers, answered, named, key, now };
        let mut bytes = 0;
        self.agent.in_flight.reserve(self.agent.waiting.len());
        while bytes < limits::APPEND_BYTES
            && append.snapshot.is_none() // a state stands for the position right after its events
            && append.key.is_none()
            && let Some(Said { ticket, publication }) = self.agent.next_said()
        {
            let publication = *publication;
            let begin = first.plus(append.events.len() as u64);
            append.named |= ticket.is_some() && publication.names_entries();
            bytes += publication.events.iter().map(|body| body.len()).sum::<usize>();
            let events = publication.events.into_iter();
            let weigh = if publication.results { Weight::result } else { Weight::passing };
            let events = events.map(EventBody::into_body);
            append.events.extend(events.map(|body| NewEvent { weight: weigh(body.len()), body }));
            append.snapshot = publication.state.map(|body| NewSnapshot { size: size(&body), body });
            append.covers = append.covers.max(publication.in_seq);
            append.answered.extend(publication.answered);
            append.key = publication.key;
            let last = first.plus(append.events.len() as u64).previous();
            self.agent.in_flight.push(Receipt { ticket, first: begin, last });
        }
        self.emit(WorkerOutput::Append(Box::new(append)));
    }

    pub(super) fn on_appended(&mut self, answer: Result<Appended, AppendRefused>, now: Timestamp) {
        let receipts = std::mem::take(&mut self.agent.in_flight);
        match answer {
            Ok(appended) => {
                self.moved_on(appended);
                let before = appended.before;
                for Receipt { ticket, first, last } in receipts {
                    let (first, last) = before.map_or((first, last), |was| (was.first, was.last));
                    self.answer(ticket, Ok(Published { first, last }));
                }
                self.append_waiting(now);
            }
            // The fault of whoever said it: everybody else goes on.
            Err(refused @ (AppendRefused::OtherContent { .. } | AppendRefused::OverBound(_))) => {
                for Receipt { ticket, .. } in receipts {
                    self.answer(ticket, Err(refused.clone().into()));
                }
                self.append_waiting(now);
            }
            Err(refused) => {
                let refused = PublishRefused::Refused(refused);
                for Receipt { ticket, .. } in receipts {
                    self.answer(ticket, Err(refused.clone()));
                }
                self.refuse_waiting(&refused);
                // Another process writes now, or the session is over.
                self.agent.term = None;
                self.agent.running = None;
                self.emit(WorkerOutput::StopAgent);
            }
        }
    }

    /// The store has more than before.
    fn moved_on(&mut self, appended: Appended) {
        let had_work = self.record.has_work();
        self.record.head = self.record.head.max(appended.head);
        self.record.covered = self.record.covered.max(appended.covered);
        self.record.named |= appended.named;
        self.record.snapshot = appended.snapshot.or(self.record.snapshot);
        if had_work && !self.record.has_work() && !self.is_over {
            self.emit(WorkerOutput::WorkDone);
        }
    }

    fn refuse_waiting(&mut self, refused: &PublishRefused) {
        self.agent.waiting_bytes = 0;
        for Said { ticket, .. } in std::mem::take(&mut self.agent.waiting) {
            self.answer(ticket, Err(refused.clone()));
        }
    }

    fn answer(&mut self, ticket: Option<Ticket>, result: Result<Published, PublishRefused>) {
        if let Some(ticket) = ticket {
            self.emit(WorkerOutput::Published { ticket, result });
        }
    }
}

fn size(body: &Body) -> u32 {
    u32::try_from(body.len()).unwrap_or(u32::MAX)
}
