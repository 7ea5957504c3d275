//! The task behind a session that an agent works for, or somebody publishes to. It owns the state machine, feeds it what
//! happens and carries out what it says. It ends when nothing is left to do, and the session goes on as a row in the
//! store; or when the store fails; or when the server stops. [`crate::tasks`] awaits it.

mod carry_out;
mod seat;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::limits::WAITING_PUBLICATIONS;
use rejoin_core::page::StoredEntry;
use rejoin_core::record::Record;
use rejoin_core::worker::{Publication, Published, Ticket, Worker, WorkerInput};
use rejoin_core::{InSeq, SessionId, Timestamp};
use rejoin_store::Unavailable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;

use self::seat::{Leased, SeatKeeper};
use crate::agent::{Agent, Start};
use crate::error::PublishError;
use crate::lane::{Lane, Pool};
use crate::metrics::Counted;
use crate::shared::Shared;
use crate::tasks::Owned;
use crate::timeline::Death;

/// Commands that may wait for a driver; beyond that whoever asks waits.
pub(crate) const WAITING_COMMANDS: usize = 256;

/// Commands that are taken in one after the other, before anything else gets a look.
const COMMANDS_AT_ONCE: usize = 64;

/// How long a driver without a deadline sleeps.
const FAR_OFF: Duration = Duration::from_secs(3600);

/// Where somebody waits for what became of something.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What a driver is asked to do. Small, because an idle session's queue has room for 32 of them.
pub(crate) enum Command {
    /// Look at the session again: a client has come or gone, or it has ended.
    Look,
    /// A message is on its way to the store. Its number is told as soon as that is settled.
    Entering(Box<(oneshot::Receiver<InSeq>, StoredEntry)>),
    /// The store has the message with this number.
    Entered(InSeq),
    /// End the agent wherever it is and start another; says whether there was one.
    Restart { reply: oneshot::Sender<bool> },
    /// Publish.
    Publish(Utterance),
}

/// What is to be published.
pub(crate) struct Utterance {
    pub(crate) publication: Box<Publication>,
    /// The agent that says it; none for a backend that speaks from outside.
    pub(crate) sitting: Option<u64>,
    pub(crate) reply: Reply<Published, PublishError>,
}

/// What the answer to a call of the store means.
enum Done {
    /// This is what happened.
    Happened(WorkerInput),
    /// The store has answered who has the lease.
    Leased(Leased),
    /// Everything the agent goes on from; nothing if the session is gone.
    Start(Option<Box<Start>>),
    /// Nothing that matters here.
    Nothing,
    /// The store does not work any more.
    Failed(Unavailable),
}

/// Drives a session until it is idle, its store fails or the server stops.
pub(crate) async fn drive(
    owned: Owned,
    shared: Arc<Shared>,
    id: SessionId,
    commands: mpsc::Receiver<Command>,
    handle: mpsc::Sender<Command>,
) {
    // Forgotten last, when the queue is closed; also if something below panics.
    let registered = Registered { shared, id };
    if let Some(driver) = begin(owned, &registered, commands, handle).await {
        driver.run().await;
    }
}

/// Apart from the rest, so that a live session has no room for what only its beginning needs.
async fn begin(
    owned: Owned,
    registered: &Registered,
    commands: mpsc::Receiver<Command>,
    handle: mpsc::Sender<Command>,
) -> Option<Box<Driver>> {
    let Registered { shared, id } = registered;
    // Read only now that nobody else in this process can change the session: what a caller has read
    // before may be older than what the driver before us did.
    match shared.store.session(id).await {
        Ok(Some(record)) => Some(Driver::new(owned, Arc::clone(shared), record, commands, handle)),
        Ok(None) => None,
        Err(unavailable) => {
            not_served(id, &unavailable);
            None
        }
    }
}

struct Registered {
    shared: Arc<Shared>,
    id: SessionId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.drivers.forget(&self.id);
    }
}

/// Whoever waits learns it by the dropped reply.
fn not_served(id: &SessionId, unavailable: &Unavailable) {
    tracing::error!(session = %id, %unavailable, "a session is not served any more");
}

struct Driver {
    id: SessionId,
    owned: Owned,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    worker: Worker,
    commands: mpsc::Receiver<Command>,
    /// Who waits for a publication, in the order of their tickets, which is nearly always that of the
    /// answers.
    publishing: VecDeque<(Ticket, Reply<Published, PublishError>)>,
    last_ticket: u64,
    /// The time when something last happened: what is taken in at once happened at the same time.
    now: Timestamp,
    /// What becomes of the session when its work is done.
    policy_lane: Lane<Done>,
    /// Writes of the agent's side, in order.
    agent_lane: Lane<Done>,
    /// Reads, in any order.
    reads: Pool<Done>,
    /// Whether the session is to be looked at, and whether that is under way.
    look: Looking,
    seat: SeatKeeper,
    /// While there is something that a stop would interrupt.
    at_work: Counted,
}

/// A look at the session: one at a time, so that no older one comes after a newer one.
#[derive(Default)]
struct Looking {
    wanted: bool,
    under_way: bool,
}

impl Driver {
    fn new(
        owned: Owned,
        shared: Arc<Shared>,
        record: Record,
        commands: mpsc::Receiver<Command>,
        handle: mpsc::Sender<Command>,
    ) -> Box<Self> {
        let now = shared.clock.now();
        let at_work = Counted::by(&shared.metrics.working);
        Box::new(Self {
            id: record.id().clone(),
            owned,
            stop: shared.stop.subscribe(),
            worker: Worker::new(record),
            shared,
            commands,
            publishing: VecDeque::new(),
            last_ticket: 0,
            now,
            policy_lane: Lane::new(),
            agent_lane: Lane::new(),
            reads: Pool::new(),
            look: Looking::default(),
            seat: SeatKeeper::new(handle),
            at_work,
        })
    }

    /// In a box, because a task has room for an argument twice.
    async fn run(mut self: Box<Self>) {
        let end = loop {
            self.look_if_wanted();
            self.carry_out_all();
            self.look_after_agent();
            let at_work = self.has_work_here() && !self.seat.has_given_up();
            self.at_work.set(at_work || self.worker.awaits_store());
            if self.shared.is_stopping() {
                break Box::pin(self.finish()).await;
            }
            if self.is_idle() && !self.give_up_lease() && self.retire() {
                return;
            }
            if let Err(unavailable) = self.step().await {
                break Err(unavailable);
            }
        };
        if let Err(unavailable) = end {
            not_served(&self.id, &unavailable);
        }
    }

    /// Waits for one thing to happen and takes it in.
    async fn step(&mut self) -> Result<(), Unavailable> {
        let now = self.shared.clock.now();
        let wake = self.seat.deadlines(now).min().unwrap_or(now + FAR_OFF);
        let wake = self.shared.clock.instant(wake);
        let takes_commands = self.takes_commands();
        let done = tokio::select! {
            biased;
            done = self.policy_lane.next() => done,
            done = self.agent_lane.next() => done,
            done = self.reads.next() => done,
            event = self.seat.event() => self.on_seat_event(event),
            () = stopped(&mut self.stop) => Done::Nothing,
            () = sleep_until(wake) => Done::Nothing,
            Some(command) = self.commands.recv(), if takes_commands => {
                self.now = self.shared.clock.now();
                return self.take_commands(command);
            }
        };
        self.now = self.shared.clock.now();
        self.take_in(done)
    }

    /// Takes in what is in the queue, some at once: waiting for each anew costs more than most of them
    /// do.
    fn take_commands(&mut self, mut command: Command) -> Result<(), Unavailable> {
        for _ in 1..COMMANDS_AT_ONCE {
            let done = self.on_command(command);
            self.take_in(done)?;
            self.carry_out_all();
            if !self.takes_commands() {
                return Ok(());
            }
            match self.commands.try_recv() {
                Ok(next) => command = next,
                Err(_) => return Ok(()),
            }
        }
        let done = self.on_command(command);
        self.take_in(done)
    }

    fn take_in(&mut self, done: Done) -> Result<(), Unavailable> {
        match done {
            Done::Happened(input) => self.handle(input),
            Done::Leased(leased) => self.leased(leased),
            Done::Start(start) => self.start_agent(start),
            Done::Nothing => {}
            Done::Failed(unavailable) => return Err(unavailable),
        }
        Ok(())
    }

    fn handle(&mut self, input: WorkerInput) {
        if matches!(input, WorkerInput::Looked(_)) {
            self.look.under_way = false;
        }
        self.worker.handle(input, self.now);
    }

    /// Asks the store how the session stands, if something may have happened to it.
    fn look_if_wanted(&mut self) {
        if self.look.under_way || !std::mem::take(&mut self.look.wanted) {
            return;
        }
        self.look.under_way = true;
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        self.reads.push(async move {
            match shared.store.session(&id).await {
                Ok(record) => Done::Happened(WorkerInput::Looked(record.map(Box::new))),
                Err(unavailable) => Done::Failed(unavailable),
            }
        });
    }

    /// The server stops: the agent is stopped, and what is on its way to the store gets there.
    async fn finish(&mut self) -> Result<(), Unavailable> {
        self.commands.close();
        while self.commands.try_recv().is_ok() {
            // Whoever waits is told that the session is not served any more.
        }
        self.carry_out_all();
        self.seat.dismiss(self.shared.clock.now());
        loop {
            self.carry_out_all();
            let now = self.shared.clock.now();
            self.seat.abort_if_overdue(now);
            let vacant = !self.seat.is_occupied();
            let leased = vacant && self.give_up_lease(); // whoever takes it next is alone at work
            let calm = self.policy_lane.is_empty() && self.agent_lane.is_empty();
            if vacant && calm && !leased {
                return Ok(());
            }
            let overdue = self.seat.deadlines(now).min().unwrap_or(now + FAR_OFF);
            let done = tokio::select! {
                done = self.policy_lane.next() => done,
                done = self.agent_lane.next() => done,
                event = self.seat.event() => self.on_seat_event(event),
                () = sleep_until(self.shared.clock.instant(overdue)) => Done::Nothing,
            };
            self.now = self.shared.clock.now();
            if !matches!(done, Done::Start(_)) {
                self.take_in(done)?;
            }
        }
    }

    fn retire(&mut self) -> bool {
        self.shared.drivers.retire(&self.id, &mut self.commands)
    }

    /// Whether there is room for what a command may bring. While there is not, commands wait in
    /// their queue and whoever sends them waits too.
    fn takes_commands(&self) -> bool {
        match self.seat.is_leased() {
            true => self.worker.accepts_publication(),
            false => self.seat.early_publications() < WAITING_PUBLICATIONS,
        }
    }

    /// Nothing is on its way, and no agent is to be there. Work keeps a driver only where there is an agent to
    /// do it; a backend that does it from outside wakes one when it speaks.
    fn is_idle(&self) -> bool {
        let calm = self.policy_lane.is_empty() && self.agent_lane.is_empty();
        let quiet = self.reads.is_empty() && !self.look.wanted && self.seat.is_empty();
        let is_wanted = self.has_work_here() || (self.has_company() && self.seat.may_sit());
        calm && quiet && !self.worker.awaits_store() && !is_wanted
    }

    /// Whether a client is there whom an agent of this process waits for.
    fn has_company(&self) -> bool {
        let here = self.agent().is_some() && !self.worker.is_over();
        here && self.worker.record().attached.is_some()
    }

    /// Whoever does the work of this session.
    fn agent(&self) -> Option<&Arc<dyn Agent>> {
        self.shared.agents.of(self.worker.record().about.kind)
    }

    /// Whether there is something to do for an agent of this process.
    fn has_work_here(&self) -> bool {
        let here = self.agent().is_some() && !self.worker.is_over();
        here && self.worker.record().has_work()
    }

    fn on_command(&mut self, command: Command) -> Done {
        match command {
            Command::Look => {
                self.look.wanted = true;
                Done::Nothing
            }
            Command::Entering(entering) => {
                let (number, entry) = *entering;
                self.reads.push(async move {
                    match number.await {
                        Ok(in_seq) => {
                            let entry = StoredEntry { in_seq, ..entry };
                            Done::Happened(WorkerInput::Entering(entry))
                        }
                        Err(_) => Done::Nothing, // the store says it all at once
                    }
                });
                Done::Nothing
            }
            Command::Entered(in_seq) => Done::Happened(WorkerInput::Entered { in_seq }),
            Command::Restart { reply } => {
                let restarted = self.seat.restart();
                if restarted {
                    self.note_death(Death::silent("it was ended by /restart"));
                }
                let _ = reply.send(restarted);
                Done::Nothing
            }
            Command::Publish(utterance) => {
                let Utterance { publication, sitting, reply } = utterance;
                let ticket = self.next_ticket();
                self.publishing.push_back((ticket, reply));
                self.publish(ticket, sitting, publication)
            }
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = stop.wait_for(|stop| *stop).await;
}
