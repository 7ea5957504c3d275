//! One session's gateway: what it holds, and what it does when.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_core::limits::WAITING_PUBLICATIONS;
use rejoin_core::page::StoredEntry;
use rejoin_core::session::Publication;
use rejoin_core::{InSeq, SessionId, Term};
use tokio::sync::watch;

use super::Gateway;
use super::book::{Book, Keeping};
use super::pending::Requests;
use crate::agent::{Inbox, Orders, Saying, Seat, Voice, stopped};
use crate::child::places::Place;
use crate::error::PublishError;
use crate::mcp::hub::{Hub, Present};
use crate::mcp::logged::{Event, StreamName};
use crate::mcp::message::{Message, RequestId, RpcError, error_response};
use crate::mcp::upstream::{Heard, Link, Unreachable};
use crate::shared::Shared;

/// Publications that may be on their way to the store; while there are so many nothing more is heard.
const ON_THEIR_WAY: usize = WAITING_PUBLICATIONS;

/// One session's gateway.
pub(super) struct Desk<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) session: SessionId,
    pub(super) term: Term,
    pub(super) shared: Arc<Shared>,
    pub(super) hub: Arc<Hub>,
    pub(super) keeping: Keeping,
    pub(super) requests: Requests,
    /// Questions of the server that the client has not answered: our id, and the server's own.
    pub(super) questions: HashMap<String, RequestId>,
    /// Questions that were asked so far.
    pub(super) asked: u64,
    /// Requests that we made for ourselves.
    pub(super) own: u64,
    /// Those of them that we wait for, and what became of them.
    pub(super) asking: HashMap<RequestId, Option<Result<Message, Unreachable>>>,
    pub(super) link: Option<Link>,
    /// Requests whose answers were lost on the way, by a server that goes on.
    pub(super) lost: VecDeque<InSeq>,
    /// What the tools of the server that runs say of themselves, once it was asked.
    pub(super) annotations: Option<HashMap<String, super::rerun::Annotations>>,
    inbox: Inbox,
    voice: Voice,
    pub(super) orders: watch::Receiver<Orders>,
    resigned: Arc<AtomicBool>,
    sayings: VecDeque<Saying>,
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
enum Happened {
    Entry(StoredEntry),
    Heard(Heard),
    /// An answer was lost on the way.
    LostAnswer(InSeq),
    /// The server has gone.
    Lost,
    Published,
}

impl<'a> Desk<'a> {
    pub(super) fn open(gateway: &'a Gateway, seat: Seat) -> Self {
        let Seat { start, inbox, voice, orders, resigned, shared } = seat;
        let session = start.record.id().clone();
        let book = Book::from_body(start.snapshot.as_ref().map(|snapshot| &snapshot.body));
        let hub = shared.hubs.of(&session);
        Self {
            gateway,
            session,
            term: start.term,
            hub,
            shared,
            keeping: Keeping::from(book, start.record.covered),
            requests: Requests::default(),
            questions: HashMap::new(),
            asked: 0,
            own: 0,
            asking: HashMap::new(),
            link: None,
            lost: VecDeque::new(),
            annotations: None,
            inbox,
            voice,
            orders,
            resigned,
            sayings: VecDeque::new(),
            present: None,
            place: None,
        }
    }

    /// Works until it is told to stop, or has nothing to do and is in the way.
    pub(super) async fn work(mut self) {
        let closing = loop {
            if let Err(closing) = self.step().await {
                break closing;
            }
        };
        match &closing {
            Closing::Told => {}
            Closing::Displaced => self.resigned.store(true, Ordering::Release),
            Closing::NotTaken(why) => {
                tracing::debug!(session = %self.session, %why, "nobody takes what an MCP server says");
            }
        }
        if *self.orders.borrow() == Orders::End {
            self.shared.hubs.forget(&self.session);
        }
        if let Some(link) = self.link.take() {
            link.close().await;
        }
    }

    async fn step(&mut self) -> Result<(), Closing> {
        match self.next().await? {
            Happened::Entry(entry) => self.on_entry(entry).await,
            Happened::Heard(heard) => self.on_heard(heard).await,
            Happened::LostAnswer(in_seq) => self.hand_again(in_seq).await,
            Happened::Lost => self.on_lost().await,
            Happened::Published => Ok(()),
        }
    }

    async fn next(&mut self) -> Result<Happened, Closing> {
        if let Some(in_seq) = self.lost.pop_front() {
            return Ok(Happened::LostAnswer(in_seq));
        }
        let has_room = self.sayings.len() < ON_THEIR_WAY;
        let place = async {
            match &self.place {
                Some(place) => place.needed(self.orders.clone()).await,
                None => std::future::pending().await,
            }
        };
        let oldest = async {
            match self.sayings.front_mut() {
                Some(saying) => saying.published().await,
                None => std::future::pending().await,
            }
        };
        let heard = async {
            match &mut self.link {
                Some(link) => link.from.recv().await,
                None => std::future::pending().await,
            }
        };
        let mut orders = self.orders.clone();
        tokio::select! {
            biased; // an order before what follows from it
            _ = stopped(&mut orders) => Err(Closing::Told),
            published = oldest => {
                self.sayings.pop_front();
                published?;
                Ok(Happened::Published)
            }
            () = place => Err(Closing::Displaced),
            heard = heard, if has_room => Ok(heard.map_or(Happened::Lost, Happened::Heard)),
            entry = self.inbox.next(), if has_room => entry.map(Happened::Entry).ok_or(Closing::Told),
        }
    }

    /// Publishes a message on a stream.
    pub(super) async fn say(&mut self, stream: StreamName, text: &str) -> Result<(), Closing> {
        let event = Event { message: Some(text), stream, answers: None, request: None };
        self.publish(vec![event.to_body()]).await
    }

    /// Answers a request, which is dealt with then.
    pub(super) async fn answer(&mut self, in_seq: InSeq, text: &str) -> Result<(), Closing> {
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
        self.answer(in_seq, &text).await
    }

    /// A request is dealt with, with an answer or without one.
    pub(super) async fn finish(
        &mut self,
        in_seq: InSeq,
        message: Option<&str>,
    ) -> Result<(), Closing> {
        let Some(pending) = self.requests.remove(in_seq) else { return Ok(()) };
        let fetched_later = self.gateway.session_tools && pending.method() == "tools/call";
        let request = Some(pending.message.text()).filter(|_| fetched_later || pending.unknown);
        let stream = pending.stream.clone();
        let event = Event { message, stream, answers: Some(in_seq), request };
        let body = event.to_body();
        self.settle(in_seq);
        self.publish(vec![body]).await?;
        if self.requests.is_empty() {
            self.present = None;
        }
        Ok(())
    }

    /// Something that needs no answer has been dealt with.
    pub(super) async fn covered(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        self.settle(in_seq);
        self.publish(Vec::new()).await
    }

    fn settle(&mut self, in_seq: InSeq) {
        self.keeping.settle(in_seq);
        self.shared.hubs.settled(&self.session, in_seq);
    }

    /// Publishes events, with what must be stored together with them.
    pub(super) async fn publish(
        &mut self,
        events: Vec<rejoin_core::page::Body>,
    ) -> Result<(), Closing> {
        let written = self.keeping.write();
        let publication =
            Publication { events, state: written.state, in_seq: written.in_seq, key: None };
        self.sayings.push_back(self.voice.say(publication).await?);
        Ok(())
    }

    /// Waits until everything that was said is stored.
    pub(super) async fn flush(&mut self) -> Result<(), Closing> {
        for mut saying in std::mem::take(&mut self.sayings) {
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
