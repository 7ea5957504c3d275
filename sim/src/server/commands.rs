//! What clients send: the wire's side of a session, as far as the simulation needs it.

use super::*;

impl Server {
    /// A frame came from a client.
    pub(crate) fn receive(
        &mut self,
        connection: u64,
        command: ClientCommand,
        around: &mut Around<'_>,
    ) {
        let Some(end) = self.connections.get(&connection) else { return };
        let attached = end.session.clone();
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
                self.post(connection, EntryKind::Message, message_id, content, around);
            }
            ClientCommand::Cancel { message_id, .. } => {
                let content = Body::from(&b"cancel"[..]);
                self.post(connection, EntryKind::Cancel, message_id, content, around);
            }
            ClientCommand::Ack { last_seq, gap_detected, .. } => {
                let ack = ReaderInput::Ack { seq: last_seq, resend: gap_detected };
                self.feed_reader(connection, ack, around);
            }
            ClientCommand::RequestState { .. } => {
                if let Some(session) = attached {
                    self.export(connection, &session, around);
                }
            }
            ClientCommand::EndSession { .. } => {
                if let Some(session) = attached {
                    let end = End {
                        ending: Ending::Closed,
                        only_parked: None,
                        only_by: None,
                        only_due: false,
                        remember_for: STATE_TTL,
                        now: around.now,
                    };
                    around.disk.ask(&session, Write::End(end));
                }
            }
        }
    }

    pub(super) fn create(&mut self, connection: u64, around: &mut Around<'_>) {
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

    pub(super) fn reconnect(
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

    pub(super) fn attach(&mut self, connection: u64, record: &Record, around: &mut Around<'_>) {
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
            TokenUse { hash: TokenHash::of(text), successor, generation, by_call: false }
        });
        let attach = Attach {
            principal: end.principal.clone(),
            transport: Transport::WebSocket,
            takeover: Takeover::Replace,
            token,
            attempt: None,
            now: around.now,
        };
        let attach = Box::new(attach);
        around.disk.ask(record.id(), Write::Attach { attachment, attach });
    }

    /// A connection is attached to at most one session.
    pub(super) fn leave_present(&mut self, connection: u64, around: &mut Around<'_>) {
        self.reader_gone(connection, around);
        let Some(end) = self.connections.get_mut(&connection) else { return };
        (end.session, end.attachment) = (None, None);
    }

    pub(super) fn restore(
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
            origin: Origin::Unsaid,
            create: new_session(new, end.principal.clone(), around),
            epoch: facts.epoch,
            seq: facts.seq,
            in_seq: facts.in_seq,
            taken_at: facts.taken_at,
            state: NewSnapshot { size, body: opened.content.into() },
            last_seq: Some(last_seq),
            takeover: Takeover::Replace,
            remember_for: STATE_TTL,
            only_at: None,
            attempt: None,
            now: around.now,
        };
        let from = facts.session_id;
        if let Some(end) = self.connections.get_mut(&connection) {
            end.asked = Some(Asked { last_seq: Some(last_seq), last_event_id: None, epoch: None });
        }
        around.disk.ask(&from, Write::Restore { connection, restore: Box::new(restore) });
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
        room: Room::UNLIMITED,
    }
}
