//! The task behind a [`Session`](crate::Session): it tells the brain what happened and does what the
//! brain says. It decides nothing about the protocol.
//!
//! It ends when the brain has stopped and the application has taken the last item, when
//! [`close`](crate::Handle::close) is wished for, or when the session is dropped.
//!
//! **A slow application** is waited for. When it is a whole window behind, nothing is read and no socket
//! is opened: the server's side fills up and waits in turn. Meanwhile acks that must not go out yet are
//! replaced by pongs, so that the server knows that somebody is there; for as long as the window's
//! patience lasts, after which the server may park the session and lose nothing by it.

mod handover;
mod keeper;
mod link;
mod news;
mod receipts;
mod wishes;

use std::collections::VecDeque;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::client::{Client, ClientCommand, MessageId, Output, Saved, ServerEvent, Status};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub(crate) use handover::Window;
pub(crate) use keeper::Keeper;
pub(crate) use receipts::Answer;
pub(crate) use wishes::{Wish, Wishes};

use handover::{Due, Handover};
use link::{Link, LinkNews};
use receipts::Receipts;

use crate::clock::Clock;
use crate::frames::{self, About};
use crate::incoming::{Event, Incoming, State};
use crate::socket::{Dial, Ending, Socket};

/// A letter of the application, and who wants to know what becomes of it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) message_id: MessageId,
    /// What it says; nothing if it is a cancellation.
    pub(crate) content: Option<Arc<[u8]>>,
    pub(crate) receipt: oneshot::Sender<Answer>,
}

/// The driver's ends of the channels to the application.
pub(crate) struct Channels {
    pub(crate) items: mpsc::UnboundedSender<Incoming>,
    /// How many items the application has handled. Its other end is dropped with the session.
    pub(crate) handled: watch::Receiver<u64>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) status: watch::Sender<Status>,
}

/// What the driver is made with.
pub(crate) struct Equipment {
    pub(crate) dial: Dial,
    pub(crate) about: About,
    pub(crate) keeper: Keeper,
    pub(crate) window: Window,
}

/// Drives one brain.
pub(crate) struct Driver {
    brain: Client,
    clock: Clock,
    dial: Dial,
    about: About,
    keeper: Keeper,
    link: Link,
    /// Counts the sockets that were opened.
    connection: u64,
    /// What the last frame said and the brain has not been told, for want of room.
    inbox: VecDeque<ServerEvent>,
    handover: Handover,
    receipts: Receipts,
    commands: mpsc::Receiver<Command>,
    handled: watch::Receiver<u64>,
    wishes: Arc<Wishes>,
    status: watch::Sender<Status>,
    heartbeat_interval: Duration,
    /// When a pong stood in for an ack, or the socket was opened.
    shown_alive_at: Instant,
    stopped: bool,
}

/// Something happened.
enum Happened {
    Told(ServerEvent),
    Link(LinkNews),
    Commanded(Command),
    Wished,
    Handled(u64),
    /// A deadline of the brain.
    Due,
    /// It is time to show the server that we live.
    Quiet,
}

impl Driver {
    pub(crate) fn new(brain: Client, equipment: Equipment, channels: Channels) -> Self {
        let Equipment { dial, about, keeper, window } = equipment;
        let Channels { items, handled, commands, wishes, status } = channels;
        Self {
            brain,
            clock: Clock::start(),
            dial,
            about,
            keeper,
            link: Link::None,
            connection: 0,
            inbox: VecDeque::new(),
            handover: Handover::new(window, items),
            receipts: Receipts::default(),
            commands,
            handled,
            wishes,
            status,
            heartbeat_interval: rejoin_core::limits::HEARTBEAT_INTERVAL,
            shown_alive_at: Instant::now(),
            stopped: false,
        }
    }

    /// Drives until the end.
    pub(crate) async fn run(mut self) {
        loop {
            self.carry_out().await;
            if self.wishes.is_closed() || self.stopped && self.handover.is_empty() {
                break;
            }
            let Some(happened) = self.wait().await else { break };
            self.digest(happened);
        }
        self.finish().await;
    }

    /// Keeps what the application has handled, to the last event, and says goodbye.
    async fn finish(mut self) {
        let handled = *self.handled.borrow();
        self.handover.handled(handled);
        self.do_what_is_due().await;
        let link = mem::replace(&mut self.link, Link::None);
        self.on_ended(Ending::default()); // the brain gives out what is new since it last did
        while let Some(output) = self.brain.poll_output() {
            if let Output::Save(saved) = output {
                self.keeper.want(&saved);
                self.handover.save_later(saved);
            }
        }
        if self.handover.is_empty() {
            self.do_what_is_due().await;
        } else if let Some(seq) = self.handover.handled_seq()
            && let Some(saved) = self.keeper.wanted_up_to(seq)
        {
            self.save(saved, handled).await;
        }
        if let Link::Open(socket) = link {
            socket.farewell().await;
        }
    }

    /// Waits until something happens; nothing, if the session was dropped.
    async fn wait(&mut self) -> Option<Happened> {
        let room = self.handover.has_room();
        if room && let Some(event) = self.inbox.pop_front() {
            return Some(Happened::Told(event));
        }
        let deadline = self.brain.next_deadline().map(|at| self.clock.instant(at));
        let quiet_until = self.quiet_until();
        let Self { link, commands, handled, wishes, .. } = self;
        let happened = async {
            tokio::select! {
                () = wishes.changed() => Some(Happened::Wished),
                changed = handled.changed() => {
                    changed.ok().map(|()| Happened::Handled(*handled.borrow_and_update()))
                }
                Some(command) = commands.recv() => Some(Happened::Commanded(command)),
                news = link.news(room) => Some(Happened::Link(news)),
            }
        };
        // Time comes last: what the server has said counts before it is called silent.
        tokio::select! {
            biased;
            happened = happened => happened,
            () = sleep_until(deadline) => Some(Happened::Due),
            () = sleep_until(quiet_until) => Some(Happened::Quiet),
        }
    }

    /// Does everything that the brain says, in its order, and then what had to wait before.
    async fn carry_out(&mut self) {
        while let Some(output) = self.brain.poll_output() {
            match output {
                Output::Connect => self.link = Link::Wanted,
                Output::Send(ack @ ClientCommand::Ack { .. }) => {
                    if self.handover.ack_later(self.connection, ack) {
                        self.show_alive();
                    }
                }
                Output::Send(command) => self.write(&command),
                Output::Close => self.on_ended(Ending::default()),
                Output::Deliver(event) => self.give(Incoming::Event(Event::from_core(event))),
                Output::DeliverGap(gap) => self.give(Incoming::Gap(gap)),
                Output::DeliverState { state, fills_gap } => {
                    self.give(Incoming::State(State::from_core(state, fills_gap)));
                }
                Output::Accepted { message_id, in_seq } => {
                    self.receipts.answer(&message_id, Ok(in_seq));
                }
                Output::GivenUp { message_id, reason } => {
                    self.receipts.answer(&message_id, Err(reason));
                }
                Output::Refused { code } => self.give(Incoming::Refused(code)),
                Output::Status(status) => self.on_status(status),
                Output::Save(saved) => {
                    self.keeper.want(&saved);
                    self.handover.save_later(saved);
                }
            }
        }
        self.do_what_is_due().await;
        if matches!(self.link, Link::Wanted) && self.handover.has_room() {
            self.link = Link::Opening(Box::pin(Socket::open(self.dial.clone())));
        }
    }

    fn give(&mut self, item: Incoming) {
        self.handover.give(item);
    }

    fn on_status(&mut self, status: Status) {
        tracing::debug!(?status);
        self.stopped |= matches!(status, Status::Stopped { .. });
        self.status.send_replace(status.clone());
        self.give(Incoming::Status(status));
    }

    fn write(&mut self, command: &ClientCommand) {
        if let Link::Open(socket) = &mut self.link {
            socket.write(frames::command(command, &self.about));
        }
    }

    async fn do_what_is_due(&mut self) {
        while let Some((items, Due { save, ack })) = self.handover.next_due() {
            if let Some(saved) = save {
                self.save(saved, items).await;
            }
            match ack {
                Some((connection, ack)) if connection == self.connection => self.acknowledge(&ack),
                Some(_) | None => {}
            }
        }
    }

    /// What is not saved is not acked, or it might be gone when the next program asks for it. The one
    /// exception asks for something to be sent again: without it nothing would come any more.
    fn acknowledge(&mut self, ack: &ClientCommand) {
        if self.keeper.has_failed() && !matches!(ack, ClientCommand::Ack { gap_detected: true, .. })
        {
            return self.show_alive();
        }
        self.write(ack);
    }

    /// Keeps something that covers this many items.
    async fn save(&mut self, saved: Saved, items: u64) {
        match self.keeper.save(saved).await {
            Ok(()) => self.handover.saved(items),
            Err(None) => {}
            Err(Some(error)) => self.give(Incoming::KeepFailed(error)),
        }
    }

    /// When the server is to be shown that we live, as we do not read what it asks.
    fn quiet_until(&self) -> Option<Instant> {
        let waits = self.link.is_open() && !self.handover.has_room();
        let heartbeats = !self.heartbeat_interval.is_zero();
        (waits && heartbeats && self.handover.is_patient())
            .then(|| self.shown_alive_at + self.heartbeat_interval)
    }

    /// A pong in place of an ack that can't be sent yet.
    fn show_alive(&mut self) {
        if let Link::Open(socket) = &mut self.link
            && self.handover.is_patient()
        {
            socket.write_pong();
            self.shown_alive_at = Instant::now();
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
