//! A model of the server, as far as a client can tell: sessions with a log that is written to a wire
//! from a position on. It says what is gone before it goes on.

use std::collections::VecDeque;

use super::*;

/// A numbering: events of one line with the same seq are the same event.
pub(super) type Line = u64;

/// One session of the model server.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) epoch: Epoch,
    /// Epochs of the sessions it was restored from, whose numbering it goes on with.
    pub(super) earlier: Vec<Epoch>,
    pub(super) line: Line,
    pub(super) oldest: u64,
    pub(super) head: u64,
    pub(super) alive: bool,
    /// The session that was restored from it.
    pub(super) restored_to: Option<usize>,
    /// The messages it has, and those it took over.
    pub(super) messages: Vec<MessageId>,
}

/// What the client stands at, as the server makes sense of it.
#[derive(Clone, Copy)]
enum Start {
    After(u64),
    Gap { after: u64 },
    Unknown,
}

impl Session {
    fn start(&self, last_seq: Seq, epoch: Option<&Epoch>, restoring: bool) -> Start {
        let same =
            |epoch: &Epoch| self.epoch == *epoch || restoring && self.earlier.contains(epoch);
        let last = last_seq.get();
        if !epoch.is_some_and(same) || last > self.head {
            Start::Unknown
        } else if last + 1 < self.oldest {
            Start::Gap { after: last }
        } else {
            Start::After(last)
        }
    }
}

/// The wire, both ways.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) to_client: VecDeque<ServerEvent>,
    pub(super) to_server: VecDeque<ClientCommand>,
    /// The session attached to, and the last event written.
    pub(super) attached: Option<(usize, u64)>,
    pub(super) replay_ends_at: Option<u64>,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) sessions: Vec<Session>,
    pub(super) lines: u64,
    epochs: u64,
    pub(super) busy: bool,
    /// Every message entered, in whichever session.
    pub(super) entered: Vec<MessageId>,
}

impl Server {
    pub(super) fn new_epoch(&mut self) -> Epoch {
        self.epochs += 1;
        epoch(self.epochs)
    }

    fn add(&mut self, earlier: Vec<Epoch>, line: Option<Line>, oldest: u64, head: u64) -> usize {
        let line = line.unwrap_or_else(|| {
            self.lines += 1;
            self.lines
        });
        let number = self.sessions.len();
        let id = session(u8::try_from(number).unwrap());
        let epoch = self.new_epoch();
        self.sessions.push(Session {
            id,
            epoch,
            earlier,
            line,
            oldest,
            head,
            alive: true,
            restored_to: None,
            messages: Vec::new(),
        });
        number
    }

    pub(super) fn read(&mut self, command: ClientCommand, wire: &mut Wire) {
        match command {
            ClientCommand::CreateSession => {
                let number = self.add(vec![], None, 1, 0);
                let Session { id, epoch, .. } = &self.sessions[number];
                wire.to_client.push_back(created(id.clone(), epoch.clone()));
                wire.attached = Some((number, 0));
            }
            ClientCommand::Reconnect { session_id, last_seq, epoch, .. } => {
                match self.sessions.iter().position(|s| s.id == session_id && s.alive) {
                    Some(number) => self.resume(number, last_seq, epoch.as_ref(), false, wire),
                    None => wire.to_client.push_back(refused(ErrorCode::SessionExpired)),
                }
            }
            ClientCommand::RestoreState { signed_state, last_seq, epoch } => {
                match self.restore(signed_state.reveal(), last_seq, epoch.as_ref()) {
                    Some(number) => self.resume(number, last_seq, epoch.as_ref(), true, wire),
                    None => wire.to_client.push_back(refused(ErrorCode::StateSuperseded)),
                }
            }
            ClientCommand::Message { message_id, .. } => self.enter(message_id, wire),
            ClientCommand::Ack { last_seq, gap_detected, .. } => {
                let Some((number, written)) = wire.attached.as_mut() else { return };
                let head = self.sessions[*number].head;
                assert!(last_seq.get() <= head, "ack of {last_seq}, head is {head}");
                if gap_detected {
                    *written = last_seq.get();
                    wire.replay_ends_at = Some(head);
                }
            }
            ClientCommand::Cancel { .. }
            | ClientCommand::RequestState { .. }
            | ClientCommand::EndSession { .. } => unreachable!("the model sends none"),
        }
    }

    /// The session that goes on from the snapshot `number epoch seq`, made if need be.
    fn restore(&mut self, sealed: &str, last: Seq, epoch: Option<&Epoch>) -> Option<usize> {
        let mut words = sealed.split(' ');
        let from: usize = words.next().unwrap().parse().unwrap();
        let taken_in = Epoch::from_text(words.next().unwrap());
        let seq: u64 = words.next().unwrap().parse().unwrap();
        if let Some(to) = self.sessions[from].restored_to {
            return self.sessions[to].alive.then_some(to);
        }
        let old = &self.sessions[from];
        let with_log = old.head >= old.oldest;
        let comparable = epoch == Some(&taken_in);
        let number = if with_log {
            let (line, oldest, head) = (old.line, old.oldest, old.head);
            let earlier = [&old.earlier[..], std::slice::from_ref(&old.epoch)].concat();
            self.add(earlier, Some(line), oldest, head)
        } else if comparable && taken_in == old.epoch {
            let (line, head) = (old.line, seq.max(last.get()));
            self.add(vec![taken_in], Some(line), head + 1, head)
        } else {
            let head = seq.max(last.get());
            self.add(vec![], None, head + 1, head)
        };
        self.sessions[number].messages = self.sessions[from].messages.clone();
        self.sessions[from].restored_to = Some(number);
        Some(number)
    }

    fn resume(
        &mut self,
        number: usize,
        last_seq: Seq,
        epoch: Option<&Epoch>,
        restoring: bool,
        wire: &mut Wire,
    ) {
        let session = &self.sessions[number];
        let start = session.start(last_seq, epoch, restoring);
        let (written, gap) = match start {
            Start::After(after) => (after, None),
            Start::Gap { after } => {
                (session.oldest - 1, Some(confirmed(range(after + 1, session.oldest - 1))))
            }
            Start::Unknown => (session.oldest - 1, Some(Gap::PositionUnknown)),
        };
        let (id, epoch) = (session.id.clone(), session.epoch.clone());
        let replay_from = Seq::new(written + 1);
        wire.to_client.push_back(if restoring {
            ServerEvent::StateRestored { new_session_id: id, epoch, gap, token: None }
        } else {
            let (session_id, resumed, token) = (id, true, None);
            ServerEvent::SessionCreated { session_id, resumed, epoch, replay_from, gap, token }
        });
        match start {
            Start::After(_) => {}
            Start::Gap { after } => {
                let notice = ServerEvent::Gap(evicted(after + 1, session.oldest - 1));
                wire.to_client.push_back(notice);
            }
            Start::Unknown => wire.to_client.push_back(ServerEvent::Gap(Gap::PositionUnknown)),
        }
        wire.attached = Some((number, written));
        wire.replay_ends_at = Some(session.head);
    }

    fn enter(&mut self, message_id: MessageId, wire: &mut Wire) {
        let Some((number, _)) = wire.attached else { return };
        let messages = &mut self.sessions[number].messages;
        let known = messages.iter().position(|entered| *entered == message_id);
        if known.is_none() && std::mem::take(&mut self.busy) {
            let (code, retry_after) = (ErrorCode::ServerBusy, Some(seconds(2)));
            let message_id = Some(message_id);
            wire.to_client.push_back(ServerEvent::Refused { code, retry_after, message_id });
            return;
        }
        let in_seq = InSeq::new(known.unwrap_or(messages.len()) as u64 + 1);
        if known.is_none() {
            messages.push(message_id.clone());
            self.entered.push(message_id.clone());
        }
        let duplicate = known.is_some();
        wire.to_client.push_back(ServerEvent::Accepted { message_id, in_seq, duplicate });
    }

    /// Writes up to `count` events to the wire, and says what is gone before it does.
    pub(super) fn write(&self, count: usize, wire: &mut Wire) {
        let Some((number, mut written)) = wire.attached else { return };
        let session = &self.sessions[number];
        for _ in 0..count {
            if written + 1 < session.oldest {
                let notice = ServerEvent::Gap(evicted(written + 1, session.oldest - 1));
                wire.to_client.push_back(notice);
                written = session.oldest - 1;
            }
            if written < session.head {
                written += 1;
                let body = format!("{} {written}", session.line).into_bytes().into();
                let (seq, event_id, replayed) = (Seq::new(written), None, false);
                let event = Event { seq, event_id, replayed, body };
                wire.to_client.push_back(ServerEvent::Event(event));
            }
            if wire.replay_ends_at.is_some_and(|end| end <= written) {
                wire.replay_ends_at = None;
                wire.to_client.push_back(ServerEvent::ReplayComplete);
            }
        }
        wire.attached = Some((number, written));
    }
}
