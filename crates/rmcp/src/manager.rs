//! rmcp's sessions on Rejoin's: every request and every message is in a log before anybody sees it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::Stream;
use rejoin::Sessions;
use rejoin::core::log::EntryKind;
use rejoin::core::record::{Kind, Record, Transport};
use rejoin::core::{Seq, SessionId};
use rejoin::mcp::parts::{
    self, Beginning, Book, Entry, EventId, Feed, Hub, Keeping, Next, Owed, Present, SessionTag,
    StreamName, Streams,
};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId as RmcpSessionId, SessionManager,
};
use tokio::sync::{mpsc, oneshot};

use crate::builder::Builder;
use crate::call::{caller, note_busy, note_refusal};
use crate::error::ManagerError;
use crate::left_over::{LeftOver, MayRunAgain};
use crate::limits::WAITING_MESSAGES;
use crate::live::{Live, Ours};
use crate::pending::{Pending, Requests};
use crate::session_store::DurableSessionStore;
use crate::stream::events_of;
use crate::words;
use crate::worker::{FromClient, SessionWorker, request_id};

/// How clients of these sessions are connected.
const OVER: Transport = Transport::StreamableHttp;

/// A session manager for rmcp whose sessions survive: their client's absence, and their server's end.
///
/// Give it to [`crate::service`], with what makes your handler. Clones share their sessions.
#[derive(Clone)]
pub struct DurableSessionManager {
    pub(crate) streams: Streams,
    pub(crate) live: Live<mpsc::Sender<FromClient>>,
    pub(crate) sse_retry: Duration,
    pub(crate) handler_idle_ttl: Option<Duration>,
    /// What is known of the tools, once there is a service.
    pub(crate) may_run_again: Arc<OnceLock<MayRunAgain>>,
}

impl DurableSessionManager {
    /// A manager whose sessions are kept in `store`.
    pub fn builder(store: Arc<dyn rejoin::store::Store>) -> Builder {
        Builder::new(store)
    }

    /// The sessions behind it: to list them, end one, or read what was counted.
    pub fn sessions(&self) -> &Sessions {
        self.streams.sessions()
    }

    /// What rmcp asks for sessions that it does not know. [`crate::service`] sees to it.
    pub fn session_store(&self) -> DurableSessionStore {
        DurableSessionStore::new(self.sessions().clone())
    }

    /// How many sessions have a handler in this process.
    pub fn handlers(&self) -> usize {
        self.live.len()
    }

    /// Ends every stream, waits until everything is stored and closes the store. Sessions stay as they are.
    pub async fn close(&self) -> Result<(), rejoin::store::Unavailable> {
        self.streams.close();
        self.sessions().close().await
    }

    /// The session of this id that goes on.
    pub(crate) async fn record(&self, id: &str) -> Result<Record, ManagerError> {
        let unknown = || ManagerError::NoSession(id.into());
        let id = SessionId::parse(id).map_err(|_| unknown())?;
        let record = self.sessions().store().session(&id).await?;
        let own = |record: &Record| record.is_active() && record.about.kind == Kind::Mcp;
        record.filter(own).ok_or_else(unknown)
    }

    fn way(&self, id: &SessionId) -> Result<mpsc::Sender<FromClient>, ManagerError> {
        self.live.get(id).ok_or(ManagerError::HandlerGone)
    }

    fn hub(&self, id: &SessionId) -> Arc<Hub> {
        parts::hub(self.sessions(), id)
    }

    async fn enter(&self, record: &Record, anew: bool) -> Present {
        self.hub(record.id()).enter(self.sessions(), record, OVER, anew).await
    }

    /// Begins a handler of a session, unless it has one.
    async fn begin(&self, record: &Record) -> Result<Option<SessionWorker>, ManagerError> {
        let store = self.sessions().store();
        let snapshot = store.snapshot(record.id()).await?;
        let book = Book::from_body(snapshot.as_ref().map(|snapshot| &snapshot.body));
        let left_over = LeftOver::of(self.sessions(), record).await?;
        let (way, from_client) = mpsc::channel(WAITING_MESSAGES);
        let Some(place) = self.live.take(record.id(), way) else { return Ok(None) };
        let keeping = Keeping::from(book);
        Ok(Some(self.worker(record, place, from_client, keeping, left_over)))
    }

    fn worker(
        &self,
        record: &Record,
        place: Ours<mpsc::Sender<FromClient>>,
        from_client: mpsc::Receiver<FromClient>,
        keeping: Keeping,
        left_over: std::collections::VecDeque<LeftOver>,
    ) -> SessionWorker {
        let never = || -> MayRunAgain { Arc::new(|_| false) };
        SessionWorker {
            sessions: self.sessions().clone(),
            session: record.id().clone(),
            hub: self.hub(record.id()),
            keeping,
            requests: Requests::default(),
            from_client,
            left_over,
            may_run_again: self.may_run_again.get().cloned().unwrap_or_else(never),
            idle_ttl: self.handler_idle_ttl,
            changes: self.sessions().store().changes(record.id()),
            place,
        }
    }

    /// The empty event with which a stream begins where the revision has that: the client knows from it where
    /// it stands, and when to come back.
    async fn priming(
        &self,
        record: &Record,
        feed: &Feed,
    ) -> Result<Option<ServerSseMessage>, ManagerError> {
        let hub = self.hub(record.id());
        let revision = hub.revision(self.sessions().store()).await?;
        let primed = revision.is_some_and(parts::is_primed);
        Ok(primed.then(|| ServerSseMessage::priming(feed.place(), self.sse_retry)))
    }

    /// The stream that stood at a place when it broke.
    async fn broken_stream(&self, record: &Record, place: &str) -> Result<Feed, ManagerError> {
        let place = place_in(record, place)?;
        let id = record.id();
        let changes = self.sessions().store().changes(id);
        let hub = self.hub(id);
        let anew = hub.is_read(&place.stream) || !hub.has_readers();
        let present = self.enter(record, anew).await;
        let EventId { stream, seq, owed, .. } = place;
        let ends = stream != StreamName::general();
        let cursor = seq.min(record.head);
        let beginning =
            Beginning { stream, cursor, owed, ends, suspects_loss: true, present, changes };
        Ok(Feed::over(self.streams.clone(), record, beginning))
    }
}

/// Where a broken stream stood.
fn place_in(record: &Record, given: &str) -> Result<EventId, ManagerError> {
    let place = EventId::parse(given);
    let ours = place.filter(|place| place.session == SessionTag::of(record.id()));
    let mut ours = ours.ok_or(ManagerError::NoSuchPlace)?;
    if ours.log != record.log {
        ours.seq = Seq::ZERO; // the log it stood in is lost; what was answered there is said to be gone
    }
    Ok(ours)
}

impl SessionManager for DurableSessionManager {
    type Error = ManagerError;
    type Transport = WorkerTransport<SessionWorker>;

    async fn create_session(&self) -> Result<(RmcpSessionId, Self::Transport), ManagerError> {
        let (own, principal) = (self.clone(), caller());
        // To its end: a session without a worker would wait for its handshake until its time is over.
        let made = parts::to_its_end(self.sessions(), async move {
            let record = own.sessions().create(&principal, Kind::Mcp, "{}").await?;
            let worker = own.begin(&record).await?.ok_or(ManagerError::HandlerGone)?;
            Ok((record.id().as_str().into(), WorkerTransport::spawn(worker)))
        });
        made.await?.inspect_err(note_busy)
    }

    async fn initialize_session(
        &self,
        id: &RmcpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, ManagerError> {
        let record = self.record(id).await?;
        let _present = self.enter(&record, false).await;
        let (reply, answer) = oneshot::channel();
        let first = FromClient::Initialize(Box::new(message), reply);
        self.way(record.id())?.send(first).await.map_err(|_| ManagerError::HandlerGone)?;
        answer.await.map_err(|_| ManagerError::HandlerGone)
    }

    /// Whether there is a handler. rmcp restores a session that has none, from [`Self::session_store`].
    async fn has_session(&self, id: &RmcpSessionId) -> Result<bool, ManagerError> {
        match self.record(id).await {
            Ok(record) => Ok(self.live.want(record.id())),
            Err(ManagerError::NoSession(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// rmcp calls this when a handler has ended, for whatever reason, as well as for a DELETE. Only the latter
    /// ends the session, and says so to the session store.
    async fn close_session(&self, _: &RmcpSessionId) -> Result<(), ManagerError> {
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &RmcpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        let record = self.record(id).await?;
        let way = self.way(record.id())?;
        let (reads, works) = (self.enter(&record, false).await, self.enter(&record, false).await);
        let changes = self.sessions().store().changes(record.id());
        let stream = StreamName::from_random(crate::random()?);
        let stored = words::stored_form(&message)?;
        let owes = parts::RequestId::parse(
            &serde_json::to_string(&request_id(&message)).unwrap_or_default(),
        );
        let process = self.sessions().process().clone();
        let entry = Entry { process, stream: stream.clone(), from: None, message: stored };
        let body = entry.to_body();
        let (own, id, answers) = (self.sessions().clone(), record.id().clone(), stream.clone());
        // To its end: an entry that is never handed to the handler would never be answered.
        let handed = parts::to_its_end(self.sessions(), async move {
            let entered = own.send(&id, EntryKind::Message, None, body).await?;
            let pending = Pending::new(entered.in_seq, answers, &message, Some(works));
            let (taken, answer) = oneshot::channel();
            let request = FromClient::Request(Box::new(message), pending, taken);
            way.send(request).await.map_err(|_| ManagerError::HandlerGone)?;
            answer.await.map_err(|_| ManagerError::HandlerGone)??;
            Ok::<_, ManagerError>(entered.in_seq)
        });
        let in_seq = handed.await?.inspect_err(note_busy)?;
        let owed: Owed = owes.map(|id| (in_seq, id)).into_iter().collect();
        let cursor = record.head; // whatever answers it comes after that
        let beginning = Beginning {
            stream,
            cursor,
            owed,
            ends: true,
            suspects_loss: false,
            present: reads,
            changes,
        };
        let feed = Feed::over(self.streams.clone(), &record, beginning);
        let priming = self.priming(&record, &feed).await?;
        Ok(events_of(feed, priming, None))
    }

    async fn accept_message(
        &self,
        id: &RmcpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), ManagerError> {
        let record = self.record(id).await?;
        let way = self.way(record.id())?;
        let _present = self.enter(&record, false).await;
        let message = FromClient::Message(Box::new(message));
        way.send(message).await.map_err(|_| ManagerError::HandlerGone)
    }

    async fn create_standalone_stream(
        &self,
        id: &RmcpSessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        let record = self.record(id).await?;
        let hub = self.hub(record.id());
        let stream = StreamName::general();
        let changes = self.sessions().store().changes(record.id());
        let present = self.enter(&record, hub.is_read(&stream)).await;
        let cursor = hub.general().unwrap_or(record.oldest.previous());
        let (owed, ends) = (Owed::new(), false);
        let beginning =
            Beginning { stream, cursor, owed, ends, suspects_loss: false, present, changes };
        let feed = Feed::over(self.streams.clone(), &record, beginning);
        let priming = self.priming(&record, &feed).await?;
        Ok(events_of(feed, priming, None))
    }

    async fn resume(
        &self,
        id: &RmcpSessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        let resuming = async {
            let record = self.record(id).await?;
            let mut feed = self.broken_stream(&record, &last_event_id).await?;
            let priming = self.priming(&record, &feed).await?;
            match feed.look().await {
                // A stream that ends without a word would make its client ask again and again.
                Some(Next::End) => Err(ManagerError::StreamFinished),
                first => Ok(events_of(feed, priming, first)),
            }
        };
        resuming.await.inspect_err(note_refusal)
    }

    async fn restore_session(
        &self,
        id: RmcpSessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, ManagerError> {
        let record = match self.record(&id).await {
            Ok(record) => record,
            Err(ManagerError::NoSession(_)) => return Ok(RestoreOutcome::NotSupported),
            Err(error) => return Err(error),
        };
        Ok(match self.begin(&record).await? {
            Some(worker) => RestoreOutcome::Restored(WorkerTransport::spawn(worker)),
            None => RestoreOutcome::AlreadyPresent,
        })
    }
}

impl fmt::Debug for DurableSessionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableSessionManager")
            .field("handlers", &self.handlers())
            .finish_non_exhaustive()
    }
}
