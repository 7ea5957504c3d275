//! A client as the server sees it: what it is told comes out, what it says goes in. A transport is a
//! function over one of these.
//!
//! An attachment runs the client's [`Reader`] in the task of its transport: the store says when the session has changed,
//! and the reader looks. What the client says goes straight to the store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::codes::CloseCode;
use rejoin_core::log::EntryKind;
use rejoin_core::page::Body;
use rejoin_core::reader::{LeaveReason, Reader, ReaderInput, ReaderOutput, Tell};
use rejoin_core::record::{About, Ending, Record};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::state::{Attached, End, EnterRefused, Entered};
use rejoin_core::{Generation, InSeq, Seq, SessionId};
use rejoin_store::{Changes, Failure, PageLimit, Unavailable};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use crate::entry::{self, NewEntry};
use crate::error::EndError;
use crate::presence::Presence;
use crate::shared::Shared;
use crate::tasks::Begun;

/// How long a reader without a deadline sleeps.
const FAR_OFF: Duration = Duration::from_secs(3600);

/// What an attachment is told.
#[derive(Debug)]
pub enum Told {
    /// Something for the client.
    Tell(Tell),
    /// It is attached no longer; nothing follows.
    Leave(LeaveReason),
}

/// A client's attachment to a session. Dropping it parks the session, if no other client is attached.
///
/// Everything that happens to the client, heartbeats too, happens in [`Attachment::next`]: whoever has one polls it for
/// as long as the client is there.
pub struct Attachment {
    reader: Reader,
    changes: Changes,
    /// What the store was asked and has not answered.
    asked: Option<Look>,
    acks: Acks,
    line: Line,
    presence: Presence,
    draining: watch::Receiver<bool>,
    stop: watch::Receiver<bool>,
    is_over: bool,
}

/// Acks on their way to the store: one at a time, and of those that wait only the last.
#[derive(Default)]
struct Acks {
    under_way: Option<oneshot::Receiver<()>>,
    next: Option<Seq>,
}

/// What an attachment waits for.
enum AttachmentInput {
    Looked(Result<ReaderInput, Unavailable>),
    Acked,
    Input(ReaderInput),
}

/// A look at the store.
type Look = Pin<Box<dyn Future<Output = Result<ReaderInput, Unavailable>> + Send>>;

/// The way from a client to its session. Cheap to clone; what is sent once another client has taken the session over has
/// no effect.
#[derive(Clone)]
pub struct Line {
    shared: Arc<Shared>,
    about: Arc<About>,
    generation: Generation,
}

impl Attachment {
    /// Of a client that the store has just attached. `changes` were subscribed to before.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        changes: Changes,
        attached: Attached,
        presence: Presence,
        asked: Option<Asked>,
    ) -> Self {
        let (about, generation) = (Arc::clone(&attached.record.about), presence.generation());
        let settings = Arc::clone(&shared.session_settings);
        Self {
            reader: Reader::attached(attached, asked, settings, shared.clock.now()),
            changes,
            asked: None,
            acks: Acks::default(),
            line: Line { shared: Arc::clone(shared), about, generation },
            presence,
            draining: shared.draining.subscribe(),
            stop: shared.stop.subscribe(),
            is_over: false,
        }
    }

    /// The way to say something while waiting for what comes.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// The session as its client knows it.
    pub fn record(&self) -> &Record {
        self.reader.record()
    }

    /// What the client is to be told next; nothing once the attachment is over. Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            while let Some(output) = self.reader.poll_output() {
                if let Some(told) = self.carry_out(output) {
                    return Some(told);
                }
            }
            if self.is_over || self.reader.is_over() {
                return None;
            }
            let Some(input) = self.wait().await else {
                self.is_over = true;
                let code = if *self.stop.borrow() { CloseCode::Draining } else { CloseCode::Busy };
                return Some(Told::Leave(LeaveReason::Closed(code)));
            };
            self.handle(input);
        }
    }

    /// What happens next; nothing if the server stops or the store does not work. Time comes before changes, or a session
    /// that never rests would never be sent a heartbeat.
    async fn wait(&mut self) -> Option<ReaderInput> {
        let clock = &self.line.shared.clock;
        let deadline = self.reader.next_deadline().unwrap_or_else(|| clock.now() + FAR_OFF);
        let deadline = clock.instant(deadline);
        let happened = tokio::select! {
            biased;
            looked = answer(&mut self.asked) => AttachmentInput::Looked(looked),
            () = ack_done(&mut self.acks.under_way) => AttachmentInput::Acked,
            Ok(()) = self.draining.changed() => AttachmentInput::Input(ReaderInput::Drain),
            _ = self.stop.wait_for(|stop| *stop) => return None,
            () = sleep_until(deadline) => AttachmentInput::Input(ReaderInput::Tick),
            () = self.changes.changed() => match self.changes.are_over() {
                true => return None,
                false => AttachmentInput::Input(ReaderInput::Changed),
            },
        };
        match happened {
            AttachmentInput::Looked(looked) => {
                self.asked = None;
                looked.ok()
            }
            AttachmentInput::Acked => {
                self.acks.under_way = None;
                self.send_ack();
                Some(ReaderInput::Tick)
            }
            AttachmentInput::Input(input) => Some(input),
        }
    }

    fn carry_out(&mut self, output: ReaderOutput) -> Option<Told> {
        let (shared, about) = (&self.line.shared, &self.line.about);
        match output {
            ReaderOutput::Read { after } => {
                let (store, about) = (shared.store.clone(), Arc::clone(about));
                self.asked = Some(Box::pin(async move {
                    let page = store.read(&about.id, after, PageLimit::default()).await?;
                    Ok(ReaderInput::Page { after, page: page.map(Box::new) })
                }));
            }
            ReaderOutput::Look => {
                let (store, about) = (shared.store.clone(), Arc::clone(about));
                self.asked = Some(Box::pin(async move {
                    Ok(ReaderInput::Looked(store.session(&about.id).await?.map(Box::new)))
                }));
            }
            ReaderOutput::Ack(ack) => {
                self.acks.next = Some(ack.seq);
                self.send_ack();
            }
            ReaderOutput::Tell(tell) => {
                if let Tell::Gap(Gap::Evicted { lost: Some(lost), .. }) = &tell {
                    shared.metrics.lost_events.inc_by(lost.count());
                }
                return Some(Told::Tell(tell));
            }
            ReaderOutput::HeartbeatMissed => {
                shared.metrics.heartbeats_missed.inc();
            }
            ReaderOutput::Leave(reason) => {
                self.is_over = true;
                match reason {
                    LeaveReason::Closed(CloseCode::HeartbeatLost) => self.presence.park(),
                    // The session has another client, or none, or is no more.
                    LeaveReason::Closed(_) | LeaveReason::Cut => self.presence.is_over(),
                }
                return Some(Told::Leave(reason));
            }
        }
        None
    }

    fn send_ack(&mut self) {
        if self.acks.under_way.is_none()
            && let Some(seq) = self.acks.next.take()
            && let Begun::UnderWay(done) = self.presence.ack(seq)
        {
            self.acks.under_way = Some(done);
        }
    }

    fn handle(&mut self, input: ReaderInput) {
        self.reader.handle(input, self.line.shared.clock.now());
    }

    /// The client's socket has taken everything it was told.
    pub fn taken(&mut self) {
        self.handle(ReaderInput::Writable);
    }

    /// The client sent something, other than a pong.
    pub fn heard(&mut self) {
        self.handle(ReaderInput::Heard);
    }

    /// The client sent a pong.
    pub fn pong(&mut self) {
        self.handle(ReaderInput::Pong);
    }

    /// The client has received everything up to `seq`; `resend` if it wants what comes after that again.
    pub fn ack(&mut self, seq: Seq, resend: bool) {
        self.handle(ReaderInput::Ack { seq, resend });
    }

    /// The state that the client was to be sent is the one that it was sent last.
    pub fn state_is_unchanged(&mut self) {
        self.handle(ReaderInput::StateUnchanged);
    }

    /// Puts something for the agent on its way. What is posted first is entered first. Events that the agent says because
    /// of it come after [`Attachment::answered`].
    pub fn post(&mut self, kind: EntryKind, message_id: Option<&str>, body: Body) -> Posted {
        self.handle(ReaderInput::Posted);
        self.handle(ReaderInput::Heard);
        self.line.post(kind, message_id, body)
    }

    /// The client was told what became of a message that was posted: it was entered under this number, or not.
    pub fn answered(&mut self, in_seq: Option<InSeq>) {
        self.handle(ReaderInput::Answered(in_seq));
    }

    /// Ends the session; returns once that is durable. The attachment is told so and is over.
    pub async fn end(&mut self) -> Result<(), EndError> {
        self.handle(ReaderInput::EndsItself(true));
        let ended = self.line.end().await;
        if ended.is_err() {
            self.handle(ReaderInput::EndsItself(false));
        }
        ended
    }
}

async fn answer(asked: &mut Option<Look>) -> Result<ReaderInput, Unavailable> {
    match asked {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

async fn ack_done(under_way: &mut Option<oneshot::Receiver<()>>) {
    match under_way {
        Some(done) => drop(done.await),
        None => std::future::pending().await,
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
        &self.about.id
    }

    /// Sends something to the agent, and returns once it is durable.
    pub async fn send(
        &self,
        kind: EntryKind,
        message_id: Option<&str>,
        body: Body,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.post(kind, message_id, body).entered().await
    }

    /// Puts something for the agent on its way. What is posted first is entered first.
    pub fn post(&self, kind: EntryKind, message_id: Option<&str>, body: Body) -> Posted {
        let digest = message_id.map(|id| entry::digest(id, &body));
        let new = NewEntry { generation: Some(self.generation), kind, digest, body };
        Posted(self.shared.enter(&self.about, new))
    }

    /// Ends the session; returns once that is durable.
    pub async fn end(&self) -> Result<(), EndError> {
        let (shared, about) = (Arc::clone(&self.shared), Arc::clone(&self.about));
        let end = End {
            ending: Ending::Closed,
            only_parked: None,
            only_by: Some(self.generation),
            only_due: false,
            remember_for: shared.settings.remember_for(),
            now: shared.clock.now(),
        };
        let ended = self
            .shared
            .tasks
            .begin(|owned| async move { shared.end(owned, &about.id, end).await.map(drop) });
        ended.outcome().await?
    }
}

/// Something for the agent that is on its way.
#[derive(Debug)]
pub struct Posted(Begun<Result<Entered, Failure<EnterRefused>>>);

impl Posted {
    /// Waits until it is durable, or refused.
    pub async fn entered(self) -> Result<Entered, Failure<EnterRefused>> {
        self.0.outcome().await?
    }
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attachment").field(&self.presence).finish()
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Line").field(&self.about.id).field(&self.generation).finish()
    }
}
