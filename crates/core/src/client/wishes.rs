//! What the application wants: to tell the agent something, to have its state, to end the session.

use super::connection::Phase;
use super::outbox::Letter;
use super::{Client, ClientCommand, GivenUp, MessageId, Output, StopReason};
use crate::ids::SessionId;
use crate::time::Timestamp;

impl Client {
    /// It wants to tell the agent something.
    pub(super) fn post(&mut self, message_id: MessageId, letter: Letter) {
        if self.phase == Phase::Stopped || self.wants_end {
            return self.tell_given_up(message_id, GivenUp::NotSent);
        }
        if self.outbox.push(message_id.clone(), letter).is_err() {
            self.tell_given_up(message_id, GivenUp::OutboxFull);
        }
    }

    /// Writes what may be written now. The client must be attached.
    pub(super) fn send_letters(&mut self, now: Timestamp) {
        let Some(session_id) = self.attached_to() else { return };
        while let Some((message_id, letter)) = self.outbox.next(now) {
            let session_id = session_id.clone();
            self.command(match letter {
                Letter::Message(content) => {
                    ClientCommand::Message { session_id, message_id, content }
                }
                Letter::Cancel => ClientCommand::Cancel { session_id, message_id },
            });
        }
    }

    /// It wants the state: asked for now, or as soon as it can be; and again after a connection that
    /// broke before the answer.
    pub(super) fn request_state(&mut self) {
        if self.phase == Phase::Stopped || self.wants_end {
            return;
        }
        self.wants_state = true;
        if let Some(session_id) = self.attached_to() {
            self.command(ClientCommand::RequestState { session_id });
        }
    }

    /// It wants the end: now, or as soon as it can be. Where there is no session and none was asked
    /// for, there is nothing to end.
    pub(super) fn end(&mut self) {
        if self.phase == Phase::Stopped || self.wants_end {
            return;
        }
        self.wants_end = true;
        self.give_up_all();
        if let Some(session_id) = self.attached_to() {
            self.command(ClientCommand::EndSession { session_id });
        } else if self.session_id.is_none() && !matches!(self.phase, Phase::Asking(_)) {
            self.stop(StopReason::Ended);
        }
    }

    /// Gives up what may have reached a session that is gone.
    pub(super) fn give_up_unanswered(&mut self) {
        for message_id in self.outbox.take_unanswered() {
            self.tell_given_up(message_id, GivenUp::OutcomeUnknown);
        }
    }

    /// Gives up everything: nothing is sent any more.
    pub(super) fn give_up_all(&mut self) {
        self.give_up_unanswered();
        for message_id in self.outbox.take_all() {
            self.tell_given_up(message_id, GivenUp::NotSent);
        }
    }

    pub(super) fn give_up(&mut self, message_id: MessageId, reason: GivenUp) {
        if self.outbox.remove(&message_id) {
            self.tell_given_up(message_id, reason);
        }
    }

    fn tell_given_up(&mut self, message_id: MessageId, reason: GivenUp) {
        self.outputs.push_back(Output::GivenUp { message_id, reason });
    }

    pub(super) fn attached_to(&self) -> Option<SessionId> {
        self.session_id.clone().filter(|_| self.phase == Phase::Attached)
    }
}
