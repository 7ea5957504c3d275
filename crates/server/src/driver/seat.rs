//! Looking after the agent's side of a session: the lease, and the agent that works under it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::page::StoredEntry;
use rejoin_core::record::Ending;
use rejoin_core::session::{Covering, Input, Publication, PublishRefused, Ticket};
use rejoin_core::state::{AppendRefused, LeaseHeld, TakeLease};
use rejoin_core::{Term, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::{Command, Done, Driver};
use crate::agent::{Seat, Start, WAITING_ENTRIES};
use crate::shared::Shared;

/// How long the lease lasts where several processes share a store.
const LEASE: Duration = Duration::from_secs(60);

/// An agent that ended with work left is started again after this long, and a lease that somebody
/// else has is asked for again.
const BEFORE_RESTART: Duration = Duration::from_secs(1);

/// How long an agent may go on that nobody needs any more.
const LAST_WORDS: Duration = Duration::from_secs(10);

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
    /// The agents that sat here so far. What an earlier one left in the queue is not published: its
    /// successor is doing the same work again.
    sittings: u64,
    /// The agent returned by itself: it is started for work, not for company.
    rests: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Lease {
    None,
    Asked,
    Held(Term),
}

/// What the store answers to who wants the lease.
pub(super) enum Leased {
    /// This process has it, under this term.
    Here(Term),
    /// Another process has it.
    Elsewhere,
    /// There is nothing to run any more.
    Over(Ending),
}

enum Occupant {
    None,
    Starting,
    Running(Running),
}

struct Running {
    task: JoinHandle<()>,
    /// Its queue; none once it was told to stop.
    entries: Option<mpsc::Sender<StoredEntry>>,
    /// Entries that the agent's queue had no room for.
    waiting: VecDeque<StoredEntry>,
    /// When it is aborted if it has not stopped by itself.
    last_word_by: Option<Timestamp>,
}

impl Running {
    /// It sees the end of its queue, and ends.
    fn let_go(&mut self, now: Timestamp) {
        if self.entries.take().is_some() {
            self.waiting.clear();
            self.last_word_by = Some(now + LAST_WORDS);
        }
    }

    fn abort_if_overdue(&mut self, now: Timestamp) {
        if self.last_word_by.is_some_and(|by| by <= now) {
            self.last_word_by = None;
            self.task.abort();
        }
    }
}

/// However a driver ends, its agent ends too.
impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SeatKeeper {
    pub(super) fn new(handle: mpsc::Sender<Command>) -> Self {
        Self {
            handle,
            lease: Lease::None,
            agent: Occupant::None,
            early: Vec::new(),
            not_before: None,
            sittings: 0,
            rests: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.agent, Occupant::None) && self.early.is_empty()
    }

    pub(super) fn is_leased(&self) -> bool {
        matches!(self.lease, Lease::Held(_))
    }

    pub(super) fn early_publications(&self) -> usize {
        self.early.len()
    }

    /// When the seat must be looked after next; never a time that has passed.
    pub(super) fn deadlines(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let overdue = match &self.agent {
            Occupant::Running(agent) => agent.last_word_by,
            Occupant::None | Occupant::Starting => None,
        };
        self.not_before.into_iter().chain(overdue).filter(move |at| *at > now)
    }

    /// Hands entries over; what its queue has no room for follows when there is some.
    pub(super) fn hand(&mut self, entries: Vec<StoredEntry>) {
        if let Occupant::Running(agent) = &mut self.agent
            && agent.entries.is_some()
        {
            agent.waiting.extend(entries);
        }
    }

    /// Another process has taken over, or the session is over.
    pub(super) fn stop(&mut self) {
        if self.is_leased() {
            self.lease = Lease::None;
        }
        self.dismiss();
    }

    /// The agent ends wherever it is.
    pub(super) fn dismiss(&mut self) {
        if let Occupant::Running(agent) = &mut self.agent {
            agent.entries = None;
            agent.task.abort();
        }
    }

    /// Waits until the agent has ended, handing it what waits meanwhile; never if there is none.
    /// Nothing is lost if it is dropped: an entry leaves `waiting` in the moment it is sent.
    pub(super) async fn ended(&mut self) -> Result<(), JoinError> {
        let Occupant::Running(agent) = &mut self.agent else {
            return std::future::pending().await;
        };
        while let (Some(entries), false) = (&agent.entries, agent.waiting.is_empty()) {
            tokio::select! {
                end = &mut agent.task => return end,
                room = entries.reserve() => match room {
                    Ok(room) => agent.waiting.pop_front().map_or((), |entry| room.send(entry)),
                    Err(_) => agent.waiting.clear(), // it has dropped its seat
                },
            }
        }
        (&mut agent.task).await
    }
}

impl Driver {
    /// Starts the agent if there is something to do and it is not there; lets it go if there is not.
    pub(super) fn look_after_agent(&mut self) {
        if self.shared.agent.is_none() {
            return;
        }
        let now = self.shared.clock.now();
        let work = self.has_work_here();
        let company = !self.session.is_over() && !self.outlets.is_empty();
        let paused = self.seat.not_before.is_some_and(|at| at > now);
        let may_start = (work || (company && !self.seat.rests)) && !paused;
        let settled = !self.session.awaits_store();
        match (&mut self.seat.agent, self.seat.lease) {
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
            (Occupant::Running(agent), _) => {
                if !work && !company && settled {
                    agent.let_go(now);
                }
                agent.abort_if_overdue(now);
            }
            (Occupant::None | Occupant::Starting, _) => {}
        }
    }

    /// Gives the lease back, so that another process need not wait for it to run out; says whether
    /// there was one.
    pub(super) fn give_up_lease(&mut self) -> bool {
        let Lease::Held(term) = self.seat.lease else { return false };
        if self.session.awaits_store() {
            return false;
        }
        self.seat.lease = Lease::None;
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        self.agent_lane.push(async move {
            match shared.store.give_up_lease(&id, term).await {
                Ok(()) => Done::Nothing,
                Err(unavailable) => Done::Failed(unavailable),
            }
        });
        true
    }

    fn take_lease(&mut self) {
        self.seat.lease = Lease::Asked;
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        self.agent_lane.push(async move {
            let holder = shared.process.clone();
            let take = TakeLease { holder, lasts: LEASE, now: shared.clock.now() };
            match shared.store.take_lease(&id, take).await {
                Ok(term) => Done::Leased(Leased::Here(term)),
                Err(Failure::Refused(LeaseHeld::ByOther(_))) => Done::Leased(Leased::Elsewhere),
                Err(Failure::Refused(LeaseHeld::Ended(how))) => Done::Leased(Leased::Over(how)),
                Err(Failure::NotFound) => Done::Leased(Leased::Over(Ending::Closed)),
                Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable),
            }
        });
    }

    /// The store has answered who has the lease.
    pub(super) fn leased(&mut self, leased: Leased) {
        let early = std::mem::take(&mut self.seat.early);
        let refused = match leased {
            Leased::Here(term) => {
                self.seat.lease = Lease::Held(term);
                self.handle(Input::Leased { term });
                for (ticket, publication) in early {
                    self.handle(Input::Publish { ticket, publication });
                }
                return;
            }
            Leased::Elsewhere => {
                self.seat.not_before = Some(self.shared.clock.now() + BEFORE_RESTART);
                PublishRefused::NoLease
            }
            Leased::Over(how) => {
                self.handle(Input::Ended { by: None });
                PublishRefused::Refused(AppendRefused::Ended(how))
            }
        };
        self.seat.lease = Lease::None;
        for (ticket, _) in early {
            self.published(ticket, Err(refused.clone()));
        }
    }

    /// Everything the agent goes on from has been read: it begins, unless it was stopped meanwhile.
    pub(super) fn start_agent(&mut self, start: Option<Box<Start>>) {
        self.seat.agent = Occupant::None;
        let (Some(start), Some(agent)) = (start, self.shared.agent.clone()) else { return };
        if self.seat.lease != Lease::Held(start.term) || self.session.is_over() {
            return;
        }
        self.seat.sittings += 1;
        let (sitting, driver) = (self.seat.sittings, self.seat.handle.clone());
        let (entries, queue) = mpsc::channel(WAITING_ENTRIES);
        let seat = Seat { start: *start, entries: queue, driver, sitting };
        let task = tokio::spawn(async move { agent.run(seat).await });
        let (entries, waiting) = (Some(entries), VecDeque::new());
        self.seat.agent = Occupant::Running(Running { task, entries, waiting, last_word_by: None });
        (self.seat.not_before, self.seat.rests) = (None, false);
        self.handle(Input::AgentReady { covering: Covering::Named });
    }

    pub(super) fn agent_ended(&mut self, end: Result<(), JoinError>) -> Done {
        let ended = std::mem::replace(&mut self.seat.agent, Occupant::None);
        let was_let_go = matches!(&ended, Occupant::Running(a) if a.last_word_by.is_some());
        self.seat.rests = end.is_ok() && !was_let_go;
        if end.is_err_and(|error| error.is_panic()) {
            tracing::error!(session = %self.id, "the agent panicked");
        }
        if !was_let_go {
            self.seat.not_before = Some(self.shared.clock.now() + BEFORE_RESTART);
        }
        Done::Happened(Input::AgentGone)
    }

    /// Publishes under the lease, which is taken first if this process does not have it. What an
    /// agent says that sits here no longer is refused.
    pub(super) fn publish(
        &mut self,
        ticket: Ticket,
        sitting: Option<u64>,
        publication: Box<Publication>,
    ) -> Done {
        let seated = matches!(self.seat.agent, Occupant::Running(_)) && self.seat.is_leased();
        if sitting.is_some_and(|sitting| sitting != self.seat.sittings || !seated) {
            self.published(ticket, Err(PublishRefused::NoLease));
            return Done::Nothing;
        }
        if self.seat.is_leased() {
            return Done::Happened(Input::Publish { ticket, publication });
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
