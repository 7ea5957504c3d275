//! Whoever does the work of a session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use rejoin_core::page::{StoredEntry, StoredSnapshot};
use rejoin_core::record::Record;
use rejoin_core::worker::{Covering, Publication, Published};
use rejoin_core::{InSeq, SessionId, Term, Timestamp};
use rejoin_store::Unavailable;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::{Command, Utterance};
use crate::error::PublishError;
use crate::shared::Shared;
use crate::timeline::Death;

/// Entries that may wait for an agent in its seat. The driver holds the others it has read, never more
/// than the in log may hold.
pub(crate) const WAITING_ENTRIES: usize = 64;

/// Does the work of sessions: is handed what clients send, and says what they are to be told.
///
/// It is started when a session has something to do or a client is there, and again, from its last
/// state and with what that state does not cover, if it or the server dies.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Works until [`Seat::next`] returns nothing; whoever then goes on for more than a few seconds is
    /// aborted. Returning earlier with work left, or panicking, counts as a death: the agent is
    /// started anew, after a tenth of a second at first and more slowly each time. Five deaths within
    /// a minute end the attempts: the client is told by `agent.failed`, and the next start is when
    /// something new is entered or a client attaches.
    ///
    /// An agent that returns with nothing left to do rests until there is.
    async fn run(&self, seat: Seat);

    /// Whether the agent says itself, with `in_seq`, which entries it has dealt with. For one that may
    /// not, an entry counts as dealt with when it takes the next one.
    fn covering(&self) -> Covering {
        Covering::Named
    }

    /// Whether it may be handed a message before that is durable. One that outlives this process must not: after
    /// a crash the number of a message that was lost would come to mean another message.
    fn begins_early(&self) -> bool {
        true
    }

    /// How long the agent may go on when its session has ended or the server stops; it is aborted
    /// then. Nobody hears what it still says.
    fn last_words(&self) -> Duration {
        Duration::ZERO
    }
}

/// An agent's place in a session: the entries it is handed come out, what it says goes in.
#[derive(Debug)]
pub struct Seat {
    pub(crate) start: Start,
    pub(crate) inbox: Inbox,
    pub(crate) voice: Voice,
    /// What the driver makes of the agent: at work, idle, to stop.
    pub(crate) orders: watch::Receiver<Orders>,
    /// Set when the agent leaves in peace.
    pub(crate) resigned: Arc<AtomicBool>,
    /// Set when the agent is a child that has ended without being told to.
    pub(crate) child_end: Arc<OnceLock<ChildEnd>>,
    /// Set while it is at work, whatever it has covered.
    pub(crate) busy: Arc<AtomicBool>,
    pub(crate) shared: Arc<Shared>,
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

/// How a child ended that was not told to.
#[derive(Debug)]
pub(crate) struct ChildEnd {
    /// Its status was that of success: this is no death, unless there was something left to do.
    pub(crate) in_order: bool,
    pub(crate) death: Death,
}

/// What the driver makes of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    /// There is work, or may be.
    Work,
    /// There has been none since then; it may be there for a client or not.
    Idle { since: Timestamp, company: bool },
    /// It is needed no more: nothing to do, or the server stops.
    Stop,
    /// So, because the session is over.
    End,
}

impl Orders {
    pub(crate) fn is_stop(self) -> bool {
        matches!(self, Self::Stop | Self::End)
    }
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

    /// The next thing a client wants; nothing once the agent is to stop. Nothing is lost if it is
    /// dropped.
    pub async fn next(&mut self) -> Option<StoredEntry> {
        self.inbox.next().await
    }

    /// Says something, and returns once it is durable. Refused once another agent sits here.
    pub async fn publish(&self, publication: Publication) -> Result<Published, PublishError> {
        self.voice.publish(publication).await
    }

    /// What says things for this seat, to keep beside it.
    pub fn voice(&self) -> Voice {
        self.voice.clone()
    }

    /// Waits until the agent is to stop.
    pub async fn stopped(&self) {
        stopped(&mut self.orders.clone()).await;
    }

    /// The session's state as it is stored now: others may set it too.
    pub async fn state(&self) -> Result<Option<StoredSnapshot>, Unavailable> {
        self.shared.store.snapshot(self.session()).await
    }

    /// The session as it is stored now; nothing if it is gone.
    pub async fn record(&self) -> Result<Option<Record>, Unavailable> {
        self.shared.store.session(self.session()).await
    }

    /// Leaves in peace: this is no death, and the agent is started again when there is work.
    pub fn resign(self) {
        self.resigned.store(true, Ordering::Release);
    }

    /// Now, on the server's time line.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }
}

/// Waits until the orders are to stop. Without a driver nobody gives orders any more.
pub(crate) async fn stopped(orders: &mut watch::Receiver<Orders>) -> Orders {
    orders.wait_for(|orders| orders.is_stop()).await.map_or(Orders::Stop, |orders| *orders)
}

/// What comes out of a seat.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) entries: mpsc::Receiver<StoredEntry>,
    /// Says which entry was taken last: of an agent that never names one, that covers those before.
    pub(crate) taken: watch::Sender<InSeq>,
}

impl Inbox {
    pub(crate) async fn next(&mut self) -> Option<StoredEntry> {
        let entry = self.entries.recv().await?;
        self.taken.send_replace(entry.in_seq);
        Some(entry)
    }
}

/// What says things for an agent.
#[derive(Clone, Debug)]
pub struct Voice {
    pub(crate) driver: mpsc::Sender<Command>,
    /// Which one of the session's agents in this driver it belongs to.
    pub(crate) sitting: u64,
}

/// Something that was said and is on its way to the store.
#[derive(Debug)]
pub struct Saying(oneshot::Receiver<Result<Published, PublishError>>);

impl Voice {
    /// Says something, and returns once it is durable.
    pub async fn publish(&self, publication: Publication) -> Result<Published, PublishError> {
        self.say(publication).await?.published().await
    }

    /// Says something, and returns once there is room for it. What is said one after the other is
    /// stored in that order; who says several things before it waits for the first pays for fewer
    /// commits.
    pub async fn say(&self, publication: Publication) -> Result<Saying, PublishError> {
        Ok(self.reserve().await?.say(publication))
    }

    /// Waits until there is room to say something. Nothing is said if it is dropped.
    pub(crate) async fn reserve(&self) -> Result<RoomToSay<'_>, PublishError> {
        let room = self.driver.reserve().await.map_err(|_| crate::error::gone())?;
        Ok(RoomToSay { room, sitting: self.sitting })
    }
}

/// Room for one publication.
pub(crate) struct RoomToSay<'a> {
    room: mpsc::Permit<'a, Command>,
    sitting: u64,
}

impl RoomToSay<'_> {
    pub(crate) fn say(self, publication: Publication) -> Saying {
        let (reply, answer) = oneshot::channel();
        let publication = Box::new(publication);
        let utterance = Utterance { publication, sitting: Some(self.sitting), reply };
        self.room.send(Command::Publish(utterance));
        Saying(answer)
    }
}

impl Saying {
    /// Waits until it is durable. Nothing is lost if it is dropped.
    pub async fn published(&mut self) -> Result<Published, PublishError> {
        (&mut self.0).await.map_err(|_| crate::error::gone())?
    }
}
