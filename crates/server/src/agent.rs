//! Whoever does the work of a session.

use async_trait::async_trait;
use rejoin_core::page::{StoredEntry, StoredSnapshot};
use rejoin_core::record::Record;
use rejoin_core::session::{Publication, Published};
use rejoin_core::{SessionId, Term};
use tokio::sync::{mpsc, oneshot};

use crate::driver::Command;
use crate::error::PublishError;

/// Entries that may wait for an agent in its seat. The driver holds the others it has read, never more
/// than the in log may hold.
pub(crate) const WAITING_ENTRIES: usize = 64;

/// Does the work of sessions: is handed what clients send, and says what they are to be told.
///
/// It is started when a session has something to do, and again, from its last state and with what
/// that state does not cover, if it or the server dies.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Works until [`Seat::next`] returns nothing; whoever then goes on for more than a few seconds is
    /// aborted. Returning earlier counts as a death: if there is work left, the agent is started anew
    /// after a second. So is one that panics, also while a client is there and waits.
    async fn run(&self, seat: Seat);
}

/// An agent's place in a session: the entries it is handed come out, what it says goes in.
#[derive(Debug)]
pub struct Seat {
    pub(crate) start: Start,
    pub(crate) entries: mpsc::Receiver<StoredEntry>,
    pub(crate) driver: mpsc::Sender<Command>,
    /// Which one of the session's agents in this driver sits here.
    pub(crate) sitting: u64,
}

/// What an agent goes on from.
#[derive(Clone, Debug)]
pub struct Start {
    /// The session when the agent began.
    pub record: Record,
    /// The lease it works under.
    pub term: Term,
    /// Its last state, if it ever stored one.
    pub snapshot: Option<StoredSnapshot>,
}

impl Seat {
    /// The session it works for.
    pub fn session(&self) -> &SessionId {
        self.start.record.id()
    }

    /// What it goes on from.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// The next thing a client wants; nothing once the agent is to stop.
    pub async fn next(&mut self) -> Option<StoredEntry> {
        self.entries.recv().await
    }

    /// Says something, and returns once it is durable. Refused once another agent sits here.
    pub async fn publish(&self, publication: Publication) -> Result<Published, PublishError> {
        let (reply, answer) = oneshot::channel();
        let (publication, sitting) = (Box::new(publication), Some(self.sitting));
        let command = Command::Publish { publication, sitting, reply };
        self.driver.send(command).await.map_err(|_| crate::error::gone())?;
        answer.await.map_err(|_| crate::error::gone())?
    }
}
