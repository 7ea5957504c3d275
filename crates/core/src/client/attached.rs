//! What comes in from the server: the answer to what was asked for, and everything after it.

use std::time::Duration;

use super::connection::Phase;
use super::delivery::{AckDue, Judgement};
use super::recover::{Request, SessionConfirmed};
use super::{
    Client, ClientCommand, Event, ExportedState, GivenUp, MessageId, Output, Secret, ServerEvent,
    Snapshot, Status, StopReason,
};
use crate::codes::{ErrorCode, Recovery};
use crate::position::{InSeq, Seq};
use crate::resume::Gap;
use crate::time::Timestamp;

impl Client {
    pub(super) fn on_received(&mut self, event: ServerEvent, now: Timestamp) {
        match self.phase {
            Phase::Asking(request) => {
                self.heard_at = now;
                self.on_answer(request, event, now);
            }
            Phase::Attached => {
                self.heard_at = now;
                self.on_attached_event(event, now);
            }
            Phase::Waiting { .. } | Phase::Connecting | Phase::Closing { .. } | Phase::Stopped => {}
        }
    }

    /// Only a confirmation or a refusal is an answer; everything else is not meant for us yet.
    fn on_answer(&mut self, request: Request, event: ServerEvent, now: Timestamp) {
        match event {
            ServerEvent::Connected { backoff, max_attempts, heartbeat_interval } => {
                self.on_connected(&backoff, max_attempts, heartbeat_interval);
            }
            ServerEvent::SessionCreated { session_id, resumed, epoch, replay_from, gap, token } => {
                let confirmed = SessionConfirmed { session_id, epoch, gap, token };
                self.on_session_created(confirmed, resumed, replay_from, now);
            }
            ServerEvent::StateRestored { new_session_id: session_id, epoch, gap, token } => {
                self.on_state_restored(SessionConfirmed { session_id, epoch, gap, token }, now);
            }
            ServerEvent::Refused { code, retry_after, message_id: None } => {
                self.on_request_refused(request, code, retry_after, now);
            }
            ServerEvent::Superseded => self.on_superseded(now),
            ServerEvent::SessionEnded => self.stop(StopReason::Ended),
            ServerEvent::Draining => self.status(Status::Draining),
            ServerEvent::Refused { message_id: Some(_), .. }
            | ServerEvent::Event(_)
            | ServerEvent::Gap(_)
            | ServerEvent::ReplayComplete
            | ServerEvent::StateExported(_)
            | ServerEvent::Heartbeat { .. }
            | ServerEvent::Accepted { .. } => {}
        }
    }

    fn on_attached_event(&mut self, event: ServerEvent, now: Timestamp) {
        let notice = if let ServerEvent::Gap(gap) = &event { Some(gap) } else { None };
        if let Some(untold) = self.delivery.untold(notice) {
            self.on_gap(untold, now);
        }
        match event {
            ServerEvent::Connected { backoff, max_attempts, heartbeat_interval } => {
                self.on_connected(&backoff, max_attempts, heartbeat_interval);
            }
            ServerEvent::Event(event) => self.on_event(event, now),
            ServerEvent::Gap(gap) => self.on_gap(gap, now),
            ServerEvent::ReplayComplete => self.on_replay_complete(),
            ServerEvent::StateExported(state) => self.on_state(state),
            ServerEvent::Heartbeat { head, token } => self.on_heartbeat(head, token),
            ServerEvent::Accepted { message_id, in_seq, duplicate: _ } => {
                self.on_accepted(message_id, in_seq);
            }
            ServerEvent::Refused { code, retry_after, message_id } => {
                self.on_refused(code, retry_after, message_id, now);
            }
            ServerEvent::Superseded => self.on_superseded(now),
            ServerEvent::SessionEnded => self.stop(StopReason::Ended),
            ServerEvent::Draining => self.status(Status::Draining),
            // An answer to nothing that was asked.
            ServerEvent::SessionCreated { .. } | ServerEvent::StateRestored { .. } => {}
        }
    }

    fn on_connected(&mut self, backoff: &[Duration], max_attempts: u32, heartbeats: Duration) {
        self.backoff.configure(backoff, max_attempts);
        self.heartbeat_interval = heartbeats;
    }

    fn on_event(&mut self, event: Event, now: Timestamp) {
        match self.delivery.event(&event, now) {
            Judgement::Tell(()) => self.outputs.push_back(Output::Deliver(event)),
            Judgement::Known | Judgement::Hole { new: false } => {}
            Judgement::Hole { new: true } => self.acknowledge(true),
        }
    }

    fn on_gap(&mut self, gap: Gap, now: Timestamp) {
        match self.delivery.gap(gap, now) {
            Judgement::Tell(gap) => {
                self.outputs.push_back(Output::DeliverGap(gap));
                self.save();
            }
            Judgement::Known | Judgement::Hole { new: false } => {}
            Judgement::Hole { new: true } => self.acknowledge(true),
        }
    }

    /// Told once an attachment: what is sent again because of a hole also ends with this.
    fn on_replay_complete(&mut self) {
        if std::mem::take(&mut self.catching_up) {
            self.status(Status::CaughtUp);
        }
    }

    fn on_state(&mut self, state: ExportedState) {
        self.wants_state = false;
        let signed_state = state.signed_state.clone();
        self.snapshot = Some(Snapshot { signed_state, seq: state.seq });
        let fills_gap = self.delivery.state_fills_gap();
        self.outputs.push_back(Output::DeliverState { state, fills_gap });
        self.save();
    }

    fn on_heartbeat(&mut self, head: Seq, token: Option<Secret>) {
        if token.is_some() {
            self.token = token;
            self.save();
        }
        let ack = self.delivery.heartbeat(head);
        self.send_ack(ack);
    }

    fn on_accepted(&mut self, message_id: MessageId, in_seq: InSeq) {
        if self.outbox.accepted(&message_id) {
            self.outputs.push_back(Output::Accepted { message_id, in_seq });
        }
    }

    fn on_refused(
        &mut self,
        code: ErrorCode,
        retry_after: Option<Duration>,
        message_id: Option<MessageId>,
        now: Timestamp,
    ) {
        let message_id = message_id.or_else(|| self.message_meant_by(code));
        match (code.recovery(), message_id) {
            (Recovery::CreateNewSession, _) if !is_about_state(code) => {
                self.outbox.disconnected();
                self.lost(Request::Reconnect { with_token: false }, code, now);
            }
            // Attached as we believe, not as the server does: come back and see.
            (Recovery::AuthenticateAgain, _) if code == ErrorCode::SessionNotOwned => {
                self.abandon(retry_after, false);
            }
            (Recovery::RetryLater, Some(message_id)) => {
                let step = self.backoff.step(self.outbox.holds());
                let until = now + retry_after.unwrap_or(step);
                self.outbox.hold(&message_id, until, may_have_entered(code));
            }
            (_, Some(message_id)) => self.give_up(message_id, GivenUp::Refused(code)),
            (_, None) => {
                self.wants_state = false;
                self.outputs.push_back(Output::Refused { code });
            }
        }
    }

    /// The message that a refusal is about which names none. The server answers in order; of what else
    /// is sent while attached, nothing can have the wrong shape or size, and what is merely sent again
    /// does no harm.
    fn message_meant_by(&self, code: ErrorCode) -> Option<MessageId> {
        let shape = [ErrorCode::InvalidMessage, ErrorCode::MessageTooLarge, ErrorCode::IdInvalid];
        let may_mean_one = code.recovery() == Recovery::RetryLater || shape.contains(&code);
        if may_mean_one { self.outbox.oldest_on_its_way() } else { None }
    }

    /// Acks what was delivered. It is saved first: what is acked may be gone when we come back.
    pub(super) fn acknowledge(&mut self, gap_detected: bool) {
        let ack = self.delivery.ack(gap_detected);
        self.send_ack(ack);
    }

    fn send_ack(&mut self, ack: AckDue) {
        let AckDue { last_seq, received_count, gap_detected } = ack;
        self.save();
        if let Some(session_id) = self.attached_to() {
            self.command(ClientCommand::Ack { session_id, last_seq, received_count, gap_detected });
        }
    }
}

/// Whether the server may have entered the message all the same, as it does not know itself.
fn may_have_entered(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::DatabaseUnavailable | ErrorCode::InternalError)
}

/// About a snapshot, not about the session.
fn is_about_state(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::StateExpired | ErrorCode::StateSuperseded)
}
