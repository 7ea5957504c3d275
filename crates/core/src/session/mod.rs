//! The state machine of a live session: what happened goes in, what to do comes out.
//!
//! There is one [`Session`] for each session that has a client attached or an agent at work in this
//! process. A parked session without work has none: it is a row in the store. The driver owns the
//! machine and the order of calls is always the same:
//!
//! 1. [`Session::handle`] one [`Input`], with the time it is now;
//! 2. [`Session::poll_output`] until there is nothing left, carrying each [`Output`] out in order;
//! 3. wait for whatever comes first: something from a transport, the agent or the store, or the time
//!    [`Session::next_deadline`] names, which is fed in as [`Input::Tick`].
//!
//! The methods fall into families, one file each:
//!
//! | file | concern |
//! |---|---|
//! | `attach.rs` | clients come, are superseded and go |
//! | `deliver.rs` | what a client is sent: cursor, replay, gaps. Replay is not a mode |
//! | `inbox.rs` | what clients send, and handing it to the agent |
//! | `publish.rs` | what the agent says, and the lease that lets it |
//! | `deadlines.rs` | heartbeats, exports: every timer, as data |
//!
//! Nothing in here believes that a change has happened before the store says so. In particular an
//! event is sent to nobody and confirmed to nobody before [`Input::Appended`] came back for it.

mod attach;
mod deadlines;
mod deliver;
mod inbox;
mod publish;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use attach::{AttachRequest, Confirmed, Interest, LeaveReason};
pub use publish::{Covering, Publication, PublishRefused, Published, Workload};

use self::attach::Attachment;
use self::publish::AgentSide;
use crate::codes::CloseCode;
use crate::ids::AttachmentId;
use crate::lifetime::{Lifetime, Verdict};
use crate::log::{EntryKind, MessageDigest};
use crate::page::{Body, Page, StoredEntry, StoredEvent};
use crate::position::{Generation, InSeq, Seq, SeqRange, Term};
use crate::record::Record;
use crate::resume::Gap;
use crate::state::{
    Ack, Append, AppendRefused, Appended, Attach, AttachRefused, Attached, Detach, Enter,
    EnterRefused, Entered,
};
use crate::time::Timestamp;

/// Names something that somebody waits for the outcome of. The driver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client wants to attach. Who it is and what token it brought has been checked.
    Attach(Box<AttachRequest>),
    /// The store answered an [`Output::Attach`].
    AttachAnswered {
        /// Whose.
        attachment: AttachmentId,
        /// The answer.
        answer: Box<Result<Attached, AttachRefused>>,
    },
    /// A client has gone, or was cut off.
    Left {
        /// Which.
        attachment: AttachmentId,
    },
    /// A frame came from a client.
    Heard {
        /// Which.
        attachment: AttachmentId,
    },
    /// A pong came from a client: it lives, and that is all.
    Pong {
        /// Which.
        attachment: AttachmentId,
    },
    /// A client's transport has taken everything it was told and can take more.
    Writable {
        /// Which.
        attachment: AttachmentId,
    },
    /// A client has received everything up to `seq`.
    Ack {
        /// Which.
        attachment: AttachmentId,
        /// The seq.
        seq: Seq,
        /// Whether it noticed a hole and wants everything after `seq` again.
        resend: bool,
    },
    /// A page that an [`Output::Read`] asked for; nothing if the session is gone.
    Page {
        /// For whom.
        attachment: AttachmentId,
        /// After which seq it was asked for.
        after: Seq,
        /// The page.
        page: Option<Box<Page>>,
    },
    /// Somebody sends something to the agent.
    Message(Box<Message>),
    /// The store will have this message as the next, but has not answered yet: only the agent may know.
    Entering(StoredEntry),
    /// The store answered an [`Output::Enter`].
    EnterAnswered {
        /// What was asked.
        ticket: Ticket,
        /// Who asked.
        from: Option<AttachmentId>,
        /// The answer.
        answer: Result<Entered, EnterRefused>,
    },
    /// This process has the lease: it may publish.
    Leased {
        /// The term of it.
        term: Term,
    },
    /// The agent is ready to be handed entries. It was started under the lease, from
    /// the state that the store has: not before everything of its predecessor has been answered
    /// (see [`Session::awaits_store`]).
    AgentReady {
        /// Whether the agent says itself which entries it has dealt with.
        covering: Covering,
    },
    /// The agent has taken an entry that it was handed, and with it all before.
    Took {
        /// Which.
        in_seq: InSeq,
    },
    /// The agent has taken everything and been silent for so long that it is let go: if it never says
    /// what it has dealt with, that counts as dealt with now.
    AgentIdle,
    /// The agent has died or was stopped. What its state does not cover is handed to the next one.
    AgentGone,
    /// Entries that an [`Output::ReadEntries`] asked for.
    Entries {
        /// After which entry they were asked for.
        after: InSeq,
        /// The entries.
        entries: Vec<StoredEntry>,
    },
    /// The agent, or a backend on its behalf, speaks.
    Publish {
        /// Who waits for it.
        ticket: Ticket,
        /// What it says.
        publication: Publication,
    },
    /// The store answered the [`Output::Append`]; there is never more than one on its way.
    Appended(Result<Appended, AppendRefused>),
    /// The session has ended; `by` is the client that asked for it, if one did.
    Ended {
        /// Who ended it.
        by: Option<AttachmentId>,
    },
    /// A snapshot of the session was restored, and another one goes on in its place.
    Replaced,
    /// The server is going down and will be back.
    Drain,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Ask the store to attach a client; feed [`Input::AttachAnswered`].
    Attach {
        /// Which.
        attachment: AttachmentId,
        /// The change.
        attach: Box<Attach>,
    },
    /// Tell the store that the client has gone, then do what `then` says. No answer is needed.
    Detach {
        /// The change.
        detach: Detach,
        /// What the policy wants.
        then: Verdict,
    },
    /// Tell the store what a client has received. No answer is needed.
    Ack(Ack),
    /// Ask the store to enter a message; feed [`Input::EnterAnswered`].
    Enter {
        /// Who waits.
        ticket: Ticket,
        /// Who sent it.
        from: Option<AttachmentId>,
        /// The change.
        enter: Box<Enter<Body>>,
    },
    /// Ask the store to append; feed [`Input::Appended`].
    Append(Box<Append<Body>>),
    /// Read events from the store; feed [`Input::Page`].
    Read {
        /// For whom.
        attachment: AttachmentId,
        /// The last one it has.
        after: Seq,
    },
    /// Read waiting entries from the store; feed [`Input::Entries`].
    ReadEntries {
        /// The last one that was handed over.
        after: InSeq,
    },
    /// Hand entries to the agent, in order.
    Hand(Vec<StoredEntry>),
    /// Another process has taken the lease, or the session is over: stop the agent.
    StopAgent,
    /// Tell a producer what became of its publication.
    Published {
        /// Who waits.
        ticket: Ticket,
        /// What became of it.
        result: Result<Published, PublishRefused>,
    },
    /// Tell somebody what became of a message.
    Entered {
        /// Who waits.
        ticket: Ticket,
        /// Who sent it.
        from: Option<AttachmentId>,
        /// What became of it.
        result: Result<Entered, EnterRefused>,
    },
    /// Tell a client something.
    Tell {
        /// Whom.
        attachment: AttachmentId,
        /// What.
        tell: Tell,
    },
    /// A client has let a heartbeat pass without a sign of life: it is counted.
    HeartbeatMissed,
    /// A client is no longer attached; it is told everything that came before, then closed.
    Leave {
        /// Which.
        attachment: AttachmentId,
        /// Why, and so with which code.
        reason: LeaveReason,
    },
    /// The agent has finished all its work and nobody is attached: do what the policy wants.
    WorkDone(Verdict),
}

/// What a client is told, in the order in which it is told.
#[derive(Clone, Debug)]
pub enum Tell {
    /// It is attached.
    Confirmed(Box<Confirmed>),
    /// It can't attach.
    Refused(AttachRefused),
    /// Events it has not seen are gone.
    Gap(Gap),
    /// The agent's state, sealed, which stands for events that are gone.
    State,
    /// The agent's state, sealed, because it has changed: not before the event that it was stored
    /// with, or the client would have the state of something that it has not seen.
    Checkpoint,
    /// Events.
    Events {
        /// The events, in order.
        events: Vec<StoredEvent>,
        /// Whether they were there before it attached.
        replayed: bool,
    },
    /// Everything that was there before it attached has been sent.
    ReplayComplete {
        /// From which to which; nothing if there was nothing to send.
        range: Option<SeqRange>,
        /// How many. Less than there are numbers, if some in between went while others were being sent.
        replayed: u64,
    },
    /// Are you there?
    Heartbeat {
        /// The last event.
        head: Seq,
        /// Whether to give it a new reconnect token along.
        renew_token: bool,
    },
    /// It acked what was never sent.
    AckAhead {
        /// The last event there is.
        head: Seq,
    },
    /// Another connection has taken the session over.
    Superseded,
    /// The server is going down and will be back.
    Draining,
    /// The session has ended.
    Ended,
}

/// Something for the agent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who waits for it.
    pub ticket: Ticket,
    /// The client that sent it; none over HTTP.
    pub from: Option<AttachmentId>,
    /// What it is.
    pub kind: EntryKind,
    /// Its id and content, if it has an id.
    pub digest: Option<MessageDigest>,
    /// Its bytes.
    pub body: Body,
}

/// The settings a session runs under.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often a client is sent a heartbeat.
    pub heartbeat_interval: Duration,
    /// A client that was not heard of for so long is cut off.
    pub heartbeat_timeout: Duration,
    /// So is one that let more than so many heartbeats pass.
    pub max_heartbeat_misses: u32,
    /// A client that sends nothing but pongs for so long is cut off; never if nothing is set.
    pub inactivity_timeout: Option<Duration>,
    /// How long a reconnect token is good; a client gets the next one after half of it.
    pub token_ttl: Duration,
    /// At most once in this time a changed state is sent to the client by itself.
    pub auto_export_interval: Duration,
    /// How many bytes may wait for the agent.
    pub max_waiting_bytes: usize,
    /// How long a session without a client is kept.
    pub lifetime: Lifetime,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(60),
            max_heartbeat_misses: 2,
            inactivity_timeout: None,
            token_ttl: Duration::from_secs(15 * 60),
            auto_export_interval: Duration::from_secs(60),
            max_waiting_bytes: 4 * 1024 * 1024,
            lifetime: Lifetime::default(),
        }
    }
}

/// A live session in this process.
#[derive(Debug)]
pub struct Session {
    /// The same for every session of a server, and there once.
    settings: Arc<Settings>,
    /// The session as the store last showed it, moved on by what the store has confirmed since.
    record: Record,
    /// Each in a box: a map has room for eleven where there is one.
    attachments: BTreeMap<AttachmentId, Box<Attachment>>,
    agent: AgentSide,
    /// When a changed state may be sent by itself, and whether one waits to be.
    export: deadlines::Export,
    ended: bool,
    outputs: VecDeque<Output>,
}

impl Session {
    /// The machine for a session that is as `record` says.
    pub fn new(record: Record, settings: impl Into<Arc<Settings>>) -> Self {
        Self {
            settings: settings.into(),
            ended: !record.is_active(),
            agent: AgentSide::default(),
            export: deadlines::Export::default(),
            record,
            attachments: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. Afterwards [`Session::poll_output`] says what to do.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Attach(request) => self.on_attach(*request, now),
            Input::AttachAnswered { attachment, answer } => {
                self.on_attach_answered(attachment, *answer, now);
            }
            Input::Left { attachment } => self.on_left(attachment, now),
            Input::Heard { attachment } => self.on_heard(attachment, now),
            Input::Pong { attachment } => self.on_pong(attachment, now),
            Input::Writable { attachment } => self.on_writable(attachment, now),
            Input::Ack { attachment, seq, resend } => self.on_ack(attachment, seq, resend, now),
            Input::Page { attachment, after, page } => self.on_page(attachment, after, page),
            Input::Message(message) => self.on_message(*message, now),
            Input::Entering(entry) => self.on_entering(entry),
            Input::EnterAnswered { ticket, from, answer } => {
                self.on_enter_answered(ticket, from, answer, now);
            }
            Input::Leased { term } => self.on_leased(term),
            Input::AgentReady { covering } => self.on_agent_ready(covering),
            Input::AgentGone => self.on_agent_gone(),
            Input::Took { in_seq } => self.on_took(in_seq, now),
            Input::AgentIdle => self.on_agent_idle(now),
            Input::Entries { after, entries } => self.on_entries(after, entries),
            Input::Publish { ticket, publication } => self.on_publish(ticket, publication, now),
            Input::Appended(answer) => self.on_appended(answer, now),
            Input::Ended { by } => self.on_ended(by),
            Input::Replaced => self.on_replaced(),
            Input::Drain => self.on_drain(),
            Input::Tick => self.on_tick(now),
        }
    }

    /// The next thing to do, in order; nothing if all is done.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if output.is_none() {
            self.outputs = VecDeque::new(); // most sessions are idle most of the time
        }
        output
    }

    /// The session as far as this process knows it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The generation of a client; nothing if it has been replaced, or is not attached yet.
    pub fn generation_of(&self, attachment: AttachmentId) -> Option<Generation> {
        self.attachments.get(&attachment)?.generation
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// Whether the driver may end: nobody is attached, nothing is on its way, the agent has nothing
    /// to do.
    pub fn is_idle(&self) -> bool {
        let working = self.record.has_work() && !self.ended;
        self.attachments.is_empty() && !self.agent.is_busy() && !working
    }

    /// Whether something the agent said is still on its way to the store.
    pub fn awaits_store(&self) -> bool {
        self.agent.is_busy()
    }

    /// Whether another [`Input::Publish`] is taken now; if not, the producer has to wait.
    pub fn accepts_publication(&self) -> bool {
        self.agent.accepts()
    }

    fn emit(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    fn tell(&mut self, attachment: AttachmentId, tell: Tell) {
        self.emit(Output::Tell { attachment, tell });
    }

    /// The session is over: whoever asked for it stays connected, everybody else is closed. Whoever is
    /// about to attach is answered when the store has answered: it is refused, whichever came first.
    fn on_ended(&mut self, by: Option<AttachmentId>) {
        self.ended = true;
        let attached = self.attachments.extract_if(.., |_, client| client.generation.is_some());
        for attachment in attached.map(|(id, _)| id).collect::<Vec<_>>() {
            self.tell(attachment, Tell::Ended);
            if Some(attachment) != by {
                self.leave(attachment, LeaveReason::Closed(CloseCode::SessionEnded));
            }
        }
        self.emit(Output::StopAgent);
    }

    /// Another session goes on in this one's place: to its clients that is what a later connection is.
    /// Whoever the store has not answered yet will be told by that answer.
    fn on_replaced(&mut self) {
        self.ended = true;
        self.supersede_where(|_| true);
        self.emit(Output::StopAgent);
    }

    fn on_drain(&mut self) {
        for attachment in self.attachments.keys().copied().collect::<Vec<_>>() {
            self.tell(attachment, Tell::Draining);
        }
    }
}
