//! What the server behind said.

use rejoin_core::InSeq;

use super::book::Handshake;
use super::client_side::{CANCELLED, INITIALIZE};
use super::desk::{Closing, Desk};
use super::pending::Pending;
use super::rerun;
use crate::mcp::logged::StreamName;
use crate::mcp::message::{Kind, Message, RequestId};
use crate::mcp::upstream::Heard;

impl Desk<'_> {
    pub(super) async fn on_heard(&mut self, heard: Heard) -> Result<(), Closing> {
        let messages = match parse(&heard.text) {
            Ok(messages) => messages,
            Err(why) => {
                // Many servers print something before they speak; nothing of it is repeated.
                tracing::warn!(session = %self.session, why, "ignored what an MCP server wrote");
                return Ok(());
            }
        };
        for message in messages {
            self.on_message(message, heard.during).await?;
        }
        Ok(())
    }

    pub(super) async fn on_message(
        &mut self,
        message: Message,
        during: Option<u64>,
    ) -> Result<(), Closing> {
        match message.kind().clone() {
            Kind::Response { id, failed } => self.on_answer(id, failed, &message).await,
            Kind::Request { id, .. } => {
                self.asked += 1;
                let ours = format!("rejoin-{}-{}", self.term, self.asked);
                let text = message.with_id(&RequestId::text(&ours));
                self.questions.insert(ours, id);
                let stream = self.stream_for(&message, during);
                self.say(stream, &text).await
            }
            Kind::Notification { method } => {
                let text = match &*method {
                    CANCELLED => self.withdrawn(&message),
                    "notifications/progress" if !self.requests.advances(&message) => None,
                    _ => Some(message.text().to_owned()),
                };
                let Some(text) = text else { return Ok(()) };
                let stream = self.stream_for(&message, during);
                self.say(stream, &text).await
            }
        }
    }

    async fn on_answer(
        &mut self,
        id: Option<RequestId>,
        failed: bool,
        message: &Message,
    ) -> Result<(), Closing> {
        let in_seq = id.as_ref().and_then(RequestId::as_number).map(InSeq::new);
        let known = in_seq.and_then(|in_seq| Some((in_seq, self.requests.get(in_seq)?)));
        let Some((in_seq, pending)) = known else {
            // Cancelled, or answered for by us.
            tracing::debug!(session = %self.session, "an answer that nobody waits for");
            return Ok(());
        };
        let text = message.with_id(&pending.id);
        if failed {
            return self.answer(in_seq, &text).await;
        }
        if let Some(pending) = self.requests.remove(in_seq) {
            self.note_success(&pending, message);
            self.requests.insert(in_seq, pending);
        }
        let text = self.with_session_tools(in_seq, text).await?;
        self.answer(in_seq, &text).await
    }

    fn note_success(&mut self, pending: &Pending, message: &Message) {
        if pending.method() == INITIALIZE
            && let (Some(params), Some(result)) = (pending.message.params(), message.result())
        {
            let (params, result) = (params.to_owned(), result.to_owned());
            self.keeping.change().handshake = Some(Handshake { params, result });
        }
        if let Some(digest) = rerun::list_digest(pending, message) {
            let known = self.keeping.book().lists.get(pending.method());
            if known != Some(&digest) {
                let method = pending.method().to_owned();
                self.keeping.change().lists.insert(method, digest);
            }
        }
        self.note_set_up(pending);
    }

    /// The server withdraws a question: the client knows it by our id.
    fn withdrawn(&mut self, message: &Message) -> Option<String> {
        let theirs = message.cancelled_id()?;
        let ours = self.questions.iter().find(|(_, id)| **id == theirs)?.0.clone();
        self.questions.remove(&ours);
        Some(message.with_cancelled_id(&RequestId::text(&ours)))
    }

    /// The stream that a message belongs to; it goes to the general one if nothing else is known, or to
    /// the newest request if nobody reads that.
    pub(super) fn stream_for(&self, message: &Message, during: Option<u64>) -> StreamName {
        let general = StreamName::general();
        let own = self.requests.stream_of(message, during);
        own.or_else(|| match self.hub.is_read(&general) {
            true => None,
            false => self.requests.newest_stream(),
        })
        .unwrap_or(general)
    }
}

/// The messages in what a server wrote at once: one, or several of the revision that has batches.
fn parse(text: &str) -> Result<Vec<Message>, &'static str> {
    let read = |text: &str| Message::parse(text).map_err(|_| "it is no JSON-RPC message");
    if !text.trim_start().starts_with('[') {
        return Ok(vec![read(text)?]);
    }
    let batch: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(text).map_err(|_| "it is no JSON")?;
    batch.into_iter().map(|raw| read(raw.get())).collect()
}
