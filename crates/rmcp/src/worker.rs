//! One session's handler, seen from its logs: what the client sent goes to it, what it says goes into the out
//! log, and only then to whoever reads.
//!
//! A request is in the in log before it comes here, and is dealt with in the commit that stores its answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rejoin::Sessions;
use rejoin::core::worker::Publication;
use rejoin::core::{EventBody, SessionId};
use rejoin::mcp::parts::{Event, Handshake, Hub, Keeping, Notes, StreamName};
use rejoin::store::{Changes, Failure};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::SessionRestoreMarker;
use rmcp::transport::worker::{
    Worker, WorkerConfig, WorkerContext, WorkerQuitReason, WorkerSendRequest,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::error::ManagerError;
use crate::left_over::{LeftOver, MayRunAgain};
use crate::limits::{INITIALIZING, SAID_AT_ONCE};
use crate::live::Ours;
use crate::pending::{Pending, Requests};
use crate::words;

/// What a handler is told by its client.
#[derive(Debug)]
pub(crate) enum FromClient {
    /// The first message.
    Initialize(Box<ClientJsonRpcMessage>, oneshot::Sender<ServerJsonRpcMessage>),
    /// A request that is in the in log; says whether it was taken.
    Request(Box<ClientJsonRpcMessage>, Pending, oneshot::Sender<Result<(), ManagerError>>),
    /// Anything that needs no answer.
    Message(Box<ClientJsonRpcMessage>),
}

/// One session's handler, seen from its logs.
pub struct SessionWorker {
    pub(crate) sessions: Sessions,
    pub(crate) session: SessionId,
    pub(crate) hub: Arc<Hub>,
    pub(crate) keeping: Keeping,
    pub(crate) requests: Requests,
    pub(crate) from_client: mpsc::Receiver<FromClient>,
    /// Requests that a handler before this one left, oldest first.
    pub(crate) left_over: VecDeque<LeftOver>,
    pub(crate) may_run_again: MayRunAgain,
    /// How long a handler is kept that has no client and nothing to do.
    pub(crate) idle_ttl: Option<Duration>,
    pub(crate) changes: Changes,
    /// Its place among the handlers that live.
    pub(crate) place: Ours<mpsc::Sender<FromClient>>,
}

type Quit = WorkerQuitReason<ManagerError>;
type Context = WorkerContext<SessionWorker>;

/// What happened to a handler.
enum Happened {
    Client(FromClient),
    Said(Box<WorkerSendRequest<SessionWorker>>),
    /// Something changed in the session; it may have ended.
    Stirred,
    /// For a while nothing has happened.
    Quiet,
}

impl Worker for SessionWorker {
    type Error = ManagerError;
    type Role = RoleServer;

    fn err_closed() -> ManagerError {
        ManagerError::HandlerGone
    }

    fn err_join(_: tokio::task::JoinError) -> ManagerError {
        ManagerError::HandlerGone
    }

    fn config(&self) -> WorkerConfig {
        let mut config = WorkerConfig::default();
        config.name = Some(format!("rejoin-session-{}", self.session));
        config.channel_buffer_capacity = SAID_AT_ONCE;
        config
    }

    async fn run(mut self, mut context: Context) -> Result<(), Quit> {
        let begun = match timeout(INITIALIZING, self.begin(&mut context)).await {
            Ok(begun) => begun,
            Err(_) => Err(quit(ManagerError::HandlerGone, "nobody began the session")),
        };
        if self.keeping.book().handshake.is_none() {
            let _ = self.sessions.end(&self.session).await; // it never began, so nobody can come back to it
        }
        begun?;
        let ended = self.work(&mut context).await;
        self.give_up().await;
        ended
    }
}

impl SessionWorker {
    /// The handshake: that of the client, which is stored; or, when the session goes on with another handler,
    /// the one that was stored, which changes nothing.
    async fn begin(&mut self, context: &mut Context) -> Result<(), Quit> {
        let first = tokio::select! {
            first = self.from_client.recv() => first,
            () = context.cancellation_token.cancelled() => return Err(Quit::Cancelled),
        };
        let Some(FromClient::Initialize(request, reply)) = first else {
            return Err(quit(ManagerError::HandlerGone, "the first message is no handshake"));
        };
        let asked = request.clone();
        context.send_to_handler(*request).await?;
        let answer = context.recv_from_handler().await?;
        if self.keeping.book().handshake.is_none() {
            self.note_handshake(&asked, &answer.message)
                .await
                .map_err(|error| quit(error, "the handshake was not stored"))?;
        }
        let (answered, was_answered) = (answer.message, answer.responder);
        let _ = was_answered.send(Ok(()));
        let goes_on = restored(&asked);
        if !goes_on {
            self.place.is_ready(); // before the client can know of it
        }
        let _ = reply.send(answered); // whoever asked may have gone
        if goes_on {
            self.go_on(&asked, context).await?;
            self.place.is_ready();
        }
        Ok(())
    }

    async fn note_handshake(
        &mut self,
        asked: &ClientJsonRpcMessage,
        answer: &ServerJsonRpcMessage,
    ) -> Result<(), ManagerError> {
        let ClientJsonRpcMessage::Request(request) = asked else { return Ok(()) };
        let ClientRequest::InitializeRequest(initialize) = &request.request else { return Ok(()) };
        let ServerJsonRpcMessage::Response(response) = answer else { return Ok(()) };
        let raw = |json: Result<_, serde_json::Error>| {
            json.map_err(|error| ManagerError::Unstorable(error.to_string()))
        };
        let params = raw(serde_json::value::to_raw_value(&initialize.params))?;
        let result = raw(serde_json::value::to_raw_value(&response.result))?;
        self.keeping.change().handshake = Some(Handshake { params, result });
        self.publish(Vec::new()).await
    }

    /// The session goes on with this handler: once the client has been introduced, what the one before left
    /// is run again or said to be lost.
    async fn go_on(
        &mut self,
        asked: &ClientJsonRpcMessage,
        context: &mut Context,
    ) -> Result<(), Quit> {
        let Some(FromClient::Message(initialized)) = self.from_client.recv().await else {
            return Err(quit(ManagerError::HandlerGone, "the client was not introduced again"));
        };
        context.send_to_handler(*initialized).await?;
        while let Some(left) = self.left_over.pop_front() {
            let again = left.request_again(&self.may_run_again, self.keeping.book(), asked);
            let (id, mut pending) = left.into_pending();
            let Some(message) = again else {
                self.requests.insert(id.clone(), pending);
                let unknown = self.answer(&id, &words::outcome_unknown(id.clone()));
                self.publish_or_quit(unknown.into_iter().collect()).await?;
                continue;
            };
            let reached = LeftOver::progress(&self.sessions, &self.session, &pending.stream).await;
            pending
                .has_reached(reached.map_err(|error| quit(error.into(), "the log was not read"))?);
            *self.keeping.change().reruns.entry(pending.in_seq.get()).or_default() += 1;
            self.publish_or_quit(Vec::new()).await?; // counted before it runs, or it might run without end
            tracing::info!(session = %self.session, in_seq = %pending.in_seq, "a request runs again");
            self.requests.insert(id, pending);
            context.send_to_handler(message).await?;
        }
        Ok(())
    }

    /// Works until the handler or the session ends.
    async fn work(&mut self, context: &mut Context) -> Result<(), Quit> {
        if self.is_over().await? {
            return Err(Quit::TransportClosed); // it may have ended before anybody watched
        }
        loop {
            match self.next(context).await? {
                Happened::Client(said) => self.on_client(said, context).await?,
                Happened::Said(said) => self.on_said(*said, context).await?,
                Happened::Stirred if self.is_over().await? => return Err(Quit::TransportClosed),
                Happened::Quiet if self.is_idle() => {
                    return Err(Quit::IdleTimeout(self.idle_ttl.unwrap_or_default()));
                }
                Happened::Stirred | Happened::Quiet => {}
            }
        }
    }

    /// The handler has ended. Whoever waits for an answer of it is told, unless the server itself stops: then
    /// the next one sees to it.
    async fn give_up(&mut self) {
        let mut events = Vec::new();
        for id in self.requests.ids() {
            events.extend(self.answer(&id, &words::outcome_unknown(id.clone())));
        }
        if !events.is_empty()
            && let Err(error) = self.publish(events).await
        {
            tracing::debug!(session = %self.session, %error, "requests under way are left over");
        }
    }

    async fn next(&mut self, context: &mut Context) -> Result<Happened, Quit> {
        let quiet = async {
            match self.idle_ttl {
                Some(ttl) => sleep(ttl).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            said = context.from_handler_rx.recv() => {
                said.map(Box::new).map(Happened::Said).ok_or(Quit::HandlerTerminated)
            }
            client = self.from_client.recv() => {
                client.map(Happened::Client).ok_or(Quit::TransportClosed)
            }
            () = self.changes.changed() => Ok(Happened::Stirred),
            () = context.cancellation_token.cancelled() => Err(Quit::Cancelled),
            () = quiet => Ok(Happened::Quiet),
        }
    }

    async fn on_client(&mut self, said: FromClient, context: &mut Context) -> Result<(), Quit> {
        match said {
            FromClient::Initialize(..) => Ok(()), // dropping its reply says that this can't be
            FromClient::Request(message, pending, taken) => {
                let id = request_id(&message);
                if self.requests.contains(&id) {
                    let refused = ManagerError::DuplicateRequest(id.to_string());
                    let _ = taken.send(Err(refused));
                    self.keeping.settle(pending.in_seq);
                    return self.publish_or_quit(Vec::new()).await;
                }
                self.requests.insert(id, pending);
                let _ = taken.send(Ok(()));
                context.send_to_handler(*message).await
            }
            FromClient::Message(message) => {
                if let Some(id) = cancelled(&message) {
                    let events = self.finish(&id, None).into_iter().collect();
                    self.publish_or_quit(events).await?;
                }
                context.send_to_handler(*message).await
            }
        }
    }

    /// Stores what the handler says, and whatever else it has said meanwhile, before it is told that it was
    /// heard.
    async fn on_said(
        &mut self,
        first: WorkerSendRequest<Self>,
        context: &mut Context,
    ) -> Result<(), Quit> {
        let (mut events, mut heard) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(said) = next.take() {
            let event = self.event_of(&said.message);
            match event {
                Ok(event) => {
                    events.extend(event);
                    heard.push(said.responder);
                }
                Err(error) => drop(said.responder.send(Err(error))),
            }
            if heard.len() < SAID_AT_ONCE {
                next = context.from_handler_rx.try_recv().ok();
            }
        }
        let stored = self.publish(events).await;
        let failed = stored.is_err();
        for responder in heard {
            let _ = responder.send(if failed { Err(ManagerError::HandlerGone) } else { Ok(()) });
        }
        stored.map_err(|error| quit(error, "what the handler said was not stored"))
    }

    /// A message as an event of the out log; nothing if nobody waits for it.
    fn event_of(
        &mut self,
        message: &ServerJsonRpcMessage,
    ) -> Result<Option<EventBody>, ManagerError> {
        let answered = match message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
                let general_is_read = self.hub.is_read(&StreamName::general());
                let stream = self.requests.stream_for(message, general_is_read);
                let text = words::text_of(message)?;
                return Ok(stream.map(|stream| event(Some(&text), stream)));
            }
        };
        let text = words::text_of(message)?;
        Ok(answered.and_then(|id| self.finish(&id, Some(&text))))
    }

    fn answer(&mut self, id: &RequestId, message: &ServerJsonRpcMessage) -> Option<EventBody> {
        let text = words::text_of(message).ok()?;
        self.finish(id, Some(&text))
    }

    /// A request is dealt with, with an answer or without one. One that is not under way was cancelled.
    fn finish(&mut self, id: &RequestId, message: Option<&str>) -> Option<EventBody> {
        let pending = self.requests.remove(id)?;
        self.keeping.settle(pending.in_seq);
        let (stream, answers) = (pending.stream, Some(pending.in_seq));
        Some(Event { message, stream, answers, request: None, notes: Notes::default() }.to_body())
    }

    async fn publish_or_quit(&mut self, events: Vec<EventBody>) -> Result<(), Quit> {
        self.publish(events)
            .await
            .map_err(|error| quit(error, "the session takes nothing any more"))
    }

    /// Publishes events, with what must be stored together with them.
    async fn publish(&mut self, events: Vec<EventBody>) -> Result<(), ManagerError> {
        let written = self.keeping.write();
        let answers =
            |body: &EventBody| Event::from_body(body).is_some_and(|it| it.answers.is_some());
        let results = events.iter().any(answers);
        let (state, answered) = (written.state, written.answered);
        let (in_seq, key) = (None, None);
        let publication = Publication { events, results, state, in_seq, answered, key };
        self.sessions.publish(&self.session, publication).await?;
        Ok(())
    }

    async fn is_over(&self) -> Result<bool, Quit> {
        let record = self.sessions.store().session(&self.session).await;
        let record = record.map_err(|error| quit(error.into(), "the store failed"))?;
        Ok(record.is_none_or(|record| !record.is_active()))
    }

    /// Whether nobody needs the handler. If so it has left its place.
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.hub.is_attached() && self.place.leave_if_unwanted()
    }
}

fn event(message: Option<&str>, stream: StreamName) -> EventBody {
    Event { message, stream, answers: None, request: None, notes: Notes::default() }.to_body()
}

/// Whether a handshake is not the client's own but repeats it.
fn restored(asked: &ClientJsonRpcMessage) -> bool {
    use rmcp::model::GetExtensions as _;
    match asked {
        ClientJsonRpcMessage::Request(request) => {
            request.request.extensions().get::<SessionRestoreMarker>().is_some()
        }
        ClientJsonRpcMessage::Response(_)
        | ClientJsonRpcMessage::Notification(_)
        | ClientJsonRpcMessage::Error(_) => false,
    }
}

/// The id of a request; of anything else one that no request has.
pub(crate) fn request_id(message: &ClientJsonRpcMessage) -> RequestId {
    match message {
        ClientJsonRpcMessage::Request(request) => request.id.clone(),
        ClientJsonRpcMessage::Response(_)
        | ClientJsonRpcMessage::Notification(_)
        | ClientJsonRpcMessage::Error(_) => RequestId::String("".into()),
    }
}

/// The request that a client does not want any more.
fn cancelled(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    let ClientJsonRpcMessage::Notification(notification) = message else { return None };
    let ClientNotification::CancelledNotification(cancelled) = &notification.notification else {
        return None;
    };
    cancelled.params.request_id.clone()
}

fn quit(error: ManagerError, when: &'static str) -> Quit {
    use ManagerError::NotPublished;
    // The session has ended, and whoever ended it knows.
    if matches!(error, NotPublished(Failure::NotFound | Failure::Refused(_))) {
        return Quit::TransportClosed;
    }
    Quit::fatal(error, when)
}
