//! What the brain wants, in the words of the cases.

use rejoin_core::client::{ClientCommand, GivenUp, Joined, Output, Status, StopReason};
use rejoin_core::position::{Epoch, Seq, SeqRange};
use rejoin_core::resume::Gap;
use serde_json::{Value, json};

use crate::conformance::cases::without_nulls;

/// An output; an event by its number alone, where the case names it so.
pub(crate) fn output(output: &Output, by_number: bool) -> Value {
    match output {
        Output::Connect => json!("connect"),
        Output::Close => json!("close"),
        Output::Send(command) => json!({ "send": without_nulls(frame(command)) }),
        Output::Deliver(event) if by_number => json!({ "event": event.seq }),
        Output::Deliver(event) => json!({ "event": parsed(&event.body) }),
        Output::DeliverGap(gap) => json!({ "gap": gap_in_words(*gap) }),
        Output::DeliverState { state, fills_gap } => {
            json!({ "state": { "seq": state.seq, "fills_gap": fills_gap } })
        }
        Output::Accepted { message_id, in_seq } => {
            json!({ "accepted": { "message_id": message_id, "in_seq": in_seq } })
        }
        Output::GivenUp { message_id, reason } => {
            let mut given_up = json!({ "message_id": message_id, "reason": why_given_up(*reason) });
            if let GivenUp::Refused(code) = reason {
                given_up["code"] = code.as_str().into();
            }
            json!({ "given_up": given_up })
        }
        Output::Refused { code } => json!({ "refused": code }),
        Output::Status(Status::CaughtUp) => json!("caught_up"),
        Output::Status(Status::Draining) => json!("draining"),
        Output::Status(status) => json!({ "status": status_in_words(status) }),
        Output::Save(saved) => json!({ "save": saved }),
    }
}

fn status_in_words(status: &Status) -> Value {
    match status {
        Status::Connecting => json!({ "state": "connecting" }),
        Status::Connected { session_id, how } => {
            let how = match how {
                Joined::Created => "created",
                Joined::Resumed => "resumed",
                Joined::Restored => "restored",
            };
            json!({ "state": "connected", "session_id": session_id, "how": how })
        }
        Status::ConnectionLost => json!({ "state": "connection_lost" }),
        Status::Reconnecting { attempt, delay } => {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap();
            json!({ "state": "reconnecting", "attempt": attempt, "delay_ms": delay_ms })
        }
        Status::Restoring => json!({ "state": "restoring" }),
        Status::Expired { code } => json!({ "state": "expired", "code": code }),
        Status::Stopped { reason } => match reason {
            StopReason::Ended => json!({ "state": "stopped", "reason": "ended" }),
            StopReason::Superseded => json!({ "state": "stopped", "reason": "superseded" }),
            StopReason::Closed { code } => {
                json!({ "state": "stopped", "reason": "closed", "code": code })
            }
            StopReason::Refused { code } => {
                json!({ "state": "stopped", "reason": "refused", "code": code })
            }
            StopReason::Lost { code } => {
                json!({ "state": "stopped", "reason": "lost", "code": code })
            }
        },
        Status::CaughtUp | Status::Draining => unreachable!("they have words of their own"),
    }
}

fn frame(command: &ClientCommand) -> Value {
    match command {
        ClientCommand::CreateSession => json!({ "event": "user.create_session", "content": {} }),
        ClientCommand::Reconnect { session_id, last_seq, epoch, token } => {
            let mut content = position(*last_seq, epoch.as_ref());
            content["reconnect_token"] = token.as_ref().map(|token| token.reveal()).into();
            json!({ "event": "user.reconnect", "session_id": session_id, "content": content })
        }
        ClientCommand::RestoreState { signed_state, last_seq, epoch } => json!({
            "event": "user.reconnect_with_state",
            "signed_state": signed_state.reveal(),
            "content": position(*last_seq, epoch.as_ref()),
        }),
        ClientCommand::Message { session_id, message_id, content } => json!({
            "event": "user.message", "session_id": session_id, "message_id": message_id,
            "content": parsed(content),
        }),
        ClientCommand::Cancel { session_id, message_id } => {
            json!({ "event": "user.cancel", "session_id": session_id, "message_id": message_id })
        }
        ClientCommand::Ack { session_id, last_seq, received_count, gap_detected } => json!({
            "event": "user.ack", "session_id": session_id,
            "metadata": { "last_seq": last_seq, "received_count": received_count, "gap_detected": gap_detected },
        }),
        ClientCommand::RequestState { session_id } => {
            json!({ "event": "user.request_state", "session_id": session_id })
        }
        ClientCommand::EndSession { session_id } => {
            json!({ "event": "user.end_session", "session_id": session_id })
        }
    }
}

/// Drivers ask for batches always; the brain leaves that to them.
fn position(last_seq: Seq, epoch: Option<&Epoch>) -> Value {
    json!({ "last_seq": last_seq, "epoch": epoch, "batch": true })
}

fn gap_in_words(gap: Gap) -> Value {
    let ends = |range: SeqRange| json!({ "from": range.from, "to": range.to });
    match gap {
        Gap::Evicted { missing: SeqRange { from, to }, lost } => {
            json!({ "reason": "evicted", "from": from, "to": to, "lost": lost.map(ends) })
        }
        Gap::PositionUnknown => {
            json!({ "reason": "position_unknown", "from": null, "to": null, "lost": null })
        }
    }
}

fn why_given_up(reason: GivenUp) -> &'static str {
    match reason {
        GivenUp::Refused(_) => "refused",
        GivenUp::NotSent => "not_sent",
        GivenUp::OutcomeUnknown => "outcome_unknown",
        GivenUp::OutboxFull => "outbox_full",
    }
}

fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("it was JSON")
}
