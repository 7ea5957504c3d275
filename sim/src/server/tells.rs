//! What clients are told.

use super::*;

/// What a client makes of a connection that ends without a word.
const ABNORMAL: u16 = 1006;

impl Server {
    pub(super) fn say_entered(
        &mut self,
        connection: u64,
        message_id: MessageId,
        result: Result<rejoin_core::state::Entered, EnterRefused>,
    ) {
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
                    EnterRefused::Full { .. }
                    | EnterRefused::OverBound(_)
                    | EnterRefused::Paused => ErrorCode::ServerBusy,
                };
                ServerEvent::Refused { code, retry_after: None, message_id: Some(message_id) }
            }
        };
        self.say(connection, event);
    }

    pub(super) fn tell_refused(&mut self, connection: u64, refused: &AttachRefused) {
        let code = match refused {
            AttachRefused::Foreign => ErrorCode::SessionNotFound,
            AttachRefused::Ended(Ending::Expired) => ErrorCode::SessionExpired,
            AttachRefused::Ended(Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp) => {
                ErrorCode::SessionClosed
            }
            AttachRefused::AlreadyAttached => ErrorCode::SessionAlreadyActive,
            AttachRefused::Token(_) => ErrorCode::TokenInvalid,
        };
        self.refuse(connection, code);
    }

    pub(super) fn tell_to(
        &mut self,
        connection: u64,
        id: &SessionId,
        tell: Tell,
        around: &mut Around<'_>,
    ) {
        match tell {
            Tell::Confirmed(confirmed) => self.confirm(connection, *confirmed, around),
            Tell::Gap(gap) => self.say(connection, ServerEvent::Gap(gap)),
            Tell::State | Tell::Checkpoint => self.export(connection, id, around),
            Tell::Events { events, replayed } => {
                let log = around.disk.sessions.get(id).map(|session| session.vitals.log);
                for event in events {
                    self.check_order(connection, &event.body);
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

    pub(super) fn confirm(
        &mut self,
        connection: u64,
        confirmed: Confirmed,
        around: &mut Around<'_>,
    ) {
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
            // What the state makes up for is told by the notice.
            Some(Gap::Evicted { missing, .. }) => {
                Some(Gap::Evicted { missing, lost: Some(missing) })
            }
            Some(Gap::PositionUnknown) | None => confirmed.gap,
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
    pub(super) fn export(&mut self, connection: u64, id: &SessionId, around: &mut Around<'_>) {
        let Some(session) = around.disk.sessions.get(id) else { return };
        let Some(snapshot) = &session.snapshot else { return };
        let facts = StateFacts {
            principal: session.about.principal.clone(),
            session_id: id.clone(),
            epoch: session.vitals.epoch.clone(),
            seq: snapshot.mark.seq,
            in_seq: snapshot.mark.in_seq,
            taken_at: around.now,
            sealed_at: Some(around.now),
            expires_at: around.now + STATE_TTL,
            origin: None,
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

    /// Nobody hears an answer to a message before it hears that the message was accepted.
    fn check_order(&self, connection: u64, event: &[u8]) {
        let Some(end) = self.connections.get(&connection) else { return };
        let text = String::from_utf8_lossy(event);
        for word in &end.entered_unsaid {
            let answers = [format!(" of {word} ("), format!("done {word}\"")];
            let early = answers.iter().any(|answer| text.contains(answer));
            assert!(!early, "P12: {text} is sent before {word} was accepted");
        }
    }

    pub(super) fn leave_connection(&mut self, connection: u64, reason: LeaveReason) {
        if let Some(end) = self.connections.get_mut(&connection) {
            end.session = None;
            end.attachment = None;
            match reason {
                LeaveReason::Closed(code) => {
                    end.outbox.push_back(Down::Close(CloseCode::code(code)))
                }
                LeaveReason::Cut => end.outbox.push_back(Down::Close(ABNORMAL)),
            }
        }
    }

    pub(super) fn connection_of(&self, attachment: AttachmentId) -> Option<u64> {
        let mine = |end: &Connection| end.attachment == Some(attachment);
        self.connections.iter().find(|(_, end)| mine(end)).map(|(id, _)| *id)
    }

    pub(super) fn refuse(&mut self, connection: u64, code: ErrorCode) {
        let refused = ServerEvent::Refused { code, retry_after: None, message_id: None };
        self.say(connection, refused);
    }

    pub(super) fn say(&mut self, connection: u64, event: ServerEvent) {
        if let Some(end) = self.connections.get_mut(&connection) {
            end.outbox.push_back(Down::Event(event));
        }
    }
}
