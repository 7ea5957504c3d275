//! A client, seen from its transport.

use rejoin::core::log::EntryKind;
use rejoin::core::reader::{LeaveReason, Tell};
use rejoin::core::record::Transport;
use rejoin::core::resume::Asked;
use rejoin::core::state::{EnterRefused, Entered};
use rejoin::core::{Seq, codes::CloseCode};
use rejoin::store::Failure;
use rejoin::{Attachment, Client, Sessions, Told};

use super::{World, body, me, soon, text};

/// Reads what it is told as soon as it is told, and says what that was.
pub struct Reader {
    pub attachment: Attachment,
}

pub fn client(asked: Option<Asked>) -> Client {
    Client { principal: me(), transport: Transport::Local, asked, token: None }
}

pub fn after(seq: u64) -> Option<Asked> {
    Some(Asked { last_seq: Some(Seq::new(seq)), ..Asked::default() })
}

impl World {
    /// A client that comes back and has everything up to `seq`.
    pub async fn attach_after(&self, seq: u64) -> Reader {
        Reader::attach(&self.sessions, &self.id, after(seq)).await
    }

    /// Why a client that comes back is refused.
    pub async fn refused(&self) -> String {
        let refused = self.sessions.attach(&self.id, client(after(0))).await;
        match refused.unwrap_err() {
            Failure::Refused(refused) => refused.to_string(),
            other @ (Failure::NotFound | Failure::Unavailable(_)) => other.to_string(),
        }
    }

    /// A client that is confirmed, and has been told all that there was.
    pub async fn attach(&self) -> Reader {
        let mut reader = self.attach_after(self.record().await.head.get()).await;
        reader.until("complete").await;
        reader
    }
}

impl Reader {
    pub async fn attach(
        sessions: &Sessions,
        id: &rejoin::core::SessionId,
        asked: Option<Asked>,
    ) -> Self {
        Self { attachment: sessions.attach(id, client(asked)).await.unwrap() }
    }

    /// What it is told next, in a few words; its transport takes it at once.
    pub async fn next(&mut self) -> String {
        let told = self.next_without_taking().await;
        self.attachment.taken();
        told
    }

    pub async fn next_without_taking(&mut self) -> String {
        soon(self.attachment.next()).await.map_or("nothing".into(), words)
    }

    /// Everything it is told up to something that begins like this.
    pub async fn until(&mut self, last: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.push(self.next().await);
            let told = all.last().unwrap();
            if told.starts_with(last) {
                return all;
            }
            assert_ne!(told, "nothing", "{last} was never told, but {all:?}");
        }
    }

    pub async fn send(
        &self,
        message_id: &str,
        message: &str,
    ) -> Result<Entered, Failure<EnterRefused>> {
        let id = Some(message_id);
        soon(self.attachment.send(EntryKind::Message, id, body(message))).await
    }
}

fn words(told: Told) -> String {
    match told {
        Told::Leave(LeaveReason::Closed(code)) => format!("closed {}", CloseCode::code(code)),
        Told::Leave(LeaveReason::Cut) => "cut".into(),
        Told::Tell(tell) => tell_words(tell),
    }
}

fn tell_words(tell: Tell) -> String {
    match tell {
        Tell::Confirmed(confirmed) => format!("confirmed from {}", confirmed.replay_from),
        Tell::Gap(gap) => format!("gap {gap:?}"),
        Tell::State => "state".into(),
        Tell::Checkpoint => "checkpoint".into(),
        Tell::Events { events, replayed } => {
            let kind = if replayed { "replayed" } else { "live" };
            let texts = events.iter().map(|event| format!("{}={}", event.seq, text(&event.body)));
            format!("{kind} {}", texts.collect::<Vec<_>>().join(" "))
        }
        Tell::ReplayComplete { range: Some(range), .. } => {
            format!("complete {}-{}", range.from, range.to)
        }
        Tell::ReplayComplete { range: None, .. } => "complete".into(),
        Tell::Heartbeat { .. } => "heartbeat".into(),
        Tell::AckAhead { head } => format!("ack ahead of {head}"),
        Tell::Superseded => "superseded".into(),
        Tell::Draining => "draining".into(),
        Tell::Ended => "ended".into(),
    }
}
