//! A client as the server sees it: what it is told comes out, what it says goes in. A transport is a
//! function over one of these.

use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::Body;
use rejoin_core::session::{Input, LeaveReason, Message, Tell};
use rejoin_core::state::{EnterRefused, Entered};
use rejoin_core::{AttachmentId, Seq, SessionId};
use rejoin_store::{Failure, Unavailable};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::driver::Command;
use crate::entry;
use crate::error::{EndError, Gone};
use crate::outlet::Inlet;

/// Tells that may wait for a transport. A page of events is one, and no second page is read before
/// the first was taken; the rest are heartbeats and notices, of which a client that lives never lets
/// so many pile up.
pub(crate) const WAITING_TELLS: usize = 16;

/// What an attachment is told.
#[derive(Debug)]
pub enum Told {
    /// Something for the client.
    Tell(Tell),
    /// It is attached no longer; nothing follows.
    Leave(LeaveReason),
}

/// A client's attachment to a session. Dropping it parks the session, if no other client is attached.
#[derive(Debug)]
pub struct Attachment {
    pub(crate) told: Inlet<Told>,
    pub(crate) line: Line,
}

/// The way from a client to its session's driver. Cheap to clone; what is sent once the attachment is
/// over has no effect.
#[derive(Clone, Debug)]
pub struct Line {
    pub(crate) id: AttachmentId,
    pub(crate) session: SessionId,
    pub(crate) driver: mpsc::Sender<Command>,
}

impl Attachment {
    /// The way to say something while waiting for what comes.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// What the client is to be told next; nothing once the attachment is over.
    pub async fn next(&mut self) -> Option<Told> {
        self.told.take().await
    }

    /// How many things it is to be told wait to be taken.
    pub fn waiting(&self) -> usize {
        self.told.len()
    }
}

impl std::ops::Deref for Attachment {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

impl Line {
    /// The session it leads to.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Says that the client's socket has taken everything it was told.
    pub async fn taken(&self) -> Result<(), Gone> {
        self.input(Input::Writable { attachment: self.id }).await
    }

    /// Says that the client sent something, other than a pong.
    pub async fn heard(&self) -> Result<(), Gone> {
        self.input(Input::Heard { attachment: self.id }).await
    }

    /// Says that the client sent a pong.
    pub async fn pong(&self) -> Result<(), Gone> {
        self.input(Input::Pong { attachment: self.id }).await
    }

    /// Says that the client has received everything up to `seq`, and whether it wants what comes
    /// after that again.
    pub async fn ack(&self, seq: Seq, resend: bool) -> Result<(), Gone> {
        self.input(Input::Ack { attachment: self.id, seq, resend }).await
    }

    /// Sends something to the agent, and returns once it is durable.
    pub async fn send(
        &self,
        kind: EntryKind,
        message_id: Option<&str>,
        body: Body,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.post(kind, message_id, body).await?.entered().await
    }

    /// Puts something for the agent on its way. What is posted first is entered first.
    pub async fn post(
        &self,
        kind: EntryKind,
        message_id: Option<&str>,
        body: Body,
    ) -> Result<Posted, Unavailable> {
        let digest = message_id.map(|id| entry::digest(id, &body));
        let (reply, answer) = oneshot::channel();
        let outgoing = Box::new(Outgoing { from: Some(self.id), kind, digest, body, reply });
        self.driver.send(Command::Enter(outgoing)).await.map_err(|_| crate::error::gone())?;
        Ok(Posted(answer))
    }

    /// Ends the session; returns once that is durable. The attachment is told so and is over.
    pub async fn end(&self) -> Result<(), EndError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::End(Box::new((self.id, reply)));
        self.driver.send(command).await.map_err(|_| crate::error::gone())?;
        answer.await.map_err(|_| crate::error::gone())?
    }

    async fn input(&self, input: Input) -> Result<(), Gone> {
        match self.driver.try_send(Command::Input(Box::new(input))) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Gone),
            // In a box, because it is rare and every idle connection would have room for it.
            Err(TrySendError::Full(input)) => {
                Box::pin(self.driver.send(input)).await.map_err(|_| Gone)
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The driver notices the closed channel whenever it is awake; this wakes it. If its queue is
        // full it is awake.
        let left = Box::new(Input::Left { attachment: self.line.id });
        let _ = self.line.driver.try_send(Command::Input(left));
    }
}

/// Something for the agent that is on its way.
#[derive(Debug)]
pub struct Posted(oneshot::Receiver<Result<Entered, Failure<EnterRefused>>>);

impl Posted {
    /// Waits until it is durable, or refused.
    pub async fn entered(self) -> Result<Entered, Failure<EnterRefused>> {
        self.0.await.map_err(|_| crate::error::gone())?
    }
}

/// A message on its way to the driver.
pub(crate) struct Outgoing {
    pub(crate) from: Option<AttachmentId>,
    pub(crate) kind: EntryKind,
    pub(crate) digest: Option<MessageDigest>,
    pub(crate) body: Body,
    pub(crate) reply: oneshot::Sender<Result<Entered, Failure<EnterRefused>>>,
}

impl Outgoing {
    pub(crate) fn into_message(self, ticket: rejoin_core::session::Ticket) -> (Message, Reply) {
        let Self { from, kind, digest, body, reply } = self;
        (Message { ticket, from, kind, digest, body }, reply)
    }
}

type Reply = oneshot::Sender<Result<Entered, Failure<EnterRefused>>>;
