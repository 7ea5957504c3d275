//! The task behind a live session. It owns the state machine, feeds it what happens and carries out
//! what it says. It ends when nobody is attached and nothing is left to do; the session goes on as a
//! row in the store.

mod carry_out;
mod seat;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::Body;
use rejoin_core::record::Record;
use rejoin_core::session::{AttachRequest, Input, Publication, Published, Session, Ticket};
use rejoin_core::state::{EnterRefused, Entered};
use rejoin_core::{AttachmentId, SessionId, Term};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use self::seat::SeatKeeper;
use crate::agent::Start;
use crate::attachment::{Outgoing, Told};
use crate::error::PublishError;
use crate::lane::{Call, Lane};
use crate::sessions::Shared;

/// Commands that may wait for a driver; beyond that whoever asks waits.
pub(crate) const WAITING_COMMANDS: usize = 256;

/// How long a driver without a deadline sleeps.
const FAR_OFF: Duration = Duration::from_secs(3600);

/// What a driver is asked to do.
pub(crate) enum Command {
    /// Attach a client, which is told things through `outlet`.
    Attach { request: Box<AttachRequest>, outlet: mpsc::Sender<Told> },
    /// Take in what happened.
    Input(Input),
    /// Enter a message.
    Enter(Outgoing),
    /// Publish.
    Publish {
        publication: Box<Publication>,
        reply: oneshot::Sender<Result<Published, PublishError>>,
    },
}

/// What the answer to a call of the store means.
pub(super) enum Done {
    /// This is what happened.
    Happened(Input),
    /// The store has answered who has the lease: this process, under this term, or another.
    Leased(Option<Term>),
    /// Everything the agent goes on from; nothing if the session is gone.
    Start(Option<Box<Start>>),
    /// Nothing that matters here.
    Nothing,
    /// The store does not work any more.
    Failed(Unavailable),
}

pub(crate) struct Driver {
    id: SessionId,
    shared: Arc<Shared>,
    session: Session,
    commands: mpsc::Receiver<Command>,
    outlets: BTreeMap<AttachmentId, mpsc::Sender<Told>>,
    entering: BTreeMap<Ticket, oneshot::Sender<Result<Entered, Failure<EnterRefused>>>>,
    publishing: BTreeMap<Ticket, oneshot::Sender<Result<Published, PublishError>>>,
    last_ticket: u64,
    /// Writes of the client's side, in order.
    client_lane: Lane<Done>,
    /// Writes of the agent's side, in order.
    agent_lane: Lane<Done>,
    /// Reads, in any order.
    reads: FuturesUnordered<Call<Done>>,
    seat: SeatKeeper,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        record: Record,
        commands: mpsc::Receiver<Command>,
        handle: mpsc::WeakSender<Command>,
    ) -> Self {
        let id = record.id().clone();
        Self {
            seat: SeatKeeper::new(handle),
            session: Session::new(record, shared.settings.session.clone()),
            shared,
            id,
            commands,
            outlets: BTreeMap::new(),
            entering: BTreeMap::new(),
            publishing: BTreeMap::new(),
            last_ticket: 0,
            client_lane: Lane::new(),
            agent_lane: Lane::new(),
            reads: FuturesUnordered::new(),
        }
    }

    /// Drives the session until it is idle, its store fails or the server stops.
    pub(crate) async fn run(mut self) {
        loop {
            self.carry_out_all();
            self.look_after_agent();
            if self.is_idle() && self.shared.retire(&self.id, &self.commands) {
                return;
            }
            match self.step().await {
                Ok(()) => {}
                Err(unavailable) => return self.fail(&unavailable),
            }
        }
    }

    /// Waits for one thing to happen and takes it in.
    async fn step(&mut self) -> Result<(), Unavailable> {
        let now = self.shared.clock.now();
        let pause_ends = self.seat.pause_ends(now);
        let deadline = self.session.next_deadline().into_iter().chain(pause_ends).min();
        let far_off = now + FAR_OFF;
        let wake = self.shared.clock.instant(deadline.unwrap_or(far_off));
        let done = tokio::select! {
            biased;
            done = self.client_lane.next() => done,
            done = self.agent_lane.next() => done,
            Some(done) = self.reads.next() => done,
            ended = self.seat.ended() => self.agent_ended(ended),
            command = self.commands.recv(), if self.takes_commands() => match command {
                Some(command) => self.on_command(command),
                None => Done::Nothing,
            },
            () = sleep_until(wake) => Done::Happened(Input::Tick),
        };
        match done {
            Done::Happened(input) => self.handle(input),
            Done::Leased(term) => self.leased(term),
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
        self.session.handle(input, self.shared.clock.now());
    }

    /// Whether there is room for what a command may bring. While there is not, commands wait in
    /// their queue and whoever sends them waits too.
    fn takes_commands(&self) -> bool {
        !self.seat.is_leased() || self.session.accepts_publication()
    }

    fn is_idle(&self) -> bool {
        let calm = self.client_lane.is_empty() && self.agent_lane.is_empty();
        self.session.is_idle() && calm && self.reads.is_empty() && self.seat.is_empty()
    }

    fn on_command(&mut self, command: Command) -> Done {
        match command {
            Command::Attach { request, outlet } => {
                self.outlets.insert(request.attachment, outlet);
                Done::Happened(Input::Attach(request))
            }
            Command::Input(input) => Done::Happened(input),
            Command::Enter(outgoing) => {
                let ticket = self.next_ticket();
                let (message, reply) = outgoing.into_message(ticket);
                self.entering.insert(ticket, reply);
                Done::Happened(Input::Message(Box::new(message)))
            }
            Command::Publish { publication, reply } => {
                let ticket = self.next_ticket();
                self.publishing.insert(ticket, reply);
                self.publish(ticket, publication)
            }
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// The store does not work any more. Whoever waits learns it by the dropped reply, clients by
    /// the closed connection; both may come back when the server has been started again.
    fn fail(self, unavailable: &Unavailable) {
        tracing::error!(session = %self.id, %unavailable, "a session is not served any more");
        self.shared.remove(&self.id);
    }
}

/// Asks a driver to enter a message, and waits until it is durable.
pub(crate) async fn enter(
    driver: &mpsc::Sender<Command>,
    from: Option<AttachmentId>,
    kind: EntryKind,
    digest: Option<MessageDigest>,
    body: Body,
) -> Result<Entered, Failure<EnterRefused>> {
    let (reply, answer) = oneshot::channel();
    let outgoing = Outgoing { from, kind, digest, body, reply };
    let gone = || Failure::Unavailable(crate::error::gone());
    driver.send(Command::Enter(outgoing)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}
