//! What a session has to say to its client, as frames in the order in which it says them.

use axum::extract::ws::Message;
use rejoin_core::Seq;
use rejoin_core::codes::ErrorCode;
use rejoin_core::page::StoredEvent;
use rejoin_core::position::SeqRange;
use rejoin_core::session::{LeaveReason, Tell};

use super::connection::{Connection, ERROR, Next};
use super::words::{self, Trouble};
use crate::attachment::Told;
use crate::event::Envelopes;
use crate::service::Include;

impl Connection {
    pub(super) async fn on_told(&mut self, told: Option<Told>) -> Next {
        match told {
            Some(Told::Tell(tell)) => {
                self.tell(tell).await;
                Next::GoOn
            }
            Some(Told::Leave(LeaveReason::Closed(code))) => Next::Close(code),
            Some(Told::Leave(LeaveReason::Refused)) => {
                self.attached = None;
                Next::GoOn
            }
            // Cut off, or the session is not served any more: to the client both look like a network.
            None => Next::Drop,
        }
    }

    async fn tell(&mut self, tell: Tell) {
        let now = self.now();
        let Some(attached) = &self.attached else { return };
        let id = attached.id().clone();
        match tell {
            // Taken out before the attachment got here.
            Tell::Confirmed(_) | Tell::Refused(_) => {}
            Tell::Gap(gap) => self.out.text(words::gap(&id, gap, now)),
            Tell::State => Box::pin(self.send_state()).await,
            Tell::Events { events, replayed } => self.send_events(&events, replayed),
            Tell::ReplayComplete { range } => self.complete_replay(range),
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
            let mut envelopes = Envelopes::of(id, log);
            for event in events {
                self.out.text(envelopes.envelope(event, replayed));
            }
        }
        self.events_out = true;
    }

    fn complete_replay(&mut self, range: Option<SeqRange>) {
        let now = self.now();
        let Some(attached) = &mut self.attached else { return };
        let id = attached.id().clone();
        if std::mem::take(&mut attached.log_gone) && range.is_none() {
            let sentence = "Nothing is left of what the old session said";
            self.out.text(words::notice(Some(&id), "no_buffered_events", sentence, now));
        }
        self.out.text(words::replay_complete(&id, range, now));
    }

    /// The agent's state, by itself or because it stands for events that are gone.
    async fn send_state(&mut self) {
        let Some(attached) = &self.attached else { return };
        let record = attached.record.clone();
        let exported = self.service().export_record(&record, Include::default()).await;
        let now = self.now();
        self.out.text(match exported {
            Ok(exported) => words::state_exported(record.id(), exported, now),
            Err(denial) => Trouble::from(denial).frame(ERROR, Some(record.id()), None, now),
        });
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
