//! The task behind a live session. It owns the state machine, feeds it what happens and carries out
//! what it says. It ends when nobody is attached and nothing is left to do, and the session goes on as
//! a row in the store; or when the store fails; or when the server stops. [`crate::tasks`] awaits it.

mod carry_out;
mod seat;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rejoin_core::codes::CloseCode;
use rejoin_core::limits::WAITING_PUBLICATIONS;
use rejoin_core::record::Record;
use rejoin_core::session::{
    AttachRequest, Input, LeaveReason, Publication, Published, Session, Ticket,
};
use rejoin_core::state::{EnterRefused, Entered};
use rejoin_core::{AttachmentId, SessionId, Timestamp};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::unconstrained;
use tokio::time::sleep_until;

use self::seat::{Leased, SeatKeeper};
use crate::agent::{Agent, Start};
use crate::attachment::{Outgoing, Told};
use crate::error::{EndError, PublishError};
use crate::lane::{Lane, Pool};
use crate::metrics::Counted;
use crate::outlet::Outlet;
use crate::shared::Shared;
use crate::tasks::Owned;
use crate::timeline::Death;

/// Commands that may wait for a driver; beyond that whoever asks waits.
pub(crate) const WAITING_COMMANDS: usize = 256;

/// Commands that are taken in one after the other, before anything else gets a look.
const COMMANDS_AT_ONCE: usize = 64;

/// Calls of the client's side that may wait for the store; beyond that no command is taken.
const WAITING_CALLS: usize = 64;

/// How long a driver without a deadline sleeps.
const FAR_OFF: Duration = Duration::from_secs(3600);

/// Where somebody waits for what became of something.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What a driver is asked to do. Small, because an idle session's queue has room for 32 of them.
pub(crate) enum Command {
    /// Attach a client, which is told things through the outlet.
    Attach(Box<(AttachRequest, Outlet<Told>)>),
    /// Take in what happened.
    Input(Box<Input>),
    /// Enter a message.
    Enter(Box<Outgoing>),
    /// End the session, because a client wants it.
    End(Box<(AttachmentId, Reply<(), EndError>)>),
    /// Cut whoever is attached off without a word; says whether anybody was.
    Cut { reply: oneshot::Sender<bool> },
    /// End the agent wherever it is and start another; says whether there was one.
    Restart { reply: oneshot::Sender<bool> },
    /// Publish.
    Publish(Box<Utterance>),
}

/// What is to be published.
pub(crate) struct Utterance {
    pub(crate) publication: Publication,
    /// The agent that says it; none for a backend that speaks from outside.
    pub(crate) sitting: Option<u64>,
    pub(crate) reply: Reply<Published, PublishError>,
}

/// What the answer to a call of the store means.
enum Done {
    /// This is what happened.
    Happened(Input),
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

/// Whoever waits learns it by the dropped reply, clients by their close; both may come back when the
/// store works again.
fn not_served(id: &SessionId, unavailable: &Unavailable) {
    tracing::error!(session = %id, %unavailable, "a session is not served any more");
}

struct Driver {
    id: SessionId,
    owned: Owned,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    session: Session,
    commands: mpsc::Receiver<Command>,
    outlets: BTreeMap<AttachmentId, Outlet<Told>>,
    entering: BTreeMap<Ticket, Reply<Entered, Failure<EnterRefused>>>,
    /// Who waits for a publication, in the order of their tickets, which is nearly always that of the
    /// answers.
    publishing: VecDeque<(Ticket, Reply<Published, PublishError>)>,
    last_ticket: u64,
    /// The time when something last happened: what is taken in at once happened at the same time.
    now: Timestamp,
    /// Writes of the client's side, in order.
    client_lane: Lane<Done>,
    /// Writes of the agent's side, in order.
    agent_lane: Lane<Done>,
    /// Reads, in any order.
    reads: Pool<Done>,
    seat: SeatKeeper,
    /// While a client is attached.
    attached: Counted,
    /// While there is something that a stop would interrupt.
    at_work: Counted,
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
        let attached = Counted::by(&shared.metrics.attached);
        let at_work = Counted::by(&shared.metrics.working);
        Box::new(Self {
            id: record.id().clone(),
            owned,
            stop: shared.stop.subscribe(),
            session: Session::new(record, Arc::clone(&shared.session_settings)),
            shared,
            commands,
            outlets: BTreeMap::new(),
            entering: BTreeMap::new(),
            publishing: VecDeque::new(),
            last_ticket: 0,
            now,
            client_lane: Lane::new(),
            agent_lane: Lane::new(),
            reads: Pool::new(),
            seat: SeatKeeper::new(handle),
            attached,
            at_work,
        })
    }

    /// In a box, because a task has room for an argument twice.
    async fn run(mut self: Box<Self>) {
        let end = loop {
            self.notice_gone();
            self.carry_out_all();
            self.look_after_agent();
            let at_work = self.has_work_here() && !self.seat.has_given_up();
            self.at_work.set(at_work || self.session.awaits_store());
            self.attached.set(self.session.record().attached.is_some());
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
            self.send_away(CloseCode::Busy);
        }
    }

    /// Waits for one thing to happen and takes it in. Time comes before commands, or a client that
    /// never stops sending would never be sent a heartbeat.
    async fn step(&mut self) -> Result<(), Unavailable> {
        let now = self.shared.clock.now();
        let deadlines = self.session.next_deadline().into_iter().chain(self.seat.deadlines(now));
        let wake = self.shared.clock.instant(deadlines.min().unwrap_or(now + FAR_OFF));
        let takes_commands = self.takes_commands();
        let done = tokio::select! {
            biased;
            done = self.client_lane.next() => done,
            done = self.agent_lane.next() => {
                self.now = self.shared.clock.now();
                self.take_in_answered()?;
                done
            }
            done = self.reads.next() => done,
            event = self.seat.event() => self.on_seat_event(event),
            () = stopped(&mut self.stop) => Done::Nothing,
            () = sleep_until(wake) => Done::Happened(Input::Tick),
            Some(command) = self.commands.recv(), if takes_commands => {
                self.now = self.shared.clock.now();
                return self.take_commands(command);
            }
        };
        self.now = self.shared.clock.now();
        self.take_in(done)
    }

    /// Takes in what the client's side has been answered by now. A message may become durable together with
    /// what the agent says of it, and is accepted before that is sent.
    fn take_in_answered(&mut self) -> Result<(), Unavailable> {
        // Whatever this task has done in its turn so far: what is answered is taken in.
        while let Some(done) = unconstrained(self.client_lane.next()).now_or_never() {
            self.take_in(done)?;
        }
        Ok(())
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

    fn handle(&mut self, input: Input) {
        if let Input::Left { attachment } = &input {
            self.outlets.remove(attachment);
        }
        self.session.handle(input, self.now);
    }

    /// A client whose attachment was dropped has left, whether or not there was room to say so; but not
    /// before what it sent has been taken in.
    fn notice_gone(&mut self) {
        if !self.commands.is_empty() {
            return;
        }
        let gone = self.outlets.iter().filter(|(_, outlet)| outlet.is_closed());
        for attachment in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.handle(Input::Left { attachment });
        }
    }

    /// The server stops: clients are told to come back, the agent is stopped, and what is on its way
    /// to the store gets there. Nobody is detached: the session is parked when the server is back.
    async fn finish(&mut self) -> Result<(), Unavailable> {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            // Clients are told why before they are closed, however little there was to wait for.
            if matches!(&command, Command::Input(input) if matches!(**input, Input::Drain)) {
                self.handle(Input::Drain);
            }
            // Whoever waits for anything else is told that the session is not served any more.
        }
        self.carry_out_all();
        self.seat.dismiss(self.shared.clock.now());
        self.send_away(CloseCode::Draining);
        loop {
            self.carry_out_all();
            let now = self.shared.clock.now();
            self.seat.abort_if_overdue(now);
            let vacant = !self.seat.is_occupied();
            let leased = vacant && self.give_up_lease(); // whoever takes it next is alone at work
            let calm = self.client_lane.is_empty() && self.agent_lane.is_empty();
            if vacant && calm && !leased {
                return Ok(());
            }
            let overdue = self.seat.deadlines(now).min().unwrap_or(now + FAR_OFF);
            let done = tokio::select! {
                done = self.client_lane.next() => done,
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

    /// Everybody is closed, and comes back later.
    fn send_away(&mut self, code: CloseCode) {
        for attachment in self.outlets.keys().copied().collect::<Vec<_>>() {
            self.leave(attachment, LeaveReason::Closed(code));
        }
    }

    fn retire(&mut self) -> bool {
        self.shared.drivers.retire(&self.id, &mut self.commands)
    }

    /// Whether there is room for what a command may bring. While there is not, commands wait in
    /// their queue and whoever sends them waits too.
    fn takes_commands(&self) -> bool {
        let may_publish = match self.seat.is_leased() {
            true => self.session.accepts_publication(),
            false => self.seat.early_publications() < WAITING_PUBLICATIONS,
        };
        may_publish && self.client_lane.len() < WAITING_CALLS
    }

    /// Nobody is there and nothing is on its way. Work keeps a driver only where there is an agent to
    /// do it; a backend that does it from outside wakes one when it speaks.
    fn is_idle(&self) -> bool {
        let calm = self.client_lane.is_empty() && self.agent_lane.is_empty();
        let quiet = self.reads.is_empty() && self.outlets.is_empty() && self.seat.is_empty();
        calm && quiet && !self.session.awaits_store() && !self.has_work_here()
    }

    /// Whoever does the work of this session.
    fn agent(&self) -> Option<&Arc<dyn Agent>> {
        self.shared.agents.of(self.session.record().about.kind)
    }

    /// Whether there is something to do for an agent of this process.
    fn has_work_here(&self) -> bool {
        let here = self.agent().is_some() && !self.session.is_over();
        here && self.session.record().has_work()
    }

    fn on_command(&mut self, command: Command) -> Done {
        match command {
            Command::Attach(arrival) => {
                let (request, outlet) = *arrival;
                self.outlets.insert(request.attachment, outlet);
                Done::Happened(Input::Attach(Box::new(request)))
            }
            Command::Input(input) => Done::Happened(*input),
            Command::Enter(outgoing) => {
                let ticket = self.next_ticket();
                let (message, reply) = outgoing.into_message(ticket);
                self.entering.insert(ticket, reply);
                Done::Happened(Input::Message(Box::new(message)))
            }
            Command::End(request) => {
                let (by, reply) = *request;
                self.end(by, reply)
            }
            Command::Cut { reply } => {
                let attached = self.outlets.keys().copied().collect::<Vec<_>>();
                let _ = reply.send(!attached.is_empty());
                attached.into_iter().for_each(|attachment| self.handle(Input::Left { attachment }));
                Done::Nothing
            }
            Command::Restart { reply } => {
                let restarted = self.seat.restart();
                if restarted {
                    self.note_death(Death::silent("it was ended by /restart"));
                }
                let _ = reply.send(restarted);
                Done::Nothing
            }
            Command::Publish(utterance) => {
                let Utterance { publication, sitting, reply } = *utterance;
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
