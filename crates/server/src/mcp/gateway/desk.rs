//! One session's gateway: what it holds, and what it does when.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_core::page::StoredEntry;
use rejoin_core::worker::Publication;
use rejoin_core::{EventBody, InSeq, Principal, Seq, SessionId, Term};
use tokio::sync::watch;
use tokio::time::timeout;

use super::book::{Book, Keeping, Written};
use super::ids::UpstreamIds;
use super::lists::Comparing;
use super::pending::{Pending, Requests};
use super::questions::Asked;
use super::unsent::{Exchange, Unsent, exchange};
use super::{Gateway, LAST_WORDS};
use crate::agent::{Inbox, Orders, Saying, Seat, Voice, stopped};
use crate::child::places::Place;
use crate::child::stray::StrayLog;
use crate::error::PublishError;
use crate::limits::SAYINGS_ON_THEIR_WAY;
use crate::mcp::hub::{Hub, Present};
use crate::mcp::logged::{Event, Notes, StreamName};
use crate::mcp::message::{Message, RequestId};
use crate::mcp::own_words::{RpcError, error_response};
use crate::mcp::upstream::{Heard, Link, Unreachable};
use crate::metrics::CallOutcome;
use crate::shared::Shared;

/// Bytes of publications on their way to the store, for messages may be large: beyond that there is one at a time.
const BYTES_ON_THEIR_WAY: usize = 4 * 1024 * 1024;

/// One session's gateway.
pub(super) struct Desk<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) session: SessionId,
    /// Whose session it is.
    pub(super) principal: Principal,
    pub(super) term: Term,
    pub(super) shared: Arc<Shared>,
    pub(super) hub: Arc<Hub>,
    pub(super) ids: UpstreamIds,
    pub(super) keeping: Keeping,
    pub(super) requests: Requests,
    /// Questions of the server that the client has not answered, by our id.
    pub(super) questions: HashMap<String, Asked>,
    /// Questions that were asked so far.
    pub(super) asked: u64,
    /// Requests that we made for ourselves.
    pub(super) own: u64,
    /// Those of them that we wait for, and what became of them.
    pub(super) asking: HashMap<RequestId, Option<Result<Message, Unreachable>>>,
    /// Which lists of the server are being compared with what the client has.
    pub(super) comparing: Comparing,
    pub(super) link: Option<Link>,
    /// What the server has no room for yet.
    pub(super) unsent: VecDeque<Unsent>,
    /// Requests whose answers were lost on the way, by a server that goes on.
    pub(super) lost: VecDeque<InSeq>,
    /// What the tools of the server that runs say of themselves, once it was asked.
    pub(super) annotations: Option<HashMap<String, super::rerun::Annotations>>,
    pub(super) stray: StrayLog,
    inbox: Inbox,
    voice: Voice,
    pub(super) orders: watch::Receiver<Orders>,
    resigned: Arc<AtomicBool>,
    /// Publications on their way, and the bytes of each.
    sayings: VecDeque<(Saying, usize)>,
    saying_bytes: usize,
    /// Held while a request is under way.
    present: Option<Present>,
    /// The place of the child, which somebody else may need.
    pub(super) place: Option<Place>,
}

/// Why a desk closes.
#[derive(Debug)]
pub(super) enum Closing {
    /// It was told to stop.
    Told,
    /// Its client went over to another session: this one is over.
    Left,
    /// Its child's place is needed, and it has nothing to do.
    Displaced,
    /// Nobody takes what it says: the session is over, or another process has it.
    NotTaken(PublishError),
}

impl From<PublishError> for Closing {
    fn from(error: PublishError) -> Self {
        Self::NotTaken(error)
    }
}

/// What happened at a desk.
enum DeskInput {
    Entry(StoredEntry),
    Heard(Heard),
    /// An answer was lost on the way.
    LostAnswer(InSeq),
    /// The server has gone.
    Lost,
    Published,
    /// The server has taken what was put aside: there may be more for it.
    Sent,
}

impl<'a> Desk<'a> {
    pub(super) fn open(gateway: &'a Gateway, seat: Seat) -> Self {
        let Seat { start, inbox, voice, orders, resigned, shared, .. } = seat;
        let session = start.record.id().clone();
        let book = Book::from_body(start.snapshot.as_ref().map(|snapshot| &snapshot.body));
        let hub = shared.hubs.of(&session);
        let ids = UpstreamIds::of(&gateway.upstream, &shared.process);
        Self {
            gateway,
            session,
            principal: start.record.about.principal.clone(),
            term: start.term,
            hub,
            ids,
            shared,
            keeping: Keeping::from(book),
            requests: Requests::default(),
            questions: HashMap::new(),
            asked: 0,
            own: 0,
            asking: HashMap::new(),
            comparing: Comparing::default(),
            link: None,
            unsent: VecDeque::new(),
            lost: VecDeque::new(),
            annotations: None,
            stray: StrayLog::default(),
            inbox,
            voice,
            orders,
            resigned,
            sayings: VecDeque::new(),
            saying_bytes: 0,
            present: None,
            place: None,
        }
    }

    /// Works until it is told to stop, or has nothing to do and is in the way.
    pub(super) async fn work(mut self) {
        let Err(closing) = self.go_on().await;
        match &closing {
            Closing::Told => {}
            // It leaves nothing undone, whether or not the driver knows yet that the session has ended.
            Closing::Left | Closing::Displaced => self.resigned.store(true, Ordering::Release),
            Closing::NotTaken(why) => {
                tracing::debug!(session = %self.session, %why, "nobody takes what an MCP server says");
            }
        }
        let over = *self.orders.borrow() == Orders::End || matches!(closing, Closing::Left);
        if over {
            self.shared.hubs.forget(&self.session);
        }
        match self.link.take() {
            // Another process goes on with the session soon.
            Some(link) if self.shared.is_stopping() => link.leave().await,
            Some(link) => {
                if !over {
                    let _ = timeout(LAST_WORDS, self.give_theirs_up()).await; // or it is asked for in vain
                }
                drop(link.close().await);
            }
            None => {}
        }
    }

    async fn go_on(&mut self) -> Result<Infallible, Closing> {
        self.recall_token_use().await;
        self.withdraw_left_questions().await?;
        loop {
            self.step().await?;
        }
    }

    /// The server is told that its session is over: whoever comes next begins another one.
    async fn give_theirs_up(&mut self) -> Result<(), Closing> {
        if self.keeping.book().theirs.is_some() {
            self.keeping.change().theirs = None;
            self.publish(Vec::new(), false).await?;
        }
        self.flush().await
    }

    async fn step(&mut self) -> Result<(), Closing> {
        match self.next().await? {
            DeskInput::Entry(entry) => self.on_entry(entry).await,
            DeskInput::Heard(heard) => self.on_heard(heard).await,
            DeskInput::LostAnswer(in_seq) => self.hand_again(in_seq).await,
            DeskInput::Lost => self.on_lost().await,
            DeskInput::Published | DeskInput::Sent => Ok(()),
        }
    }

    async fn next(&mut self) -> Result<DeskInput, Closing> {
        if let Some(in_seq) = self.lost.pop_front() {
            return Ok(DeskInput::LostAnswer(in_seq));
        }
        let has_room =
            self.sayings.len() < SAYINGS_ON_THEIR_WAY && self.saying_bytes < BYTES_ON_THEIR_WAY;
        let takes_more = has_room && self.unsent.is_empty();
        let place = async {
            match &self.place {
                Some(place) => place.needed(self.orders.clone()).await,
                None => std::future::pending().await,
            }
        };
        let oldest = async {
            match self.sayings.front_mut() {
                Some((saying, _)) => saying.published().await,
                None => std::future::pending().await,
            }
        };
        let exchange = exchange(&mut self.link, &mut self.unsent);
        let mut orders = self.orders.clone();
        tokio::select! {
            biased; // an order before what follows from it
            _ = stopped(&mut orders) => Err(Closing::Told),
            published = oldest => {
                self.saying_bytes -= self.sayings.pop_front().map_or(0, |(_, bytes)| bytes);
                published?;
                Ok(DeskInput::Published)
            }
            () = place => Err(Closing::Displaced),
            exchange = exchange, if has_room => Ok(match exchange {
                Exchange::Heard(heard) => DeskInput::Heard(heard),
                Exchange::Sent => DeskInput::Sent,
                Exchange::Gone => DeskInput::Lost,
            }),
            entry = self.inbox.next(), if takes_more => entry.map(DeskInput::Entry).ok_or(Closing::Told),
        }
    }

    /// Publishes a message on a stream that nobody waits for.
    pub(super) async fn say(&mut self, stream: StreamName, text: &str) -> Result<(), Closing> {
        self.publish(vec![Event::said(stream, text).to_body()], false).await
    }

    /// Publishes a question on a stream: the server waits for the answer, so it is kept as results are.
    pub(super) async fn put(&mut self, stream: StreamName, text: &str) -> Result<(), Closing> {
        self.publish(vec![Event::said(stream, text).to_body()], true).await
    }

    /// Answers a request, which is dealt with then.
    pub(super) async fn answer(
        &mut self,
        in_seq: InSeq,
        text: &str,
        outcome: CallOutcome,
    ) -> Result<(), Closing> {
        self.count_call(in_seq, outcome);
        self.finish(in_seq, Some(text)).await
    }

    /// Answers a request with an error of ours.
    pub(super) async fn answer_error(
        &mut self,
        in_seq: InSeq,
        error: &RpcError,
    ) -> Result<(), Closing> {
        let Some(pending) = self.requests.get(in_seq) else { return Ok(()) };
        let text = error_response(Some(&pending.id), error);
        let outcome = if pending.unknown { CallOutcome::Unknown } else { CallOutcome::Error };
        self.answer(in_seq, &text, outcome).await
    }

    /// Counts a request that ends, if it calls a tool.
    pub(super) fn count_call(&self, in_seq: InSeq, outcome: CallOutcome) {
        if let Some(tool) = self.requests.get(in_seq).and_then(Pending::tool) {
            self.shared.metrics.tool_calls.ended(&tool, outcome);
        }
    }

    /// A request is dealt with, with an answer or without one.
    pub(super) async fn finish(
        &mut self,
        in_seq: InSeq,
        message: Option<&str>,
    ) -> Result<(), Closing> {
        let Some(pending) = self.requests.get(in_seq) else { return Ok(()) };
        let fetched_later = self.gateway.session_tools && pending.method() == "tools/call";
        let request = Some(pending.message.text()).filter(|_| fetched_later || pending.unknown);
        let (stream, fetched) = (pending.stream.clone(), self.fetched_meanwhile(&self.session));
        let notes = Notes { fetched, token: pending.token_given.clone(), ..Notes::default() };
        let body = Event { message, stream, answers: Some(in_seq), request, notes }.to_body();
        self.conclude(in_seq, body).await
    }

    /// Answers that were fetched since a session had its last one, for its next one to say so.
    pub(super) fn fetched_meanwhile(&self, session: &SessionId) -> Vec<Seq> {
        match self.gateway.session_tools {
            true => self.shared.hubs.fetched.take_unwritten(session),
            false => Vec::new(),
        }
    }

    /// A request is dealt with, by this event.
    pub(super) async fn conclude(&mut self, in_seq: InSeq, body: EventBody) -> Result<(), Closing> {
        self.requests.remove(in_seq);
        self.settle(in_seq);
        self.publish(vec![body], true).await?;
        if self.requests.is_empty() {
            self.present = None;
        }
        Ok(())
    }

    /// Something that needs no answer has been dealt with.
    pub(super) async fn covered(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        self.settle(in_seq);
        self.publish(Vec::new(), false).await
    }

    fn settle(&mut self, in_seq: InSeq) {
        self.keeping.settle(in_seq);
        self.shared.hubs.settled(&self.session, in_seq);
    }

    /// Publishes events, with what must be stored together with them. Results go last where there is
    /// too much.
    pub(super) async fn publish(
        &mut self,
        events: Vec<EventBody>,
        results: bool,
    ) -> Result<(), Closing> {
        let Written { state, answered } = self.keeping.write();
        let (in_seq, key) = (None, None);
        let publication = Publication { events, results, state, in_seq, answered, key };
        let bytes = publication.events.iter().map(|body| body.len()).sum();
        self.sayings.push_back((self.voice.say(publication).await?, bytes));
        self.saying_bytes += bytes;
        Ok(())
    }

    /// Waits until everything that was said is stored.
    pub(super) async fn flush(&mut self) -> Result<(), Closing> {
        self.saying_bytes = 0;
        for (mut saying, _) in std::mem::take(&mut self.sayings) {
            saying.published().await?;
        }
        Ok(())
    }

    /// Says that a request is under way.
    pub(super) fn busy(&mut self) {
        if self.present.is_none() {
            self.present = Some(self.hub.count_in());
        }
    }
}
