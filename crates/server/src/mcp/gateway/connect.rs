//! Reaching the server behind, and introducing the client to it again if it is not the first one that this
//! session has.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rejoin_core::{InSeq, record};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;

use super::Gateway;
use super::client_side::{INITIALIZE, INITIALIZED};
use super::desk::{Closing, Desk};
use super::unsent::{Exchange, exchange};
use crate::agent::stopped;
use crate::mcp::message::{Kind, Message, RequestId};
use crate::mcp::own_words::{RpcError, code, notification, request};
use crate::mcp::upstream::{Before, Link, Unreachable, WAITS};
use crate::metrics::Counted;

/// How long a server may take to answer a question of ours. Some are downloaded when they are started.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many servers may go away while a request waits, before it is answered for: a server that goes away
/// whenever it is spoken to is no server.
const MOST_LOSSES: u8 = 5;

/// How many servers may get a request and say that they did not run it, before it is answered for: should that be
/// wrong, it still runs no more than twice.
const MOST_REFUSALS: u8 = 2;

impl Desk<'_> {
    /// Sees to it that there is a server to hand a request to. It is tried for a while; then the reason
    /// is returned for which there is none.
    pub(super) async fn ensure_link(
        &mut self,
        in_seq: InSeq,
    ) -> Result<Result<(), RpcError>, Closing> {
        if self.link.is_some() {
            return Ok(Ok(()));
        }
        let introduces = self.requests.get(in_seq).is_some_and(|p| p.method() == INITIALIZE);
        let mut waits = WAITS.iter();
        loop {
            let why = match self.connect(introduces).await? {
                Ok(()) => return Ok(Ok(())),
                Err(why) => why,
            };
            match why {
                Unreachable::WentAway => self.bury_link().await,
                Unreachable::NotStarted(_)
                | Unreachable::NotDelivered(_)
                | Unreachable::BrokeOff
                | Unreachable::Silent(_)
                | Unreachable::Refused(_) => self.link = None,
            }
            tracing::warn!(session = %self.session, %why, "an MCP server can't be reached");
            let Some(wait) = waits.next().filter(|_| !why.was_tried_for_a_while()) else {
                return Ok(Err(unavailable(&why.to_string())));
            };
            self.pause(*wait).await?;
        }
    }

    async fn pause(&self, wait: Duration) -> Result<(), Closing> {
        match timeout(wait, stopped(&mut self.orders.clone())).await {
            Ok(_) => Err(Closing::Told),
            Err(_) => Ok(()),
        }
    }

    async fn connect(&mut self, introduces: bool) -> Result<Result<(), Unreachable>, Closing> {
        let place = match &self.gateway.places {
            Some(places) => {
                Some(places.take(&self.principal, &self.orders).await.ok_or(Closing::Told)?)
            }
            None => None,
        };
        self.annotations = None;
        self.comparing.stop();
        let before = self.before();
        let goes_on = before.is_some();
        let mut orders = self.orders.clone();
        let counted = Counted::by(&self.shared.metrics.children(record::Kind::Mcp));
        let Gateway { upstream, max_bytes, .. } = self.gateway;
        let connecting = upstream.connect(&self.session, *max_bytes, before, counted);
        let link = tokio::select! {
            biased;
            _ = stopped(&mut orders) => return Err(Closing::Told),
            link = connecting => link,
        };
        match link {
            Ok(link) => (self.link, self.place) = (Some(link), place),
            Err(why) => return Ok(Err(why)),
        }
        if goes_on {
            // The server says so if it has forgotten the session; if not, its lists may be others now.
            self.comparing.when_heard = true;
            return Ok(Ok(()));
        }
        if self.keeping.book().handshake.is_none() && introduces {
            return Ok(Ok(())); // the client's own request does it
        }
        let introduced = self.introduce().await?;
        if introduced.is_ok() {
            self.set_up_again().await?;
        }
        Ok(introduced)
    }

    /// The session that the server may still have from before we were started.
    fn before(&self) -> Option<Before> {
        let book = self.keeping.book();
        let (theirs, revision) = (book.theirs.clone()?, book.revision()?);
        Some(Before { theirs, revision, initialized: book.initialized })
    }

    /// Notes what the server calls the session, so that it can be gone on with.
    pub(super) fn note_theirs(&mut self) {
        let theirs = self.link.as_ref().and_then(Link::theirs);
        if self.keeping.book().theirs != theirs {
            self.keeping.change().theirs = theirs;
        }
    }

    /// Makes the client known to the server, in its own words if it has ever said any.
    async fn introduce(&mut self) -> Result<Result<(), Unreachable>, Closing> {
        let known = self.keeping.book().handshake.clone();
        let params = match &known {
            Some(handshake) => handshake.params.clone(),
            None => our_own_words(self.requests.revision()),
        };
        let answer = match self.ask(INITIALIZE, Some(&*params)).await? {
            Ok(answer) => answer,
            Err(why) => return Ok(Err(why)),
        };
        if let Kind::Response { failed: true, .. } = answer.kind() {
            return Ok(Err(Unreachable::Refused(answer.text().into())));
        }
        let result = answer.result().unwrap_or(RawValue::NULL).to_owned();
        self.note_theirs();
        if known.is_none() {
            let book = self.keeping.change();
            (book.handshake, book.initialized) =
                (Some(super::book::Handshake { params, result }), true);
        }
        if self.keeping.book().initialized {
            self.tell_server(notification(INITIALIZED, &json!({})));
        }
        Ok(Ok(()))
    }

    /// Makes the calls again by which the client had set the server up, and tells it what is different.
    async fn set_up_again(&mut self) -> Result<(), Closing> {
        let book = self.keeping.book().clone();
        let level = book.level.map(|params| ("logging/setLevel", params));
        let subscriptions =
            book.subscriptions.into_values().map(|params| ("resources/subscribe", params));
        for (method, params) in level.into_iter().chain(subscriptions) {
            if let Err(why) = self.ask(method, Some(&params)).await? {
                tracing::warn!(session = %self.session, method, %why, "could not be set up again");
                return Ok(());
            }
        }
        if book.initialized && book.handshake.is_some() {
            self.tell_restarted().await?;
            self.compare_lists();
        }
        Ok(())
    }

    /// What a server kept in its memory is gone with it. Nothing can bring that back, so it is said.
    async fn tell_restarted(&mut self) -> Result<(), Closing> {
        tracing::info!(session = %self.session, "an MCP server was started again for this session");
        self.shared.agent_counts.upstream_restarts.fetch_add(1, Ordering::Relaxed);
        self.note_restart();
        let params = json!({
            "level": "warning",
            "logger": "rejoin",
            "data": "The MCP server was started again; what it kept in memory for this session is gone.",
        });
        let text = notification("notifications/message", &params);
        self.say(self.stream_of_no_request(), &text).await
    }

    /// An id for a request of our own.
    pub(super) fn own_id(&mut self) -> RequestId {
        self.own += 1;
        RequestId::text(&format!("rejoin-{}-{}", self.term, self.own))
    }

    /// Asks the server something for ourselves. What else it says meanwhile takes its usual way.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Result<Message, Unreachable>, Closing> {
        let id = self.own_id();
        self.asking.insert(id.clone(), None);
        self.tell_server(request(&id, method, params));
        let mut orders = self.orders.clone();
        let answer = tokio::select! {
            biased;
            _ = stopped(&mut orders) => return Err(Closing::Told),
            answer = timeout(PATIENCE, self.listen_for(&id)) => answer,
        };
        self.asking.remove(&id);
        answer.unwrap_or_else(|_| Ok(Err(Unreachable::Silent(method.into()))))
    }

    /// Listens until an answer comes, or it is known that none will. Another question may be asked
    /// meanwhile, so the answer may have been heard there.
    async fn listen_for(
        &mut self,
        asked: &RequestId,
    ) -> Result<Result<Message, Unreachable>, Closing> {
        loop {
            if let Some(answer) = self.asking.get_mut(asked).and_then(Option::take) {
                return Ok(answer);
            }
            if self.link.is_none() {
                return Ok(Err(Unreachable::WentAway));
            }
            let heard = match exchange(&mut self.link, &mut self.unsent).await {
                Exchange::Heard(heard) => heard,
                Exchange::Sent => continue,
                Exchange::Gone => return Ok(Err(Unreachable::WentAway)),
            };
            Box::pin(self.on_heard(heard)).await?;
        }
    }

    /// What became of a question of ours.
    pub(super) fn note_answer(&mut self, id: &RequestId, answer: Result<Message, Unreachable>) {
        if self.comparing.take(id).is_some() {
            return; // a page that is lost is not compared
        }
        match self.asking.get_mut(id) {
            Some(place) => *place = Some(answer),
            // Cancelled, or answered for by us.
            None => tracing::debug!(session = %self.session, "an answer that nobody waits for"),
        }
    }

    /// The server has gone: if it is known how it died, that is noted.
    async fn bury_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        let Some(death) = link.close().await else { return };
        if let Ok(Some(record)) = self.shared.store.session(&self.session).await {
            self.shared.agent_died(&self.session, record.generation, death);
        }
    }

    /// The server has gone: what was under way runs again or is answered for.
    pub(super) async fn on_lost(&mut self) -> Result<(), Closing> {
        self.bury_link().await;
        self.place = None;
        self.take_back_unsent();
        if self.keeping.book().theirs.is_some() {
            self.keeping.change().theirs = None; // it has forgotten the session
        }
        self.withdraw_questions().await?;
        self.lost.clear(); // with all the others
        for in_seq in self.requests.entries() {
            match self.ensure_link(in_seq).await? {
                Ok(()) => self.hand_after_loss(in_seq).await?,
                Err(error) => return self.answer_for_all(&error).await,
            }
        }
        Ok(())
    }

    /// Hands a request to the server that has taken the place of one that went.
    async fn hand_after_loss(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        let was_handed = self.shared.hubs.was_handed(&self.session, in_seq);
        let losses = self.requests.count_loss(in_seq);
        let refusals = self.requests.refusals(in_seq);
        match (losses > MOST_LOSSES || refusals >= MOST_REFUSALS, was_handed) {
            (true, true) => self.answer_unknown(in_seq).await,
            (true, false) => {
                let error = unavailable("it goes away whenever it is asked");
                self.answer_error(in_seq, &error).await
            }
            (false, true) => self.hand_again(in_seq).await,
            (false, false) => {
                self.hand(in_seq);
                Ok(())
            }
        }
    }
}

/// The error for a server that can't be reached.
pub(super) fn unavailable(why: &str) -> RpcError {
    let sentence = format!("the MCP server is not available: {why}");
    RpcError::new(code::UPSTREAM_UNAVAILABLE, sentence).because("upstream_unavailable")
}

/// How a session is introduced whose client never did that itself.
fn our_own_words(revision: &str) -> Box<RawValue> {
    let words = json!({
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": { "name": "rejoin", "version": env!("CARGO_PKG_VERSION") },
    });
    to_raw_value(&words).unwrap_or_default()
}
