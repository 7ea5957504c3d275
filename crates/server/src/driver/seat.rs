//! Looking after the agent's side of a session: the lease, and the agent that works under it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::page::StoredEntry;
use rejoin_core::session::{Covering, Input, Publication, PublishRefused, Ticket};
use rejoin_core::state::TakeLease;
use rejoin_core::{Term, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Command, Done, Driver};
use crate::agent::{Seat, Start, WAITING_ENTRIES};
use crate::sessions::Shared;

/// How long the lease lasts where several processes share a store.
const LEASE: Duration = Duration::from_secs(60);

/// An agent that ended with work left is started again after this long.
const BEFORE_RESTART: Duration = Duration::from_secs(1);

/// The agent's side of one session in this process.
pub(super) struct SeatKeeper {
    /// How the agent reaches the driver; weak, so that an idle agent keeps no driver.
    handle: mpsc::WeakSender<Command>,
    lease: Lease,
    agent: Occupant,
    /// Publications that came before the lease did.
    early: Vec<(Ticket, Box<Publication>)>,
    /// When an agent may be started again.
    not_before: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq)]
enum Lease {
    None,
    Asked,
    Held(Term),
}

enum Occupant {
    None,
    Starting,
    Running(Running),
}

struct Running {
    task: JoinHandle<()>,
    entries: mpsc::Sender<StoredEntry>,
    /// Entries that the agent's queue had no room for.
    waiting: VecDeque<StoredEntry>,
}

impl SeatKeeper {
    pub(super) fn new(handle: mpsc::WeakSender<Command>) -> Self {
        Self {
            handle,
            lease: Lease::None,
            agent: Occupant::None,
            early: Vec::new(),
            not_before: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.agent, Occupant::None) && self.early.is_empty()
    }

    pub(super) fn is_leased(&self) -> bool {
        matches!(self.lease, Lease::Held(_))
    }

    /// When an agent may be started, if not at once.
    pub(super) fn pause_ends(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before.filter(|at| *at > now)
    }

    /// Hands entries over; what its queue has no room for follows when there is some.
    pub(super) fn hand(&mut self, entries: Vec<StoredEntry>) {
        if let Occupant::Running(agent) = &mut self.agent {
            agent.waiting.extend(entries);
        }
    }

    /// Another process has taken over, or the session is over.
    pub(super) fn stop(&mut self) {
        self.lease = Lease::None;
        if let Occupant::Running(agent) = &self.agent {
            agent.task.abort();
        }
    }

    /// Waits until the agent has ended, handing it what waits meanwhile; never if there is none.
    pub(super) async fn ended(&mut self) -> Result<(), tokio::task::JoinError> {
        let Occupant::Running(agent) = &mut self.agent else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                end = &mut agent.task => return end,
                room = agent.entries.reserve(), if !agent.waiting.is_empty() => match room {
                    Ok(room) => agent.waiting.pop_front().map_or((), |entry| room.send(entry)),
                    Err(_) => agent.waiting.clear(),
                },
            }
        }
    }
}

impl Driver {
    /// Starts the agent if there is something to do and it is not there; lets it go if there is not.
    pub(super) fn look_after_agent(&mut self) {
        if self.shared.agent.is_none() {
            return;
        }
        let record = self.session.record();
        let wanted = !self.session.is_over() && (record.has_work() || !self.outlets.is_empty());
        let settled = !self.session.awaits_store();
        let may_start = self.seat.pause_ends(self.shared.clock.now()).is_none();
        match (&mut self.seat.agent, self.seat.lease) {
            (Occupant::None, Lease::None) if wanted => self.take_lease(),
            (Occupant::None, Lease::Held(term)) if wanted && settled && may_start => {
                self.seat.agent = Occupant::Starting;
                let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
                self.agent_lane.push(async move {
                    match start_of(&shared, &id, term).await {
                        Ok(start) => Done::Start(start.map(Box::new)),
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                });
            }
            (Occupant::Running(agent), _) if !wanted && settled => {
                // It sees the end of its queue, and ends.
                let (closed, _) = mpsc::channel(1);
                agent.entries = closed;
                agent.waiting.clear();
            }
            (Occupant::None | Occupant::Starting | Occupant::Running(_), _) => {}
        }
    }

    fn take_lease(&mut self) {
        self.seat.lease = Lease::Asked;
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        self.agent_lane.push(async move {
            let holder = shared.process.clone();
            let take = TakeLease { holder, lasts: LEASE, now: shared.clock.now() };
            match shared.store.take_lease(&id, take).await {
                Ok(term) => Done::Leased(Some(term)),
                Err(Failure::Refused(_) | Failure::NotFound) => Done::Leased(None),
                Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable),
            }
        });
    }

    /// The store has answered who has the lease.
    pub(super) fn leased(&mut self, term: Option<Term>) {
        let early = std::mem::take(&mut self.seat.early);
        match term {
            Some(term) => {
                self.seat.lease = Lease::Held(term);
                self.handle(Input::Leased { term });
                for (ticket, publication) in early {
                    self.handle(Input::Publish { ticket, publication });
                }
            }
            None => {
                self.seat.lease = Lease::None;
                self.seat.not_before = Some(self.shared.clock.now() + BEFORE_RESTART);
                for (ticket, _) in early {
                    self.published(ticket, Err(PublishRefused::NoLease));
                }
            }
        }
    }

    /// Everything the agent goes on from has been read: it begins.
    pub(super) fn start_agent(&mut self, start: Option<Box<Start>>) {
        self.seat.agent = Occupant::None;
        let (Some(start), Some(agent)) = (start, self.shared.agent.clone()) else { return };
        let (entries, queue) = mpsc::channel(WAITING_ENTRIES);
        let seat = Seat { start: *start, entries: queue, driver: self.seat.handle.clone() };
        let task = tokio::spawn(async move { agent.run(seat).await });
        self.seat.agent = Occupant::Running(Running { task, entries, waiting: VecDeque::new() });
        self.seat.not_before = None;
        self.handle(Input::AgentReady { covering: Covering::Named });
    }

    pub(super) fn agent_ended(&mut self, end: Result<(), tokio::task::JoinError>) -> Done {
        if end.is_err_and(|error| error.is_panic()) {
            tracing::error!(session = %self.id, "the agent panicked");
        }
        self.seat.agent = Occupant::None;
        self.seat.not_before = Some(self.shared.clock.now() + BEFORE_RESTART);
        Done::Happened(Input::AgentGone)
    }

    /// Publishes under the lease, which is taken first if this process does not have it.
    pub(super) fn publish(&mut self, ticket: Ticket, publication: Box<Publication>) -> Done {
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
