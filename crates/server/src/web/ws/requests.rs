//! What is done for each request of a client.

use rejoin_core::codes::{CloseCode, ErrorCode};
use rejoin_core::log::EntryKind;
use rejoin_core::record::{Ending, Kind, Transport};
use rejoin_core::state::Entered;
use rejoin_core::{MessageId, Seq, SessionId, Timestamp};
use serde_json::json;
use serde_json::value::RawValue;

use super::connection::{AfterStep, Attached, Connection, ERROR, MessageReply, RECOVERY_FAILED};
use super::frames::{Position, Rare, Reconnect, Request};
use super::words::{self, Trouble};
use crate::entry::EntryBody;
use crate::random;
use crate::service::{self, Denial, Include, Joined, RestoreRequest, Visitor};
use crate::web::receiving::Sender;

impl Connection {
    pub(super) async fn on_request(&mut self, request: Request) -> AfterStep {
        if let Request::Authenticate { credential } = &request {
            return self.authenticate(credential).await;
        }
        let Some(visitor) = self.visitor.clone() else { return self.ask_who() };
        match request {
            Request::Authenticate { .. } => AfterStep::GoOn, // done
            Request::Post { session, kind, content, message_id } => {
                self.post(&visitor, &session, kind, content, message_id).await
            }
            Request::Ack { session, last_seq, gap_detected } => {
                self.ack(&visitor, &session, last_seq, gap_detected).await
            }
            Request::Rare(rare) => {
                self.await_replies().await; // answers come in the order of requests
                self.heard();
                // In a box: it is large, and every ack would have room for it.
                Box::pin(self.on_rare(&visitor, rare)).await
            }
        }
    }

    /// Waits for the answers to everything that was asked so far.
    pub(super) async fn await_replies(&mut self) {
        while !self.replies.is_empty() {
            let reply = self.replies.next().await;
            self.send_reply(reply);
        }
    }

    async fn on_rare(&mut self, visitor: &Visitor, request: Rare) -> AfterStep {
        match request {
            Rare::CreateSession { client, name } => self.create(visitor, client, name).await,
            Rare::Reconnect(reconnect) => self.reconnect(visitor, reconnect, ERROR).await,
            Rare::ReconnectWithState(reconnect) => {
                self.reconnect(visitor, reconnect, RECOVERY_FAILED).await
            }
            Rare::Restore { signed_state, position } => {
                self.restore(visitor, signed_state, position).await
            }
            Rare::ExportState { session, include } => {
                self.export_state(visitor, &session, include).await
            }
            Rare::EndSession { session } => self.end(visitor, &session).await,
        }
    }

    async fn authenticate(&mut self, credential: &str) -> AfterStep {
        let Ok(caller) = self.front.admit(credential, super::presented_from(self.address())).await
        else {
            return AfterStep::Close(CloseCode::NotAuthorised);
        };
        let other = |known: &Visitor| known.caller.principal != caller.principal;
        if self.visitor.as_ref().is_some_and(other) {
            let sentence = "This connection is somebody else's; open another one";
            return self.complain(Trouble::new(ErrorCode::Unauthorized, sentence));
        }
        let content = json!({ "principal": caller.principal });
        let sender = Sender::of(&self.front, &caller, self.address());
        self.intake.open(self.front.receiving.place(sender));
        self.visitor = Some(Visitor::over(Transport::WebSocket, caller, self.address()));
        let frame = words::control("system.authenticated", None, self.now(), content, json!({}));
        self.out.text(frame);
        AfterStep::GoOn
    }

    async fn create(
        &mut self,
        visitor: &Visitor,
        client: String,
        name: Option<String>,
    ) -> AfterStep {
        let made = self.service().create(visitor, Kind::Agent, &client, name.as_deref()).await;
        let joined = match made {
            Ok(record) => self.service().join_new(visitor, &record, Transport::WebSocket).await,
            Err(denial) => Err(denial),
        };
        match joined {
            Ok(joined) => self.joined(joined, false),
            Err(denial) => self.refuse(denial, ERROR, None),
        }
    }

    async fn reconnect(
        &mut self,
        visitor: &Visitor,
        reconnect: Reconnect,
        event: &str,
    ) -> AfterStep {
        let Reconnect { session, position: Position { admission, batch } } = reconnect;
        let transport = Transport::WebSocket;
        match self.service().join(visitor, &session, transport, admission).await {
            Ok(joined) => self.joined(joined, batch),
            Err(denial) => self.refuse(denial, event, Some(&session)),
        }
    }

    async fn restore(
        &mut self,
        visitor: &Visitor,
        signed_state: String,
        position: Position,
    ) -> AfterStep {
        let Position { admission, batch } = position;
        let request = RestoreRequest { signed_state, admission };
        match self.service().restore(visitor, request, Transport::WebSocket).await {
            Ok(restored) => {
                self.out.text(words::state_restored(&restored, self.now()));
                self.attach(restored.joined, batch, restored.log_gone)
            }
            Err(denial) => self.refuse(denial, ERROR, None),
        }
    }

    fn joined(&mut self, joined: Joined, batch: bool) -> AfterStep {
        let ttl = self.service().sessions().settings().session.lifetime.session_ttl;
        self.out.text(words::session_created(&joined, ttl, self.now()));
        self.attach(joined, batch, false)
    }

    /// From here on it is a reader of this session. The one it was attached to before is parked.
    fn attach(&mut self, joined: Joined, batch: bool, log_gone: bool) -> AfterStep {
        let Joined { attachment, confirmed, .. } = joined;
        self.events_out = false;
        let (sent, record) = (confirmed.replay_from.previous(), confirmed.record);
        let (held_state, last_state) = (None, None);
        self.attached =
            Some(Attached { attachment, record, batch, log_gone, sent, held_state, last_state });
        AfterStep::GoOn
    }

    async fn export_state(
        &mut self,
        visitor: &Visitor,
        session: &SessionId,
        include: Include,
    ) -> AfterStep {
        let Some(attached) = self.attached.as_ref().filter(|attached| attached.is(session)) else {
            let trouble = self.not_attached(visitor, session, ErrorCode::SessionInactive).await;
            return self.tell_trouble(&trouble, session);
        };
        let record = attached.record.clone();
        match self.service().export_record(&record, include).await {
            Ok(exported) => self.out.text(words::state_exported(session, exported, self.now())),
            Err(denial) => return self.refuse(denial, ERROR, Some(session)),
        }
        AfterStep::GoOn
    }

    async fn end(&mut self, visitor: &Visitor, session: &SessionId) -> AfterStep {
        let store = self.service().sessions().store().clone();
        let Some(attached) = self.attached.as_mut().filter(|attached| attached.is(session)) else {
            let trouble = self.not_attached(visitor, session, ErrorCode::SessionClosed).await;
            return self.tell_trouble(&trouble, session);
        };
        match store.unless_stalled(attached.attachment.end()).await {
            Ok(()) => {
                self.attached = None;
                self.out.text(words::session_ended(session, self.now()));
                AfterStep::GoOn
            }
            Err(failure) => self.refuse(failure.into(), ERROR, Some(session)),
        }
    }

    /// Puts a message or a cancel on its way; the answer follows when the store has it.
    async fn post(
        &mut self,
        visitor: &Visitor,
        session: &SessionId,
        kind: EntryKind,
        content: Option<Box<RawValue>>,
        message_id: Option<MessageId>,
    ) -> AfterStep {
        let may_post = self.may_post(kind);
        let Some(attached) = self.attached.as_mut().filter(|attached| attached.is(session)) else {
            let trouble = self.not_attached(visitor, session, ErrorCode::SessionClosed).await;
            let frame = trouble.frame(ERROR, Some(session), message_id.as_ref(), self.now());
            self.out.text(frame);
            return AfterStep::GoOn;
        };
        let given = message_id.is_some();
        let message_id = match message_id.map_or_else(made_id, Ok) {
            Ok(message_id) => message_id,
            Err(denial) => return self.refuse(denial, ERROR, Some(session)),
        };
        let body = EntryBody { content, message_id: Some(message_id.clone()) }.to_body();
        let known_by = given.then_some(message_id.as_str());
        let posted = match may_post {
            Ok(()) => Ok(attached.attachment.post(kind, known_by, body)),
            Err(denial) => {
                attached.attachment.heard();
                Err(denial)
            }
        };
        let (front, session) = (self.front.clone(), session.clone());
        let place = self.intake.hand_on();
        self.replies.join(async move {
            let _place = place; // until the store has it
            let store = front.service.sessions().store();
            let entered = match posted {
                Ok(posted) => store.unless_stalled(posted.entered()).await.map_err(Denial::from),
                Err(denial) => Err(denial),
            };
            let stands_still = store.check_commits().is_err(); // that passes
            let is_unserved = matches!(entered, Err(Denial::Unavailable)) && !stands_still;
            let in_seq = entered.as_ref().ok().map(|entered| entered.in_seq);
            let frame = posted_words(&session, &message_id, entered, front.service.now());
            MessageReply { frame, in_seq, is_unserved }
        });
        AfterStep::GoOn
    }

    /// A server that goes down takes nothing new; what is under way can still be cancelled.
    fn may_post(&self, kind: EntryKind) -> Result<(), Denial> {
        self.service().check_room()?;
        match kind {
            EntryKind::Message => self.service().check_open(),
            EntryKind::Cancel => Ok(()),
        }
    }

    async fn ack(
        &mut self,
        visitor: &Visitor,
        session: &SessionId,
        last_seq: Seq,
        gap_detected: bool,
    ) -> AfterStep {
        match self.attached.as_mut().filter(|attached| attached.is(session)) {
            Some(attached) => {
                // What is sent again comes one event a frame, whatever the reconnect asked for.
                attached.batch &= !gap_detected;
                attached.attachment.ack(last_seq, gap_detected);
                AfterStep::GoOn
            }
            None => {
                let trouble = self.not_attached(visitor, session, ErrorCode::SessionClosed).await;
                self.tell_trouble(&trouble, session)
            }
        }
    }

    /// Why a request about a session is refused that this connection is not attached to. `closed` is
    /// what one is called that was ended.
    async fn not_attached(
        &mut self,
        visitor: &Visitor,
        session: &SessionId,
        closed: ErrorCode,
    ) -> Trouble {
        let record = match self.service().own(visitor, session).await {
            Ok(record) => record,
            Err(denial) => return denial.into(),
        };
        match service::ending(&record, self.now()) {
            Some(ending @ Ending::Expired) => Denial::Ended(ending).into(),
            Some(Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp) => {
                Trouble::new(closed, "Session is not active")
            }
            None => {
                let sentence = "Session does not belong to this connection";
                Trouble::new(ErrorCode::SessionNotOwned, sentence)
            }
        }
    }

    fn tell_trouble(&mut self, trouble: &Trouble, session: &SessionId) -> AfterStep {
        self.out.text(trouble.frame(ERROR, Some(session), None, self.now()));
        AfterStep::GoOn
    }

    fn refuse(&mut self, denial: Denial, event: &str, session: Option<&SessionId>) -> AfterStep {
        self.out.text(Trouble::from(denial).frame(event, session, None, self.now()));
        AfterStep::GoOn
    }
}

/// What became of a message or a cancel.
fn posted_words(
    session: &SessionId,
    message_id: &MessageId,
    entered: Result<Entered, Denial>,
    now: Timestamp,
) -> String {
    match entered {
        Ok(entered) => words::accepted(session, message_id, entered, now),
        Err(denial) => Trouble::from(denial).frame(ERROR, Some(session), Some(message_id), now),
    }
}

/// An id for a message that came without one, so that it can be spoken of.
fn made_id() -> Result<MessageId, Denial> {
    let id = format!("msg_{:032x}", u128::from_le_bytes(random::bytes()?));
    MessageId::parse(&id).map_err(|error| Denial::Invalid(error.to_string().into()))
}
