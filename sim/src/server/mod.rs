//! A server process: the machines of its live sessions, the agents that run in it, and its end of
//! the connections. All of it is gone when the process dies.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rejoin_core::client::{ClientCommand, Event, ExportedState, MessageId, Secret, ServerEvent};
use rejoin_core::codes::{CloseCode, ErrorCode};
use rejoin_core::keys::{KeyRing, SecretKey};
use rejoin_core::lifetime::{Lifetime, OnDisconnect, Verdict};
use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::{Body, StoredEntry};
use rejoin_core::position::SeqRange;
use rejoin_core::record::{About, Ending, Kind, Record, Transport};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::seal::{self, StateFacts};
use rejoin_core::session::{
    AttachRequest, Confirmed, Covering, Input, Interest, LeaveReason, Message, Output, Publication,
    Session, Settings, Tell, Ticket,
};
use rejoin_core::state::{
    Attach, AttachRefused, Create, End, EnterRefused, Keep, NewSnapshot, NewToken, Origin, Restore,
    Room, TakeLease, Takeover, TokenUse,
};
use rejoin_core::token::{self, Claims, Grant, TokenHash};
use rejoin_core::{
    AttachmentId, Epoch, EventBody, EventId, InSeq, LogId, Principal, ProcessId, Seq, SessionId,
    Term, Timestamp,
};

use crate::disk::{Disk, Reply, Write};
use crate::judge::Judge;
use crate::random::Random;

mod agents;
mod commands;
mod readers;
mod tells;

use agents::Agent;
pub(crate) use agents::said;

pub(crate) const TOKEN_TTL: Duration = Duration::from_secs(15 * 60);
pub(crate) const SESSION_TTL: Duration = Duration::from_secs(1800);
pub(crate) const STATE_TTL: Duration = Duration::from_secs(60 * 60);
const MAX_STATE: usize = 4096;

/// What the world lends the server for one step.
pub(crate) struct Around<'a> {
    pub(crate) disk: &'a mut Disk,
    pub(crate) judge: &'a mut Judge,
    pub(crate) random: &'a mut Random,
    pub(crate) keys: &'a KeyRing,
    pub(crate) now: Timestamp,
}

/// What travels to a client.
#[derive(Debug)]
pub(crate) enum Down {
    Event(ServerEvent),
    Close(u16),
}

pub(crate) struct Server {
    pub(crate) process: ProcessId,
    sessions: BTreeMap<SessionId, Live>,
    connections: BTreeMap<u64, Connection>,
    last_attachment: u64,
    last_ticket: u64,
    /// Whether clients have readers of their own, or are told by their session's machine.
    has_readers: bool,
    /// Whose message it is that waits for the disk.
    posted: BTreeMap<Ticket, (u64, MessageId)>,
}

struct Live {
    machine: Session,
    agent: Option<Agent>,
    term: Option<Term>,
    asked_lease: bool,
    /// Who waits for which message.
    tickets: BTreeMap<Ticket, MessageId>,
    publishing: BTreeMap<Ticket, ()>,
}

/// One end of a connection.
pub(crate) struct Connection {
    principal: Principal,
    session: Option<SessionId>,
    attachment: Option<AttachmentId>,
    /// The token it came with, to make its successor again.
    token: Option<(String, Claims)>,
    fresh_token: Option<Secret>,
    asked: Option<Asked>,
    restored: bool,
    reader: Option<readers::ReaderEnd>,
    /// Messages that are durable, and the client does not know.
    entered_unsaid: Vec<String>,
    pub(crate) outbox: VecDeque<Down>,
}

pub(crate) fn keys() -> KeyRing {
    let secret = SecretKey::new(&[7; 32]);
    match secret {
        Ok(secret) => KeyRing::new(secret, Vec::new()),
        Err(error) => panic!("{error}"),
    }
}

fn settings() -> Settings {
    Settings {
        lifetime: Lifetime {
            on_disconnect: OnDisconnect::Ttl,
            disconnect_ttl: Some(Duration::from_secs(300)),
            session_ttl: SESSION_TTL,
        },
        auto_export_interval: Duration::from_secs(5),
        ..Settings::default()
    }
}

impl Server {
    pub(crate) fn start(around: &mut Around<'_>) -> Self {
        around.disk.recover(around.now);
        Self {
            process: ProcessId::from_random(around.random.bytes()),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            last_attachment: 0,
            last_ticket: 0,
            has_readers: around.random.one_in(2),
            posted: BTreeMap::new(),
        }
    }

    pub(crate) fn open(&mut self, connection: u64, principal: Principal) {
        let connection_end = Connection {
            principal,
            session: None,
            attachment: None,
            token: None,
            fresh_token: None,
            asked: None,
            restored: false,
            reader: None,
            entered_unsaid: Vec::new(),
            outbox: VecDeque::new(),
        };
        self.connections.insert(connection, connection_end);
        self.say(connection, connected());
    }

    pub(crate) fn connection(&mut self, connection: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&connection)
    }

    pub(crate) fn session_of(&self, connection: u64) -> Option<&SessionId> {
        self.connections.get(&connection)?.session.as_ref()
    }

    /// The server notices that a connection is gone.
    pub(crate) fn hang_up(&mut self, connection: u64, around: &mut Around<'_>) {
        self.reader_gone(connection, around);
        let Some(gone) = self.connections.remove(&connection) else { return };
        if let (Some(session), Some(attachment)) = (gone.session, gone.attachment) {
            self.feed(&session, Input::Left { attachment }, around);
        }
    }

    /// A write has become durable.
    pub(crate) fn replied(&mut self, id: &SessionId, reply: Reply, around: &mut Around<'_>) {
        match reply {
            Reply::Input(Input::AttachAnswered { attachment, answer }) if self.has_readers => {
                self.reader_attached(attachment, *answer, around);
            }
            Reply::Input(input) => {
                if let Input::EnterAnswered { ticket, answer, .. } = &input {
                    self.post_answered(*ticket, answer, id, around);
                }
                self.feed(id, input, around);
            }
            Reply::Created { connection, record } => self.attach(connection, &record, around),
            Reply::Leased(term) => {
                if let Some(live) = self.sessions.get_mut(id) {
                    live.term = Some(term);
                    self.feed(id, Input::Leased { term }, around);
                }
            }
            Reply::Ended(Ok(())) => self.feed(id, Input::Ended { by: None }, around),
            Reply::Restored { connection, result } => match result {
                Ok(record) => {
                    if let Some(end) = self.connections.get_mut(&connection) {
                        end.restored = true;
                        end.token = None;
                    }
                    if record.id() != id {
                        self.feed(id, Input::Replaced, around);
                    }
                    self.attach(connection, &record, around);
                }
                Err(rejoin_core::state::RestoreRefused::Foreign { .. }) => {
                    self.refuse(connection, ErrorCode::StateVerificationFailed);
                }
                Err(rejoin_core::state::RestoreRefused::Superseded) => {
                    self.refuse(connection, ErrorCode::StateSuperseded);
                }
                Err(rejoin_core::state::RestoreRefused::AlreadyAttached { .. }) => {
                    self.refuse(connection, ErrorCode::SessionAlreadyActive);
                }
                Err(
                    rejoin_core::state::RestoreRefused::OverBound(_)
                    | rejoin_core::state::RestoreRefused::NoRoom(_)
                    | rejoin_core::state::RestoreRefused::Paused,
                ) => {
                    self.refuse(connection, ErrorCode::ServerBusy);
                }
                Err(rejoin_core::state::RestoreRefused::Implausible { .. }) => {
                    self.refuse(connection, ErrorCode::InvalidMessage);
                }
            },
            Reply::Ended(Err(_)) | Reply::Nothing => {}
        }
    }

    pub(super) fn live(&mut self, record: &Record) {
        self.sessions.entry(record.id().clone()).or_insert_with(|| Live {
            machine: Session::new(record.clone(), settings()),
            agent: None,
            term: None,
            asked_lease: false,
            tickets: BTreeMap::new(),
            publishing: BTreeMap::new(),
        });
    }

    pub(crate) fn tick(&mut self, around: &mut Around<'_>) {
        for id in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.feed(&id, Input::Tick, around);
            self.look_after_agent(&id, around);
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.feed_reader(connection, rejoin_core::reader::ReaderInput::Tick, around);
        }
        self.sessions.retain(|_, live| !live.machine.is_idle() || live.busy());
    }

    pub(crate) fn session_ids(&self) -> Vec<SessionId> {
        self.sessions.keys().cloned().collect()
    }

    /// Feeds a machine and carries out what it says.
    pub(super) fn feed(&mut self, id: &SessionId, input: Input, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        live.machine.handle(input, around.now);
        while let Some(output) = self.sessions.get_mut(id).and_then(|l| l.machine.poll_output()) {
            self.carry_out(id, output, around);
        }
    }

    pub(super) fn carry_out(&mut self, id: &SessionId, output: Output, around: &mut Around<'_>) {
        match output {
            Output::Attach { attachment, attach } => {
                around.disk.ask(id, Write::Attach { attachment, attach });
            }
            Output::Detach { detach, then: _ } => around.disk.ask(id, Write::Detach(detach)),
            Output::Ack(ack) => around.disk.ask(id, Write::Ack(ack)),
            Output::Enter { ticket, from, enter } => {
                around.disk.ask(id, Write::Enter { ticket, from, enter });
                if around.random.one_in(2)
                    && let Some(entry) = around.disk.foresee(id)
                {
                    self.feed(id, Input::Entering(entry), around);
                }
            }
            Output::Append(append) => around.disk.ask(id, Write::Append(append)),
            Output::Read { attachment, after } => {
                let page = around.disk.read(id, after);
                self.feed(id, Input::Page { attachment, after, page }, around);
            }
            Output::ReadEntries { after } => {
                let entries = around.disk.entries(id, after);
                self.feed(id, Input::Entries { after, entries }, around);
            }
            Output::Hand(entries) => {
                let agent = self.sessions.get_mut(id).and_then(|live| live.agent.as_mut());
                if let Some(agent) = agent {
                    agent.take(entries, &around.disk.waiting(id));
                }
            }
            Output::StopAgent => {
                if let Some(live) = self.sessions.get_mut(id) {
                    live.agent = None;
                    live.term = None;
                    live.asked_lease = false;
                }
            }
            Output::Published { ticket, result } => {
                if let Some(live) = self.sessions.get_mut(id) {
                    live.publishing.remove(&ticket);
                    if let Some(agent) = &mut live.agent {
                        agent.waits = false;
                    }
                }
                if let Ok(published) = result
                    && let Some(range) = SeqRange::new(published.first, published.last)
                {
                    around.judge.confirmed(around.disk.sessions.get(id), range);
                }
            }
            Output::Entered { ticket, from, result } => self.entered(id, ticket, from, result),
            Output::Tell { attachment, tell } => self.tell(id, attachment, tell, around),
            Output::HeartbeatMissed => {}
            Output::Leave { attachment, reason } => self.leave(attachment, reason),
            Output::WorkDone(verdict) => {
                let generation = around.disk.sessions[id].vitals.generation;
                if let Verdict::KeepUntil(until) = verdict {
                    around.disk.ask(id, Write::Keep(Keep { generation, until }));
                }
            }
        }
    }

    /// The client's socket has taken everything.
    pub(crate) fn drained(&mut self, connection: u64, around: &mut Around<'_>) {
        self.feed_reader(connection, rejoin_core::reader::ReaderInput::Writable, around);
        let Some(end) = self.connections.get(&connection) else { return };
        if let Some((session, attachment)) = end.session.clone().zip(end.attachment) {
            self.feed(&session, Input::Writable { attachment }, around);
        }
    }
}

impl Live {
    fn busy(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| !agent.entries.is_empty() || agent.waits)
    }
}

fn connected() -> ServerEvent {
    ServerEvent::Connected {
        backoff: vec![Duration::from_secs(1), Duration::from_secs(4)],
        max_attempts: u32::MAX,
        heartbeat_interval: Duration::from_secs(30),
    }
}
