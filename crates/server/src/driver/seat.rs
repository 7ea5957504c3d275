//! Looking after the agent's side of a session: the lease, and the agent that works under it.

mod deaths;
mod in_hand;
mod lease;
mod occupant;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rejoin_core::page::StoredEntry;
use rejoin_core::record::Kind;
use rejoin_core::worker::{Covering, Publication, PublishRefused, Ticket, WorkerInput, Workload};
use rejoin_core::{Generation, InSeq, Term, Timestamp};
use rejoin_store::Unavailable;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;

use self::deaths::{AfterDeath, Deaths, agent_failed};
use self::in_hand::{InHand, Progress};
use self::lease::Lease;
pub(super) use self::lease::Leased;
pub(super) use self::occupant::SeatEvent;
use self::occupant::{Occupant, Running};
use super::{Command, Done, Driver};
use crate::agent::{Inbox, Orders, Seat, Start, Voice, WAITING_ENTRIES};
use crate::shared::Shared;
use crate::timeline::Death;

/// How soon an agent is looked at again that is at work on something that no entry stands for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The agent's side of one session in this process.
pub(super) struct SeatKeeper {
    /// How the agent reaches the driver.
    handle: mpsc::Sender<Command>,
    lease: Lease,
    agent: Occupant,
    /// Publications that came before the lease did.
    early: Vec<(Ticket, Box<Publication>)>,
    /// When an agent may be started again.
    not_before: Option<Timestamp>,
    /// When it must be seen whether the agent is idle, or to be let go.
    look_at: Option<Timestamp>,
    /// Since when no client is attached.
    alone_since: Option<Timestamp>,
    /// The agents that sat here so far. What an earlier one left in the queue is not published: its
    /// successor is doing the same work again.
    sittings: u64,
    /// The agent returned by itself, or was let go in company: it is started for work only.
    rests: bool,
    deaths: Deaths,
    /// The last agent died.
    died: bool,
    /// The agent died too often.
    given_up: Option<GivenUp>,
    /// The store has refused something because the session is over.
    over: bool,
    /// What the agent is at work on.
    in_hand: InHand,
}

/// When the attempts to start an agent ended: whoever comes after that begins them anew.
struct GivenUp {
    in_head: InSeq,
    generation: Generation,
    /// Whether the out log says so.
    told: bool,
}

impl SeatKeeper {
    pub(super) fn new(handle: mpsc::Sender<Command>) -> Self {
        Self {
            handle,
            lease: Lease::None,
            agent: Occupant::None,
            early: Vec::new(),
            not_before: None,
            look_at: None,
            alone_since: None,
            sittings: 0,
            rests: false,
            deaths: Deaths::default(),
            died: false,
            given_up: None,
            over: false,
            in_hand: InHand::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.agent, Occupant::None) && self.early.is_empty()
    }

    /// Whether an agent sits here as long as a client is there.
    pub(super) fn may_sit(&self) -> bool {
        !self.rests && self.given_up.is_none()
    }

    /// Whether the agent died too often, and nobody has come since.
    pub(super) fn has_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    pub(super) fn is_leased(&self) -> bool {
        matches!(self.lease, Lease::Held(_))
    }

    pub(super) fn early_publications(&self) -> usize {
        self.early.len()
    }

    /// Whether an agent sits here, or is on its way out.
    pub(super) fn is_occupied(&self) -> bool {
        matches!(self.agent, Occupant::Running(_))
    }

    /// When the seat must be looked after next; never a time that has passed.
    pub(super) fn deadlines(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let overdue = match &self.agent {
            Occupant::Running(agent) if !agent.task.is_finished() => agent.last_word_by,
            Occupant::Running(_) | Occupant::None | Occupant::Starting => None,
        };
        let all = self.not_before.into_iter().chain(self.look_at).chain(overdue);
        all.filter(move |at| *at > now)
    }

    /// Notes what the agent will be at work on.
    pub(super) fn note_handed(&mut self, entries: &[StoredEntry]) {
        self.in_hand.hand(entries);
    }

    /// Hands entries over; what its queue has no room for follows when there is some.
    pub(super) fn hand(&mut self, entries: Vec<StoredEntry>) {
        if let Occupant::Running(agent) = &mut self.agent
            && !agent.was_told_to_stop()
        {
            agent.waiting.extend(entries);
        }
    }

    /// The agent ends wherever it is, as a crash would end it; that somebody wanted it does not count as
    /// a death. Its successor goes on from the stored state. Says whether there was one.
    pub(super) fn restart(&mut self) -> bool {
        match &mut self.agent {
            Occupant::Running(agent) => agent.abort(),
            Occupant::None | Occupant::Starting => return false,
        }
        self.died = true;
        true
    }

    /// The session is over, or another process has taken over: then the agent ends wherever it is.
    pub(super) fn stop(&mut self, over: bool, now: Timestamp) {
        if self.is_leased() {
            self.lease = Lease::None;
        }
        let over = over || self.over;
        match &mut self.agent {
            Occupant::Running(agent) if over => agent.end(Orders::End, now),
            Occupant::Running(agent) => agent.abort(),
            Occupant::None | Occupant::Starting => {}
        }
    }

    /// The store has refused something because the session is over.
    pub(super) fn session_is_over(&mut self) {
        self.over = true;
    }

    /// The server stops.
    pub(super) fn dismiss(&mut self, now: Timestamp) {
        if let Occupant::Running(agent) = &mut self.agent {
            agent.end(Orders::Stop, now);
        }
    }

    /// Whoever was told to stop and has not, is stopped.
    pub(super) fn abort_if_overdue(&mut self, now: Timestamp) {
        if let Occupant::Running(agent) = &mut self.agent {
            agent.abort_if_overdue(now);
        }
    }

    /// Waits until something happens in the seat; never if nobody sits there.
    pub(super) async fn event(&mut self) -> SeatEvent {
        match &mut self.agent {
            Occupant::Running(agent) => agent.event().await,
            Occupant::None | Occupant::Starting => std::future::pending().await,
        }
    }
}

impl Driver {
    /// Starts the agent if there is something to do and it is not there; lets it go if there is not.
    pub(super) fn look_after_agent(&mut self) {
        if self.agent().is_none() {
            return;
        }
        let now = self.shared.clock.now();
        self.look_after_failure();
        let work = self.has_work_here();
        let company = self.has_company();
        self.seat.alone_since = (!company).then(|| self.seat.alone_since.unwrap_or(now));
        let held_back = self.seat.not_before.is_some_and(|at| at > now);
        let wanted = work || (company && !self.seat.rests);
        let may_start = wanted && !held_back && self.seat.given_up.is_none();
        let settled = !self.worker.awaits_store();
        match (&self.seat.agent, self.seat.lease) {
            (Occupant::None, Lease::None) if may_start => self.take_lease(),
            (Occupant::None, Lease::Held(term)) if may_start && settled => {
                self.seat.agent = Occupant::Starting;
                let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
                self.agent_lane.push(async move {
                    match start_of(&shared, &id, term).await {
                        Ok(start) => Done::Start(start.map(Box::new)),
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                });
            }
            (Occupant::Running(_), _) => self.look_after_running(company, now),
            (Occupant::None | Occupant::Starting, _) => {}
        }
    }

    /// Lets an agent go that has had nothing to do for long enough, and tells it how it stands.
    fn look_after_running(&mut self, company: bool, now: Timestamp) {
        self.seat.look_at = None;
        let Occupant::Running(agent) = &mut self.seat.agent else { return };
        agent.abort_if_overdue(now);
        if self.worker.awaits_store() || agent.was_told_to_stop() {
            return; // what it has to do is known when the store has answered
        }
        let workload = self.worker.workload();
        if agent.is_busy() {
            self.seat.look_at = Some(now + LOOK_AGAIN);
            return agent.order(Orders::Work);
        }
        let Some(since) = agent.idle_from(workload, now) else { return agent.order(Orders::Work) };
        let kind = self.worker.record().about.kind;
        let counted = since.max(self.seat.alone_since.unwrap_or(since));
        let until = self.shared.settings.idle_ttl(kind, company).map(|ttl| counted + ttl);
        if since > now {
            agent.order(Orders::Work);
            self.seat.look_at = Some(since);
        } else if until.is_none_or(|until| until > now) {
            agent.order(Orders::Idle { since, company });
            self.seat.look_at = until;
        } else {
            agent.let_go(company, now);
            self.handle(WorkerInput::AgentIdle);
            self.carry_out_all();
        }
    }

    /// Says once that the agent has failed; forgets it when somebody new comes.
    fn look_after_failure(&mut self) {
        let record = self.worker.record();
        let Some(given_up) = &mut self.seat.given_up else { return };
        if !given_up.told && self.worker.accepts_publication() {
            given_up.told = true;
            let events = agent_failed().into_iter().collect();
            let publication = Box::new(Publication { events, ..Default::default() });
            let ticket = self.next_ticket();
            self.handle(WorkerInput::Publish { ticket, publication });
            self.carry_out_all();
        } else if record.in_head > given_up.in_head || record.generation > given_up.generation {
            self.seat.given_up = None;
            (self.seat.deaths, self.seat.rests) = (Deaths::default(), false);
        }
    }

    /// Everything the agent goes on from has been read: it begins, unless it was stopped meanwhile.
    pub(super) fn start_agent(&mut self, start: Option<Box<Start>>) {
        self.seat.agent = Occupant::None;
        let (Some(start), Some(agent)) = (start, self.agent().cloned()) else { return };
        if self.seat.lease != Lease::Held(start.term) || self.worker.is_over() {
            return;
        }
        if std::mem::take(&mut self.seat.died) {
            self.shared.agent_counts.restarts.fetch_add(1, Ordering::Relaxed);
        }
        self.seat.sittings += 1;
        self.seat.in_hand.clear();
        (self.seat.not_before, self.seat.rests) = (None, false);
        let covering = agent.covering();
        let now = self.shared.clock.now();
        let (entries, queue) = mpsc::channel(WAITING_ENTRIES);
        let (taken_sender, taken) = watch::channel(InSeq::ZERO);
        let orders = watch::Sender::new(match self.worker.record().has_work() {
            true => Orders::Work,
            false => Orders::Idle { since: now, company: true },
        });
        let resigned = Arc::new(AtomicBool::new(false));
        let (busy, child_end) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let seat = Seat {
            start: *start,
            inbox: Inbox { entries: queue, taken: taken_sender },
            voice: Voice { driver: self.seat.handle.clone(), sitting: self.seat.sittings },
            orders: orders.subscribe(),
            resigned: Arc::clone(&resigned),
            child_end: Arc::clone(&child_end),
            busy: Arc::clone(&busy),
            shared: Arc::clone(&self.shared),
        };
        let last_words = agent.last_words();
        #[expect(clippy::disallowed_methods, reason = "its driver waits for it, or aborts it")]
        let task = tokio::spawn(async move { agent.run(seat).await });
        self.seat.agent = Occupant::Running(Box::new(Running {
            last_words,
            task,
            entries: Some(entries),
            waiting: VecDeque::new(),
            taken,
            orders,
            resigned,
            child_end,
            busy,
            started: now,
            quiet_since: now,
            resting_since: None,
            last_word_by: None,
            rests: false,
        }));
        self.handle(WorkerInput::AgentReady { covering });
    }

    /// Takes in what happened in the seat.
    pub(super) fn on_seat_event(&mut self, event: SeatEvent) -> Done {
        match event {
            SeatEvent::Took(in_seq) => {
                self.agent_stirs();
                Done::Happened(WorkerInput::Took { in_seq })
            }
            SeatEvent::Ended(end) => self.agent_ended(end),
        }
    }

    fn agent_stirs(&mut self) {
        if let Occupant::Running(agent) = &mut self.seat.agent {
            agent.quiet_since = self.now;
        }
    }

    fn agent_ended(&mut self, end: Result<(), JoinError>) -> Done {
        let ended = std::mem::replace(&mut self.seat.agent, Occupant::None);
        let Occupant::Running(agent) = ended else { return Done::Nothing };
        let now = self.shared.clock.now();
        let panicked = end.as_ref().is_err_and(JoinError::is_panic);
        let by_itself = end.is_ok() && !agent.was_told_to_stop();
        let in_peace = by_itself && agent.has_resigned();
        self.seat.rests = by_itself || agent.rests;
        self.seat.look_at = None;
        let left_work = by_itself && !in_peace && self.has_work_here();
        let child = agent.child_end.get().filter(|_| by_itself);
        if panicked || left_work || child.is_some_and(|child| !child.in_order) {
            self.note_death(match child {
                Some(child) => child.death.clone(),
                None if panicked => Death::silent("it panicked"),
                None => Death::silent("it returned, with work left"),
            });
        }
        if panicked || left_work {
            self.agent_died(agent.started, now);
        }
        if in_peace && self.worker.workload() == Workload::Unsure {
            self.handle(WorkerInput::AgentIdle);
        }
        Done::Happened(WorkerInput::AgentGone)
    }

    pub(super) fn note_death(&self, death: Death) {
        self.shared.agent_died(&self.id, self.worker.record().generation, death);
    }

    fn agent_died(&mut self, started: Timestamp, now: Timestamp) {
        self.seat.died = true;
        match self.seat.deaths.count(started, now) {
            AfterDeath::StartAt(at) => self.seat.not_before = Some(at),
            AfterDeath::GiveUp => {
                tracing::error!(session = %self.id, "the agent died too often and is given up");
                self.shared.agent_counts.given_up.fetch_add(1, Ordering::Relaxed);
                let record = self.worker.record();
                let (in_head, generation) = (record.in_head, record.generation);
                self.seat.given_up = Some(GivenUp { in_head, generation, told: false });
            }
        }
    }

    /// What an agent says of an entry names that entry. An MCP session knows by other means what answers what.
    fn stamped(&mut self, publication: Box<Publication>) -> Box<Publication> {
        let record = self.worker.record();
        let Occupant::Running(agent) = &self.seat.agent else { return publication };
        if record.about.kind != Kind::Agent {
            return publication;
        }
        let covering = self.agent().map(|agent| agent.covering());
        let names_entries = record.named || covering == Some(Covering::Named);
        let progress =
            Progress { taken: *agent.taken.borrow(), covered: record.covered, names_entries };
        self.seat.in_hand.stamp(publication, progress)
    }

    /// Publishes under the lease, which is taken first if this process does not have it. What an
    /// agent says that sits here no longer is refused.
    pub(super) fn publish(
        &mut self,
        ticket: Ticket,
        sitting: Option<u64>,
        publication: Box<Publication>,
    ) -> Done {
        let seated = self.seat.is_occupied() && self.seat.is_leased();
        if sitting.is_some_and(|sitting| sitting != self.seat.sittings || !seated) {
            self.published(ticket, Err(PublishRefused::NoLease));
            return Done::Nothing;
        }
        if sitting.is_some() {
            self.agent_stirs();
        }
        let publication = self.stamped(publication);
        if self.seat.is_leased() {
            return Done::Happened(WorkerInput::Publish { ticket, publication });
        }
        self.seat.early.push((ticket, publication));
        if self.seat.lease == Lease::None {
            self.take_lease();
        }
        Done::Nothing
    }
}

/// What an agent goes on from; nothing if the session is gone.
async fn start_of(
    shared: &Shared,
    id: &rejoin_core::SessionId,
    term: Term,
) -> Result<Option<Start>, Unavailable> {
    let snapshot = shared.store.snapshot(id).await?;
    let record = shared.store.session(id).await?;
    Ok(record.map(|record| Start { record, term, snapshot }))
}
