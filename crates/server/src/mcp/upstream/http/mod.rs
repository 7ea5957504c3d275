//! An MCP server behind a URL: Streamable HTTP, revisions 2025-03-26 to 2025-11-25, from the client's side.
//!
//! Every message is POSTed. The answer to a request comes as JSON or on a stream, which is gone on with if it
//! breaks and the server has told where it stood; what belongs to no request comes on the general stream.
//! A server that can't be reached is tried for a while, with messages that it certainly did not get; whether
//! it got one that broke on the way nobody knows, so the gateway decides what becomes of that.
//!
//! | file | concern |
//! |---|---|
//! | `talk.rs` | what is said in which words: headers, POST, GET, DELETE |
//! | `call.rs` | one request, until it is answered or lost |
//! | `general.rs` | the stream of what belongs to no request |
//! | `stream.rs` | reading a stream, and where it stood |
//! | `events.rs` | server-sent events out of bytes |
//! | `refusal.rs` | what an answer means that is no success |

mod call;
mod general;
mod refusal;
mod stream;
mod talk;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::SessionId;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use self::talk::{Ended, Talk};
use super::{Before, Heard, Link, WAITING};
use crate::mcp::message::{Kind, Message, RequestId};
use crate::outward::{BadUrl, Server};

/// How long requests under way are heard out when the server has forgotten the session.
const HEARING_OUT: Duration = Duration::from_millis(500);

/// A server behind a URL.
#[derive(Debug)]
pub(crate) struct Http {
    server: Arc<Server>,
}

impl Http {
    pub(crate) fn new(url: &str) -> Result<Self, BadUrl> {
        Ok(Self { server: Arc::new(Server::new(url)?) })
    }

    /// Begins a conversation, or goes on with one from before; whether the server is there, and still
    /// knows of it, shows with the first message.
    pub(super) fn connect(
        &self,
        session: &SessionId,
        max_bytes: usize,
        before: Option<Before>,
    ) -> Link {
        let (to, outgoing) = mpsc::channel(WAITING);
        let (incoming, from) = mpsc::channel::<Heard>(WAITING);
        let talk = Talk::new(Arc::clone(&self.server), incoming, session.clone(), max_bytes);
        let listens = before.as_ref().is_some_and(|before| before.initialized);
        if let Some(Before { theirs, revision, .. }) = before {
            talk.go_on(theirs, &revision);
        }
        let (theirs, mut keeper) = (Arc::clone(&talk.theirs), Keeper::of(talk));
        if listens {
            keeper.listen();
        }
        let keeper = async {
            keeper.keep(outgoing).await;
            None // it may have died, but not before our eyes
        };
        Link::kept_by(keeper, to, from, theirs)
    }
}

/// Goes between a link and the server.
struct Keeper {
    talk: Arc<Talk>,
    /// Requests under way.
    calls: HashMap<RequestId, AbortHandle>,
    /// One for each of them, and one for the general stream. They end with the keeper.
    tasks: JoinSet<Ended>,
    /// Whether the general stream is listened to.
    hears_more: bool,
}

impl Keeper {
    fn of(talk: Talk) -> Self {
        let (calls, tasks) = (HashMap::new(), JoinSet::new());
        Self { talk: Arc::new(talk), calls, tasks, hears_more: false }
    }

    /// Until either side ends. A server that has not forgotten the session is told that it is over.
    async fn keep(mut self, mut outgoing: mpsc::Receiver<String>) {
        let talk = Arc::clone(&self.talk);
        let ended = loop {
            let ended = tokio::select! {
                () = talk.closed() => break Ended::Well,
                Some(done) = self.tasks.join_next() => {
                    self.calls.retain(|_, call| !call.is_finished());
                    done.unwrap_or(Ended::Well)
                }
                text = outgoing.recv() => match text {
                    Some(text) => self.take(&text).await,
                    None => break Ended::Well,
                },
            };
            if ended == Ended::Forgotten {
                break ended;
            }
        };
        if ended == Ended::Forgotten {
            self.hear_out().await;
        }
        self.tasks.shutdown().await;
        match ended {
            Ended::Well => talk.take_leave().await,
            Ended::Forgotten => give_back(&talk, outgoing).await,
        }
    }

    /// Requests under way will mostly be refused as well, and then it is known that they did not run; of
    /// those that are cut off nobody knows.
    async fn hear_out(&mut self) {
        let all = async {
            while self.calls.values().any(|call| !call.is_finished()) {
                self.tasks.join_next().await;
            }
        };
        let _ = timeout(HEARING_OUT, all).await;
    }

    /// Requests go out side by side, everything else in order.
    async fn take(&mut self, text: &str) -> Ended {
        let Ok(message) = Message::parse(text) else { return Ended::Well }; // we wrote it
        if let Kind::Request { id, .. } = message.kind().clone() {
            let call = call::run(Arc::clone(&self.talk), id.clone(), message);
            self.calls.insert(id, self.tasks.spawn(call));
            return Ended::Well;
        }
        if message.method() == Some("notifications/cancelled") {
            let cancelled = message.cancelled_id().and_then(|id| self.calls.remove(&id));
            cancelled.inspect(AbortHandle::abort); // it may still wait for the server to come back
        }
        let ended = self.talk.tell(&message).await;
        if message.method() == Some("notifications/initialized") {
            self.listen();
        }
        ended
    }

    /// Listens to the general stream from now on.
    fn listen(&mut self) {
        if !std::mem::replace(&mut self.hears_more, true) {
            self.tasks.spawn(general::run(Arc::clone(&self.talk)));
        }
    }
}

/// Says of every request that is still waiting to go out that it did not.
async fn give_back(talk: &Talk, mut outgoing: mpsc::Receiver<String>) {
    outgoing.close();
    while let Some(text) = outgoing.recv().await {
        if let Ok(Kind::Request { id, .. }) = Message::parse(&text).map(|m| m.kind().clone()) {
            talk.pass_on(Heard::DidNotRun { id }).await;
        }
    }
}
