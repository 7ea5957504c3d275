//! What the client sent.

use std::borrow::Cow;

use rejoin_core::InSeq;
use rejoin_core::page::StoredEntry;

use super::desk::{Closing, Desk};
use super::pending::Pending;
use super::session_tools::uses_token;
use super::unsent::Unsent;
use crate::mcp::logged::Entry;
use crate::mcp::message::{Kind, Message};
use crate::mcp::own_words::{RpcError, code};
use crate::metrics::CallOutcome;
use crate::service::WeakService;

/// The request with which a client introduces itself.
pub(super) const INITIALIZE: &str = "initialize";

/// The request with which a client of a newer revision, that has no sessions, may begin.
const DISCOVER: &str = "server/discover";

/// What a client says when it is ready.
pub(super) const INITIALIZED: &str = "notifications/initialized";

/// What either side says when it does not want an answer any more.
pub(super) const CANCELLED: &str = "notifications/cancelled";

impl Desk<'_> {
    pub(super) async fn on_entry(&mut self, stored: StoredEntry) -> Result<(), Closing> {
        let in_seq = stored.in_seq;
        let Some(entry) = Entry::from_body(&stored.body) else {
            tracing::error!(session = %self.session, %in_seq, "an entry that is no MCP message");
            return self.covered(in_seq).await;
        };
        let here_before = self.shared.hubs.was_handed(&self.session, in_seq);
        let maybe_handed = entry.process != self.shared.process || here_before;
        let Entry { message, stream, from, .. } = entry;
        match message.kind().clone() {
            Kind::Request { id, .. } => {
                let pending = Pending::new(id, stream, message).from(from);
                self.on_request(in_seq, pending, maybe_handed).await
            }
            // Whoever it was for has gone with it.
            Kind::Notification { .. } | Kind::Response { .. } if maybe_handed => {
                self.covered(in_seq).await
            }
            Kind::Notification { method } => {
                self.on_notification(&method, &message).await?;
                self.covered(in_seq).await
            }
            Kind::Response { id, .. } => {
                self.on_response(id, &message);
                self.covered(in_seq).await
            }
        }
    }

    async fn on_request(
        &mut self,
        in_seq: InSeq,
        pending: Pending,
        maybe_handed: bool,
    ) -> Result<(), Closing> {
        let twin = self.requests.by_id(&pending.id);
        self.busy();
        self.requests.insert(in_seq, pending);
        if twin.is_some() {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "a request with this id is under way: every request needs an id of its own",
            );
            return self.answer_error(in_seq, &error).await;
        }
        if self.asks_too_early(in_seq) {
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, "this session begins with `initialize`");
            return self.answer_error(in_seq, &error).await;
        }
        if let Some(error) = self.check_set_up(in_seq).filter(|_| !maybe_handed) {
            return self.answer_error(in_seq, &error).await;
        }
        self.tell_untold().await?;
        if maybe_handed {
            self.shared.hubs.hand(&self.session, in_seq); // by this process or the one before it
        }
        if let Err(error) = self.ensure_link(in_seq).await? {
            return self.answer_for_all(&error).await;
        }
        if self.is_for_us(in_seq).await? {
            return self.reconnect_session(in_seq).await;
        }
        if maybe_handed {
            return self.hand_again(in_seq).await;
        }
        self.hand(in_seq);
        Ok(())
    }

    /// A client that knows newer revisions asks first whether the server does. One with sessions does not,
    /// and it need not be started to say so.
    fn asks_too_early(&self, in_seq: InSeq) -> bool {
        let asks = self.requests.get(in_seq).is_some_and(|p| p.method() == DISCOVER);
        asks && self.keeping.book().handshake.is_none()
    }

    /// Hands a request to the server behind.
    pub(super) fn hand(&mut self, in_seq: InSeq) {
        let Some(pending) = self.requests.get(in_seq) else { return };
        let text = self.as_it_came(&pending.message).with_id(&self.ids.id(in_seq));
        let before = self.shared.hubs.was_handed(&self.session, in_seq);
        self.shared.hubs.hand(&self.session, in_seq);
        self.send(Unsent { text, hands: Some(in_seq).filter(|_| !before) });
    }

    /// A message as its client sent it.
    fn as_it_came<'m>(&self, stored: &'m Message) -> Cow<'m, Message> {
        let service = || self.shared.service.get().and_then(WeakService::upgrade);
        let revealed = uses_token(stored).then(service).flatten();
        let revealed = revealed.and_then(|it| it.reveal_arguments(&self.session, stored));
        revealed.map_or(Cow::Borrowed(stored), Cow::Owned)
    }

    async fn on_notification(&mut self, method: &str, message: &Message) -> Result<(), Closing> {
        match method {
            INITIALIZED => {
                self.keeping.change().initialized = true;
                self.tell_server(message.text().to_owned());
            }
            CANCELLED => self.on_cancelled(message).await?,
            _ => {
                self.tell_server(message.text().to_owned());
            }
        }
        Ok(())
    }

    /// The client does not want an answer any more: none need come, so the request ends here.
    async fn on_cancelled(&mut self, message: &Message) -> Result<(), Closing> {
        let named = message.cancelled_id().and_then(|id| self.requests.by_id(&id));
        let Some(in_seq) = named else { return Ok(()) };
        let is_handshake = self.requests.get(in_seq).is_some_and(|p| p.method() == INITIALIZE);
        if is_handshake {
            return Ok(()); // the protocol does not allow it
        }
        let text = message.with_cancelled_id(&self.ids.id(in_seq));
        self.tell_server(text);
        self.count_call(in_seq, CallOutcome::Cancelled);
        self.finish(in_seq, None).await
    }

    /// There is no server: answers whatever is under way, with an error that allows to ask again only
    /// where that does no harm.
    pub(super) async fn answer_for_all(&mut self, error: &RpcError) -> Result<(), Closing> {
        for in_seq in self.requests.entries() {
            match self.shared.hubs.was_handed(&self.session, in_seq) {
                true => self.answer_unknown(in_seq).await?,
                false => self.answer_error(in_seq, error).await?,
            }
        }
        Ok(())
    }
}
