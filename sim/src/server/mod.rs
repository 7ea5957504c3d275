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
use rejoin_core::reader::{Confirmed, LeaveReason, ReaderInput, Tell};
use rejoin_core::record::{About, Ending, Kind, Record, Transport};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::seal::{self, StateFacts};
use rejoin_core::settings::Settings;
use rejoin_core::state::{
    Attach, AttachRefused, Create, End, EnterRefused, Keep, NewSnapshot, NewToken, Origin, Restore,
    Room, TakeLease, Takeover, TokenUse,
};
use rejoin_core::token::{self, Claims, Grant, TokenHash};
use rejoin_core::worker::{Covering, Publication, Ticket, Worker, WorkerInput, WorkerOutput};
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
    /// Whose message it is that waits for the disk.
    posted: BTreeMap<Ticket, (u64, MessageId)>,
}

struct Live {
    worker: Worker,
    agent: Option<Agent>,
    term: Option<Term>,
    asked_lease: bool,
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
        self.connections.remove(&connection);
    }

    /// A write has become durable.
    pub(crate) fn replied(&mut self, id: &SessionId, reply: Reply, around: &mut Around<'_>) {
        match reply {
            Reply::Attached { attachment, answer } => {
                self.reader_attached(attachment, *answer, around);
            }
            Reply::Entered { ticket, answer } => {
                self.post_answered(ticket, &answer, id, around);
                if let Ok(entered) = answer {
                    let in_seq = entered.in_seq;
                    self.feed(id, WorkerInput::Entered { in_seq }, around);
                }
            }
            Reply::Appended(answer) => self.feed(id, WorkerInput::Appended(answer), around),
            Reply::Created { connection, record } => self.attach(connection, &record, around),
            Reply::Leased(term) => {
                if let Some(live) = self.sessions.get_mut(id) {
                    live.term = Some(term);
                    self.feed(id, WorkerInput::Leased { term }, around);
                }
            }
            Reply::Ended(Ok(())) => self.worker_looks(id, around),
            Reply::Restored { connection, result } => match result {
                Ok(record) => {
                    if let Some(end) = self.connections.get_mut(&connection) {
                        end.restored = true;
                        end.token = None;
                    }
                    if record.id() != id {
                        self.worker_looks(id, around);
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
            worker: Worker::new(record.clone()),
            agent: None,
            term: None,
            asked_lease: false,
            publishing: BTreeMap::new(),
        });
    }

    pub(crate) fn tick(&mut self, around: &mut Around<'_>) {
        for id in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.look_after_agent(&id, around);
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.feed_reader(connection, ReaderInput::Tick, around);
        }
        self.sessions.retain(|_, live| !live.worker.is_idle() || live.busy());
    }

    pub(crate) fn session_ids(&self) -> Vec<SessionId> {
        self.sessions.keys().cloned().collect()
    }

    /// Feeds a machine and carries out what it says.
    pub(super) fn feed(&mut self, id: &SessionId, input: WorkerInput, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        live.worker.handle(input, around.now);
        while let Some(output) = self.sessions.get_mut(id).and_then(|l| l.worker.poll_output()) {
            self.carry_out(id, output, around);
        }
    }

    pub(super) fn carry_out(
        &mut self,
        id: &SessionId,
        output: WorkerOutput,
        around: &mut Around<'_>,
    ) {
        match output {
            WorkerOutput::Append(append) => around.disk.ask(id, Write::Append(append)),
            WorkerOutput::ReadEntries { after } => {
                let entries = around.disk.entries(id, after);
                self.feed(id, WorkerInput::Entries { after, entries }, around);
            }
            WorkerOutput::Hand(entries) => {
                let agent = self.sessions.get_mut(id).and_then(|live| live.agent.as_mut());
                if let Some(agent) = agent {
                    agent.take(entries, &around.disk.waiting(id));
                }
            }
            WorkerOutput::StopAgent => {
                if let Some(live) = self.sessions.get_mut(id) {
                    live.agent = None;
                    live.term = None;
                    live.asked_lease = false;
                }
            }
            WorkerOutput::Published { ticket, result } => {
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
            WorkerOutput::WorkDone => {
                let Some(session) = around.disk.sessions.get(id) else { return };
                let (record, now) = (session.record(), around.now);
                if let Some(Verdict::KeepUntil(until)) =
                    settings().lifetime.after_work(&record, now)
                {
                    let generation = record.generation;
                    around.disk.ask(id, Write::Keep(Keep { generation, until }));
                }
            }
        }
    }

    /// The session of a worker has changed.
    fn worker_looks(&mut self, id: &SessionId, around: &mut Around<'_>) {
        let record = around.disk.sessions.get(id).map(|session| Box::new(session.record()));
        self.feed(id, WorkerInput::Looked(record), around);
    }

    /// The client's socket has taken everything.
    pub(crate) fn drained(&mut self, connection: u64, around: &mut Around<'_>) {
        self.feed_reader(connection, ReaderInput::Writable, around);
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
