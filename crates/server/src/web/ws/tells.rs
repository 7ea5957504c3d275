//! What a session has to say to its client, as frames in the order in which it says them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::extract::ws::Message;
use rejoin_core::Seq;
use rejoin_core::codes::{CloseCode, ErrorCode};
use rejoin_core::page::StoredEvent;
use rejoin_core::position::SeqRange;
use rejoin_core::reader::{LeaveReason, Tell};

use super::connection::{AfterStep, Connection, ERROR};
use super::words::{self, Trouble};
use crate::attachment::Told;
use crate::event::Envelopes;
use crate::service::{Exported, Include};

/// When a state is sent.
#[derive(Clone, Copy)]
enum Order {
    /// Now: it stands for events that are gone.
    AtOnce,
    /// Not before the event that it was stored with.
    AfterItsEvent,
}

impl Connection {
    pub(super) async fn on_told(&mut self, told: Option<Told>) -> AfterStep {
        match told {
            Some(Told::Tell(tell)) => {
                self.tell(tell).await;
                AfterStep::GoOn
            }
            Some(Told::Leave(LeaveReason::Closed(code))) => {
                self.last_replies(code).await;
                AfterStep::Close(code)
            }
            // To the client that looks like a network.
            Some(Told::Leave(LeaveReason::Cut)) | None => AfterStep::Drop,
        }
    }

    /// Whoever is sent away with its requests under way is told first what became of them. Its driver
    /// has ended, or is about to: no answer is long in coming.
    async fn last_replies(&mut self, code: CloseCode) {
        match code {
            CloseCode::Draining | CloseCode::Busy => self.await_replies().await,
            CloseCode::HeartbeatLost
            | CloseCode::Superseded
            | CloseCode::SessionEnded
            | CloseCode::NotAuthorised
            | CloseCode::ProtocolAbuse => {}
        }
    }

    async fn tell(&mut self, tell: Tell) {
        let now = self.now();
        let Some(attached) = &self.attached else { return };
        let id = attached.id().clone();
        match tell {
            // Taken out before the attachment got here.
            Tell::Confirmed(_) => {}
            Tell::Gap(gap) => self.out.text(words::gap(&id, gap, now)),
            Tell::State => Box::pin(self.send_state(Order::AtOnce)).await,
            Tell::Checkpoint => Box::pin(self.send_state(Order::AfterItsEvent)).await,
            Tell::Events { events, replayed } => self.send_events(&events, replayed),
            Tell::ReplayComplete { range, replayed } => self.complete_replay(range, replayed),
            Tell::Heartbeat { head, renew_token } => {
                Box::pin(self.beat(head, renew_token)).await;
            }
            Tell::AckAhead { head } => {
                let sentence = format!("The last event is {head}; nothing beyond it was sent");
                let trouble = Trouble::new(ErrorCode::AckAhead, &sentence);
                self.out.text(trouble.frame(ERROR, Some(&id), None, now));
            }
            Tell::Superseded => {
                let sentence = "Another connection has taken the session over";
                self.out.text(words::notice(Some(&id), "superseded", sentence, now));
            }
            Tell::Draining => {
                let sentence = "The server is going down and will be back";
                self.out.text(words::notice(Some(&id), "draining", sentence, now));
            }
            Tell::Ended => self.out.text(words::session_ended(&id, now)),
        }
    }

    fn send_events(&mut self, events: &[StoredEvent], replayed: bool) {
        let Some(attached) = &self.attached else { return };
        let (id, log) = (attached.id(), attached.log());
        if replayed && attached.batch {
            let batches = words::batches(id, log, events, self.front.service.now());
            batches.into_iter().for_each(|frame| self.out.text(frame));
        } else {
            let mut envelopes = Envelopes::of(id.client_name(), log);
            for event in events {
                self.out.text(envelopes.envelope(event, replayed));
            }
        }
        self.events_out = true;
        self.sent_up_to(events.last().map(|event| event.seq));
    }

    /// What the client has been sent; a state that waited for that follows.
    fn sent_up_to(&mut self, seq: Option<Seq>) {
        let Some(attached) = &mut self.attached else { return };
        attached.sent = attached.sent.max(seq.unwrap_or_default());
        let sent = attached.sent;
        if let Some((_, frame)) = attached.held_state.take_if(|(event, _)| *event <= sent) {
            self.out.text(frame);
        }
    }

    fn complete_replay(&mut self, range: Option<SeqRange>, replayed: u64) {
        let now = self.now();
        let Some(attached) = &mut self.attached else { return };
        let id = attached.id().clone();
        if std::mem::take(&mut attached.log_gone) && range.is_none() {
            let sentence = "Nothing is left of what the old session said";
            self.out.text(words::notice(Some(&id), "no_buffered_events", sentence, now));
        }
        self.out.text(words::replay_complete(&id, range, replayed, now));
    }

    /// The agent's state, by itself or because it stands for events that are gone. The newest one is
    /// sent, so it may be of an event that is still on its way.
    async fn send_state(&mut self, order: Order) {
        let Some(attached) = &self.attached else { return };
        let record = attached.record.clone();
        let exported = self.service().export_record(&record, Include::default()).await;
        let (now, sent) = (self.now(), self.attached.as_ref().map_or(Seq::ZERO, |a| a.sent));
        let (seq, frame) = match exported {
            Ok(exported) => {
                if self.knows_state(&exported, order) {
                    return;
                }
                (exported.seq, words::state_exported(record.id(), exported, now))
            }
            Err(denial) => {
                let head = self.service().sessions().store().session(record.id()).await;
                let head = head.ok().flatten().map_or(Seq::ZERO, |record| record.head);
                (head, Trouble::from(denial).frame(ERROR, Some(record.id()), None, now))
            }
        };
        let Some(attached) = &mut self.attached else { return };
        attached.held_state = None; // this one is newer
        match order {
            Order::AfterItsEvent if seq > sent => attached.held_state = Some((seq, frame)),
            Order::AfterItsEvent | Order::AtOnce => self.out.text(frame),
        }
    }

    /// Whether the client was sent this very state last, and has no need of it again; notes it if not.
    fn knows_state(&mut self, exported: &Exported, order: Order) -> bool {
        let Some(attached) = &mut self.attached else { return true };
        let mut hash = DefaultHasher::new();
        exported.state.hash(&mut hash);
        let is_known = attached.last_state.replace(hash.finish()) == Some(hash.finish());
        let skips = is_known && matches!(order, Order::AfterItsEvent);
        if skips {
            attached.attachment.state_is_unchanged();
        }
        skips
    }

    async fn beat(&mut self, head: Seq, renew_token: bool) {
        let Some(attached) = &self.attached else { return };
        let record = attached.record.clone();
        let token = match renew_token {
            true => self.service().issue(&record).await.ok(),
            false => None,
        };
        let (uptime, now) = (self.service().uptime(), self.now());
        self.out.text(words::heartbeat(Some(record.id()), head, uptime, token.as_ref(), now));
        self.out.push(Message::Ping(Vec::new().into()));
    }
}
