//! The sender: what an application does with a session besides reading it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rejoin_core::InSeq;
use rejoin_core::client::{GivenUp, MessageId, Status};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::{Answer, Command, Wish, Wishes};

/// Sends to a session, and steers it. Clones belong to the same session; they do not keep it alive: that
/// is done by the [`Session`](crate::Session), which must be read for answers to arrive.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    wishes: Arc<Wishes>,
    status: watch::Receiver<Status>,
}

impl Handle {
    pub(crate) fn new(
        commands: mpsc::Sender<Command>,
        wishes: Arc<Wishes>,
        status: watch::Receiver<Status>,
    ) -> Self {
        Self { commands, wishes, status }
    }

    /// Sends a message to the agent and waits until the server has it for good.
    ///
    /// It is sent again, under the same id, after every drop, and entered once. Who stops waiting does
    /// not take it back. While an application waits here and does not read, the session is read for it
    /// only as far as its window goes (see [`Builder::window`](crate::Builder::window)): a task that
    /// reads much and also sends had better [`post`](Self::post).
    pub async fn send(&self, content: impl Serialize) -> Result<Accepted, SendError> {
        self.post(content).await?.await
    }

    /// Like [`send`](Self::send), under an id of the application's own. A message that was sent by a
    /// program which died before it had an answer can so be sent again, and is entered once; the same
    /// id with other content is refused.
    pub async fn send_with_id(
        &self,
        message_id: MessageId,
        content: impl Serialize,
    ) -> Result<Accepted, SendError> {
        self.hand_over(message_id, Some(json(content)?)).await?.await
    }

    /// Hands a message over for sending, and does not wait for the server. What becomes of it can be
    /// awaited in the receipt.
    pub async fn post(&self, content: impl Serialize) -> Result<Receipt, SendError> {
        let content = json(content)?;
        self.hand_over(new_message_id()?, Some(content)).await
    }

    /// Wants the agent to stop what it is doing: what was sent before this, not what is sent after it.
    /// Waits until the server has the wish for good; the agent's answer is an event.
    pub async fn cancel(&self) -> Result<Accepted, SendError> {
        self.hand_over(new_message_id()?, None).await?.await
    }

    /// Wants the agent's state. It comes as [`Incoming::State`](crate::Incoming::State), or
    /// [`Incoming::Refused`](crate::Incoming::Refused).
    pub fn request_state(&self) {
        self.wishes.wish(Wish::State);
    }

    /// Wants the session ended on the server, with its logs and its snapshot. Messages that were not
    /// accepted yet are given up. The stream ends with [`Status::Stopped`] when it is done.
    pub fn end(&self) {
        self.wishes.wish(Wish::End);
    }

    /// The machine woke up or is online again: a wait is cut short, a silent connection not trusted.
    pub fn wake(&self) {
        self.wishes.wish(Wish::Wake);
    }

    /// Drops the connection as a broken network would; the session comes back by itself. For
    /// demonstrations and tests.
    pub fn cut(&self) {
        self.wishes.wish(Wish::Cut);
    }

    /// Goes away. The session stays on the server, what was kept stays kept, the stream ends at once;
    /// what it had not handed out comes again the next time.
    /// [`Session::close`](crate::Session::close) also waits until all that is done.
    pub fn close(&self) {
        self.wishes.close();
    }

    /// How things stand now. The stream tells the same in its order, so later.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// To wait for how things stand: always the latest, without what was in between.
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wishes.is_closed()
    }

    async fn hand_over(
        &self,
        message_id: MessageId,
        content: Option<Arc<[u8]>>,
    ) -> Result<Receipt, SendError> {
        let (receipt, answer) = oneshot::channel();
        let command = Command { message_id: message_id.clone(), content, receipt };
        self.commands.send(command).await.map_err(|_| SendError::Closed)?;
        Ok(Receipt { message_id, answer })
    }
}

/// A message that the server has: it is in the in log, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub message_id: MessageId,
    /// Its number in the in log.
    pub in_seq: InSeq,
}

/// A message on its way: a future of what becomes of it. Dropping it does not take the message back.
#[must_use = "what becomes of the message is told here and nowhere else"]
pub struct Receipt {
    message_id: MessageId,
    answer: oneshot::Receiver<Answer>,
}

impl Receipt {
    /// The message's id.
    pub fn message_id(&self) -> &MessageId {
        &self.message_id
    }
}

impl Future for Receipt {
    type Output = Result<Accepted, SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.answer).poll(cx)) {
            Ok(Ok(in_seq)) => Ok(Accepted { message_id: self.message_id.clone(), in_seq }),
            Ok(Err(reason)) => Err(SendError::GivenUp(reason)),
            Err(_) => Err(SendError::Closed),
        })
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}

/// Why a message was not, or may not have been, accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The server will not have it, or there is no session to send it to any more.
    #[error("the message was given up: {}", sentence(.0))]
    GivenUp(GivenUp),
    /// What was to be sent can't be written as JSON.
    #[error("the message can't be written as JSON: {0}")]
    Content(serde_json::Error),
    /// The operating system gives no random bytes for an id.
    #[error("the operating system gives no random bytes: {0}")]
    NoRandomness(getrandom::Error),
    /// The session was closed on this side before there was an answer: if the message was sent, nobody
    /// here knows what became of it.
    #[error("the session was closed before the server answered")]
    Closed,
}

fn sentence(reason: &GivenUp) -> String {
    match reason {
        GivenUp::Refused(code) => format!("the server refused it ({code})"),
        GivenUp::NotSent => "it was never sent, and there is no session to send it to".to_owned(),
        GivenUp::OutcomeUnknown => {
            "it was sent to a session that is gone; the agent may have acted on it".to_owned()
        }
        GivenUp::OutboxFull => "too many messages wait already".to_owned(),
    }
}

fn json(content: impl Serialize) -> Result<Arc<[u8]>, SendError> {
    serde_json::to_vec(&content).map(Arc::from).map_err(SendError::Content)
}

fn new_message_id() -> Result<MessageId, SendError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(SendError::NoRandomness)?;
    let text = format!("msg_{:032x}", u128::from_le_bytes(bytes));
    Ok(MessageId::parse(&text).unwrap_or_else(|_| unreachable!("hexadecimal digits are an id")))
}
