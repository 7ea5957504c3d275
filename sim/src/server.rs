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
    AttachRequest, Confirmed, Covering, Input, LeaveReason, Message, Output, Publication, Session,
    Settings, Tell, Ticket,
};
use rejoin_core::state::{
    Attach, AttachRefused, Create, End, EnterRefused, Keep, NewSnapshot, NewToken, Restore,
    TakeLease, Takeover, TokenUse,
};
use rejoin_core::token::{self, Claims, Grant, TokenHash};
use rejoin_core::{
    AttachmentId, Epoch, EventId, LogId, Principal, ProcessId, Seq, SessionId, Term, Timestamp,
};

use crate::disk::{Disk, Reply, Write};
use crate::judge::Judge;
use crate::random::Random;

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
    pub(crate) outbox: VecDeque<Down>,
}

/// An agent: says a few things about each message, and stores that it is done together with the last.
#[derive(Debug, Default)]
struct Agent {
    entries: VecDeque<StoredEntry>,
    said: u32,
    waits: bool,
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
        let Some(gone) = self.connections.remove(&connection) else { return };
        if let (Some(session), Some(attachment)) = (gone.session, gone.attachment) {
            self.feed(&session, Input::Left { attachment }, around);
        }
    }

    /// A frame came from a client.
    pub(crate) fn receive(
        &mut self,
        connection: u64,
        command: ClientCommand,
        around: &mut Around<'_>,
    ) {
        let Some(end) = self.connections.get(&connection) else { return };
        let attached = end.session.clone().zip(end.attachment);
        match command {
            ClientCommand::CreateSession => self.create(connection, around),
            ClientCommand::Reconnect { session_id, last_seq, epoch, token } => {
                let asked = Asked { last_seq: Some(last_seq), last_event_id: None, epoch };
                self.reconnect(connection, &session_id, asked, token, around);
            }
            ClientCommand::RestoreState { signed_state, last_seq, epoch: _ } => {
                self.restore(connection, &signed_state, last_seq, around);
            }
            ClientCommand::Message { message_id, content, .. } => {
                self.message(connection, attached, EntryKind::Message, message_id, content, around);
            }
            ClientCommand::Cancel { message_id, .. } => {
                let content = Body::from(&b"cancel"[..]);
                self.message(connection, attached, EntryKind::Cancel, message_id, content, around);
            }
            ClientCommand::Ack { last_seq, gap_detected, .. } => {
                if let Some((session, attachment)) = attached {
                    let ack = Input::Ack { attachment, seq: last_seq, resend: gap_detected };
                    self.feed(&session, ack, around);
                }
            }
            ClientCommand::RequestState { .. } => {
                if let Some((session, _)) = attached {
                    self.export(connection, &session, around);
                }
            }
            ClientCommand::EndSession { .. } => {
                if let Some((session, _)) = attached {
                    let end = End {
                        ending: Ending::Closed,
                        only_parked: None,
                        only_due: false,
                        remember_for: STATE_TTL,
                        now: around.now,
                    };
                    around.disk.ask(&session, Write::End(end));
                }
            }
        }
    }

    fn create(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(end) = self.connections.get_mut(&connection) else { return };
        let id = SessionId::from_random(around.random.bytes());
        let grant = Grant {
            session_id: id.clone(),
            principal: end.principal.clone(),
            generation: Default::default(),
            lifetime: TOKEN_TTL,
        };
        let issued = token::issue(around.keys, &grant, around.random.bytes(), around.now);
        end.fresh_token = Some(Secret::new(issued.token.as_str()));
        end.asked = None;
        let token = NewToken { hash: issued.hash, expires_at: issued.expires_at };
        let create = Box::new(new_session(id.clone(), end.principal.clone(), around));
        around.disk.ask(&id, Write::Create { connection, create, token });
    }

    fn reconnect(
        &mut self,
        connection: u64,
        id: &SessionId,
        asked: Asked,
        token: Option<Secret>,
        around: &mut Around<'_>,
    ) {
        let Some(end) = self.connections.get_mut(&connection) else { return };
        let record = around.disk.sessions.get(id).map(|session| session.record());
        let Some(record) = record.filter(|record| record.about.principal == end.principal) else {
            return self.refuse(connection, ErrorCode::SessionNotFound);
        };
        let token = match token {
            None => None,
            Some(text) => match token::verify(around.keys, text.reveal(), id, around.now) {
                Ok(claims) => Some((text.reveal().to_owned(), claims)),
                Err(token::TokenRefusal::Expired { otherwise_good: true }) => None,
                Err(_) => return self.refuse(connection, ErrorCode::TokenInvalid),
            },
        };
        end.asked = Some(asked);
        end.token = token;
        self.attach(connection, &record, around);
    }

    fn attach(&mut self, connection: u64, record: &Record, around: &mut Around<'_>) {
        self.leave_present(connection, around);
        let Some(end) = self.connections.get_mut(&connection) else { return };
        self.last_attachment += 1;
        let attachment = AttachmentId(self.last_attachment);
        end.session = Some(record.id().clone());
        end.attachment = Some(attachment);
        let token = end.token.as_ref().map(|(text, claims)| {
            let generation = record.generation;
            let next =
                token::successor(around.keys, text, claims, generation, around.now, TOKEN_TTL);
            let successor = NewToken { hash: next.hash, expires_at: next.expires_at };
            TokenUse { hash: TokenHash::of(text), successor, generation }
        });
        let attach = Attach {
            principal: end.principal.clone(),
            transport: Transport::WebSocket,
            takeover: Takeover::Replace,
            token,
            now: around.now,
        };
        let asked = end.asked.clone();
        let request = Box::new(AttachRequest { attachment, attach, asked });
        self.live(record);
        self.feed(record.id(), Input::Attach(request), around);
    }

    /// A connection is attached to at most one session.
    fn leave_present(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(end) = self.connections.get_mut(&connection) else { return };
        if let (Some(session), Some(attachment)) = (end.session.take(), end.attachment.take()) {
            self.feed(&session, Input::Left { attachment }, around);
        }
    }

    fn restore(
        &mut self,
        connection: u64,
        sealed: &Secret,
        last_seq: Seq,
        around: &mut Around<'_>,
    ) {
        let Some(end) = self.connections.get(&connection) else { return };
        let opened =
            seal::open(around.keys, sealed.reveal(), &end.principal, around.now, MAX_STATE);
        let opened = match opened {
            Ok(opened) => opened,
            Err(seal::OpenError::Expired { .. }) => {
                return self.refuse(connection, ErrorCode::StateExpired);
            }
            Err(seal::OpenError::NotAuthentic | seal::OpenError::TooLarge) => {
                return self.refuse(connection, ErrorCode::StateVerificationFailed);
            }
        };
        let new = SessionId::from_random(around.random.bytes());
        let facts = opened.facts;
        let size = u32::try_from(opened.content.len()).unwrap_or(u32::MAX);
        let restore = Restore {
            from: facts.session_id.clone(),
            create: new_session(new, end.principal.clone(), around),
            seq: facts.seq,
            in_seq: facts.in_seq,
            taken_at: facts.taken_at,
            state: NewSnapshot { size, body: opened.content.into() },
            last_seq: Some(last_seq),
            remember_for: STATE_TTL,
            now: around.now,
        };
        let from = facts.session_id;
        if let Some(end) = self.connections.get_mut(&connection) {
            end.asked = Some(Asked { last_seq: Some(last_seq), last_event_id: None, epoch: None });
        }
        around.disk.ask(&from, Write::Restore { connection, restore: Box::new(restore) });
    }

    fn message(
        &mut self,
        connection: u64,
        attached: Option<(SessionId, AttachmentId)>,
        kind: EntryKind,
        message_id: MessageId,
        content: Body,
        around: &mut Around<'_>,
    ) {
        let Some((session, attachment)) = attached else {
            return self.refuse(connection, ErrorCode::SessionNotOwned);
        };
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let digest = Some(MessageDigest::of(message_id.as_str(), &content));
        if let Some(live) = self.sessions.get_mut(&session) {
            live.tickets.insert(ticket, message_id);
        }
        let message = Message { ticket, from: Some(attachment), kind, digest, body: content };
        self.feed(&session, Input::Message(Box::new(message)), around);
    }

    /// A write has become durable.
    pub(crate) fn replied(&mut self, id: &SessionId, reply: Reply, around: &mut Around<'_>) {
        match reply {
            Reply::Input(input) => self.feed(id, input, around),
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
                        self.feed(id, Input::Ended { by: None }, around);
                    }
                    self.attach(connection, &record, around);
                }
                Err(rejoin_core::state::RestoreRefused::Superseded) => {
                    self.refuse(connection, ErrorCode::StateSuperseded);
                }
                Err(rejoin_core::state::RestoreRefused::Implausible { .. }) => {
                    self.refuse(connection, ErrorCode::InvalidMessage);
                }
            },
            Reply::Ended(Err(_)) | Reply::Nothing => {}
        }
    }

    fn live(&mut self, record: &Record) {
        self.sessions.entry(record.id().clone()).or_insert_with(|| Live {
            machine: Session::new(record.clone(), settings()),
            agent: None,
            term: None,
            asked_lease: false,
            tickets: BTreeMap::new(),
            publishing: BTreeMap::new(),
        });
    }

    /// Sessions with work that nobody attends to: at a start, and whenever the world looks.
    pub(crate) fn wake_workers(&mut self, around: &mut Around<'_>) {
        let records: Vec<Record> = around
            .disk
            .sessions
            .values()
            .map(|session| session.record())
            .filter(|record| record.is_active() && record.has_work())
            .collect();
        for record in records {
            self.live(&record);
            self.look_after_agent(record.id(), around);
        }
    }

    fn look_after_agent(&mut self, id: &SessionId, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        if live.machine.is_over() {
            live.agent = None;
            return;
        }
        match live.term {
            None if !live.asked_lease => {
                live.asked_lease = true;
                let lasts = Duration::from_secs(60);
                let take = TakeLease { holder: self.process.clone(), lasts, now: around.now };
                around.disk.ask(id, Write::Lease(take));
            }
            Some(_) if live.agent.is_none() && !live.machine.awaits_store() => {
                live.agent = Some(Agent::default());
                // What the machine believes may be behind the disk only by what is on its way.
                self.feed(id, Input::AgentReady { covering: Covering::Named }, around);
            }
            None | Some(_) => {}
        }
    }

    /// An agent dies; the next one begins from what is stored.
    pub(crate) fn kill_agent(&mut self, id: &SessionId, around: &mut Around<'_>) {
        if let Some(live) = self.sessions.get_mut(id)
            && live.agent.take().is_some()
        {
            self.feed(id, Input::AgentGone, around);
        }
    }

    /// An agent says the next thing.
    pub(crate) fn agent_speaks(&mut self, id: &SessionId, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        if !live.machine.accepts_publication() {
            return;
        }
        let Some(agent) = &mut live.agent else { return };
        if agent.waits {
            return;
        }
        let Some(entry) = agent.entries.front() else { return };
        let says = 1 + (entry.in_seq.get() % 3) as u32;
        let word = String::from_utf8_lossy(&entry.body).into_owned();
        let publication = if agent.said < says {
            agent.said += 1;
            let event = format!("{} of {word} ({})", agent.said, around.random.next());
            Publication { events: vec![event.into_bytes().into()], ..Publication::default() }
        } else {
            let entry_done = entry.in_seq;
            agent.said = 0;
            agent.entries.pop_front();
            let state = format!("{{\"stage\":\"after {entry_done}\",\"word\":\"{word}\"}}");
            Publication {
                events: vec![format!("done {word}").into_bytes().into()],
                state: Some(state.into_bytes().into()),
                in_seq: Some(entry_done),
            }
        };
        agent.waits = around.random.one_in(2);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        live.publishing.insert(ticket, ());
        let publication = Box::new(publication);
        self.feed(id, Input::Publish { ticket, publication }, around);
    }

    /// The time of parked sessions has come.
    pub(crate) fn reap(&mut self, around: &mut Around<'_>) {
        let lifetime = settings().lifetime;
        let due: Vec<Record> = around
            .disk
            .sessions
            .values()
            .map(|session| session.record())
            .filter(|record| {
                record.is_active() && record.due_at().is_some_and(|at| at <= around.now)
            })
            .collect();
        for record in due {
            let generation = record.generation;
            let write = match lifetime.on_due(&record, around.now) {
                Verdict::KeepUntil(until) => Write::Keep(Keep { generation, until }),
                Verdict::End => Write::End(End {
                    ending: Ending::Expired,
                    only_parked: Some(generation),
                    only_due: true,
                    remember_for: STATE_TTL,
                    now: around.now,
                }),
            };
            around.disk.ask(record.id(), write);
        }
    }

    pub(crate) fn tick(&mut self, around: &mut Around<'_>) {
        for id in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.feed(&id, Input::Tick, around);
            self.look_after_agent(&id, around);
        }
        self.sessions.retain(|_, live| !live.machine.is_idle() || live.busy());
    }

    pub(crate) fn session_ids(&self) -> Vec<SessionId> {
        self.sessions.keys().cloned().collect()
    }

    /// Feeds a machine and carries out what it says.
    fn feed(&mut self, id: &SessionId, input: Input, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        live.machine.handle(input, around.now);
        while let Some(output) = self.sessions.get_mut(id).and_then(|l| l.machine.poll_output()) {
            self.carry_out(id, output, around);
        }
    }

    fn carry_out(&mut self, id: &SessionId, output: Output, around: &mut Around<'_>) {
        match output {
            Output::Attach { attachment, attach } => {
                around.disk.ask(id, Write::Attach { attachment, attach });
            }
            Output::Detach { detach, then: _ } => around.disk.ask(id, Write::Detach(detach)),
            Output::Ack(ack) => around.disk.ask(id, Write::Ack(ack)),
            Output::Enter { ticket, from, enter } => {
                around.disk.ask(id, Write::Enter { ticket, from, enter });
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
                    agent.entries.extend(entries);
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
            Output::Leave { attachment, reason } => self.leave(attachment, reason),
            Output::WorkDone(verdict) => {
                let generation = around.disk.sessions[id].vitals.generation;
                if let Verdict::KeepUntil(until) = verdict {
                    around.disk.ask(id, Write::Keep(Keep { generation, until }));
                }
            }
        }
    }

    fn entered(
        &mut self,
        id: &SessionId,
        ticket: Ticket,
        from: Option<AttachmentId>,
        result: Result<rejoin_core::state::Entered, EnterRefused>,
    ) {
        let message_id = self.sessions.get_mut(id).and_then(|live| live.tickets.remove(&ticket));
        let connection = from.and_then(|attachment| self.connection_of(attachment));
        let (Some(message_id), Some(connection)) = (message_id, connection) else { return };
        let event = match result {
            Ok(entered) => ServerEvent::Accepted {
                message_id,
                in_seq: entered.in_seq,
                duplicate: entered.duplicate,
            },
            Err(refused) => {
                let code = match refused {
                    EnterRefused::Stale(_) => ErrorCode::SessionNotOwned,
                    EnterRefused::Ended(_) => ErrorCode::SessionClosed,
                    EnterRefused::OtherContent { .. } => ErrorCode::InvalidMessage,
                    EnterRefused::Full { .. } => ErrorCode::ServerBusy,
                };
                ServerEvent::Refused { code, retry_after: None, message_id: Some(message_id) }
            }
        };
        self.say(connection, event);
    }

    fn tell(
        &mut self,
        id: &SessionId,
        attachment: AttachmentId,
        tell: Tell,
        around: &mut Around<'_>,
    ) {
        let Some(connection) = self.connection_of(attachment) else { return };
        match tell {
            Tell::Confirmed(confirmed) => self.confirm(connection, *confirmed, around),
            Tell::Refused(refused) => {
                let code = match refused {
                    AttachRefused::Foreign => ErrorCode::SessionNotFound,
                    AttachRefused::Ended(Ending::Expired) => ErrorCode::SessionExpired,
                    AttachRefused::Ended(Ending::Closed | Ending::Restored { .. }) => {
                        ErrorCode::SessionClosed
                    }
                    AttachRefused::AlreadyAttached => ErrorCode::SessionAlreadyActive,
                    AttachRefused::Token(_) => ErrorCode::TokenInvalid,
                };
                self.refuse(connection, code);
            }
            Tell::Gap(gap) => self.say(connection, ServerEvent::Gap(gap)),
            Tell::State => self.export(connection, id, around),
            Tell::Events { events, replayed } => {
                let log = around.disk.sessions.get(id).map(|session| session.vitals.log);
                for event in events {
                    let event_id = log.map(|log| EventId { log, seq: event.seq });
                    let event = Event { seq: event.seq, event_id, replayed, body: event.body };
                    self.say(connection, ServerEvent::Event(event));
                }
            }
            Tell::ReplayComplete { .. } => self.say(connection, ServerEvent::ReplayComplete),
            Tell::Heartbeat { head, .. } => {
                self.say(connection, ServerEvent::Heartbeat { head, token: None });
            }
            Tell::AckAhead { .. } => self.refuse(connection, ErrorCode::AckAhead),
            Tell::Superseded => self.say(connection, ServerEvent::Superseded),
            Tell::Draining => self.say(connection, ServerEvent::Draining),
            Tell::Ended => self.say(connection, ServerEvent::SessionEnded),
        }
    }

    fn confirm(&mut self, connection: u64, confirmed: Confirmed, around: &mut Around<'_>) {
        let Some(end) = self.connections.get_mut(&connection) else { return };
        let record = &confirmed.record;
        if let Some(asked) = end.asked.take() {
            around.judge.resumed(&asked, &confirmed);
        }
        let token = match (&confirmed.token, end.token.take()) {
            (Some(used), Some((text, claims))) => {
                let whole = Timestamp::from_millis(used.used_at.as_secs() * 1000);
                let lifetime = used.successor.expires_at.since(whole);
                let next = token::successor_again(
                    around.keys,
                    &text,
                    &claims,
                    used.generation,
                    used.used_at,
                    lifetime,
                    &used.successor.hash,
                );
                let Some(next) = next else { panic!("P7: a successor can't be made again") };
                Some(Secret::new(next.token.as_str()))
            }
            (None | Some(_), _) => end.fresh_token.take(),
        };
        let gap = match confirmed.gap {
            Some(Gap::Evicted { missing, .. }) => Some(missing),
            Some(Gap::PositionUnknown) | None => None,
        };
        let event = if std::mem::take(&mut end.restored) {
            ServerEvent::StateRestored {
                new_session_id: record.id().clone(),
                epoch: record.epoch.clone(),
                gap,
                token,
            }
        } else {
            ServerEvent::SessionCreated {
                session_id: record.id().clone(),
                resumed: confirmed.resumed,
                epoch: record.epoch.clone(),
                replay_from: confirmed.replay_from,
                gap,
                token,
            }
        };
        self.say(connection, event);
    }

    /// Seals the state and sends it.
    fn export(&mut self, connection: u64, id: &SessionId, around: &mut Around<'_>) {
        let Some(session) = around.disk.sessions.get(id) else { return };
        let Some(snapshot) = &session.snapshot else { return };
        let facts = StateFacts {
            principal: session.about.principal.clone(),
            session_id: id.clone(),
            epoch: session.vitals.epoch.clone(),
            seq: snapshot.mark.seq,
            in_seq: snapshot.mark.in_seq,
            taken_at: around.now,
            expires_at: around.now + STATE_TTL,
        };
        let nonce = around.random.bytes();
        match seal::seal(around.keys, &facts, &snapshot.body, nonce, MAX_STATE) {
            Ok(sealed) => {
                let signed_state = Secret::new(&sealed);
                let state = Body::clone(&snapshot.body);
                let exported = ExportedState { signed_state, seq: snapshot.mark.seq, state };
                self.say(connection, ServerEvent::StateExported(exported));
            }
            Err(error) => panic!("a small state can be sealed: {error}"),
        }
    }

    fn leave(&mut self, attachment: AttachmentId, reason: LeaveReason) {
        let Some(connection) = self.connection_of(attachment) else { return };
        if let Some(end) = self.connections.get_mut(&connection) {
            end.session = None;
            end.attachment = None;
            if let LeaveReason::Closed(code) = reason {
                end.outbox.push_back(Down::Close(CloseCode::code(code)));
            }
        }
    }

    /// The client's socket has taken everything.
    pub(crate) fn drained(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(end) = self.connections.get(&connection) else { return };
        if let Some((session, attachment)) = end.session.clone().zip(end.attachment) {
            self.feed(&session, Input::Writable { attachment }, around);
        }
    }

    fn connection_of(&self, attachment: AttachmentId) -> Option<u64> {
        let mine = |end: &Connection| end.attachment == Some(attachment);
        self.connections.iter().find(|(_, end)| mine(end)).map(|(id, _)| *id)
    }

    fn refuse(&mut self, connection: u64, code: ErrorCode) {
        let refused = ServerEvent::Refused { code, retry_after: None, message_id: None };
        self.say(connection, refused);
    }

    fn say(&mut self, connection: u64, event: ServerEvent) {
        if let Some(end) = self.connections.get_mut(&connection) {
            end.outbox.push_back(Down::Event(event));
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

fn new_session(id: SessionId, principal: Principal, around: &mut Around<'_>) -> Create {
    Create {
        about: About {
            id,
            principal,
            kind: Kind::Agent,
            client: "".into(),
            created_at: around.now,
        },
        log: LogId::from_random(around.random.bytes()),
        epoch: Epoch::from_random(around.random.bytes()),
        keep_for: settings().lifetime.session_ttl,
    }
}
