//! What the server behind said.

use std::time::Instant;

use rejoin_core::InSeq;
use serde::Deserialize;

use super::book::Handshake;
use super::client_side::{CANCELLED, INITIALIZE};
use super::connect::unavailable;
use super::desk::{Closing, Desk};
use super::pending::Pending;
use crate::child::stray::excerpt;
use crate::mcp::garbled::{Meant, heard};
use crate::mcp::logged::StreamName;
use crate::mcp::message::{Kind, Message, RequestId, read};
use crate::mcp::own_words::{RpcError, code, error_response};
use crate::mcp::upstream::{Heard, Unreachable};
use crate::metrics::CallOutcome;

/// What a result says of the call, if it is one of a tool. A large one is searched before it is read.
fn outcome_of(answer: &Message) -> CallOutcome {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct ToolResult {
        is_error: bool,
    }
    let result = answer.result().filter(|result| result.get().contains("\"isError\""));
    match result.is_some_and(|result| read::<ToolResult>(Some(result)).is_error) {
        true => CallOutcome::ToolError,
        false => CallOutcome::Success,
    }
}

/// What a server says when it has come further with a request.
pub(super) const PROGRESS: &str = "notifications/progress";

impl Desk<'_> {
    pub(super) async fn on_heard(&mut self, heard: Heard) -> Result<(), Closing> {
        match heard {
            Heard::Said { text, during } => {
                let during = during.and_then(|number| self.ids.entry(number)).map(InSeq::get);
                return self.on_said(&text, during).await;
            }
            Heard::NotTaken { id, why } => match self.entry_of(&id) {
                Some(in_seq) => return self.answer_error(in_seq, &unavailable(&why)).await,
                None => self.note_answer(&id, Err(Unreachable::NotDelivered(why))),
            },
            Heard::Lost { id } => match self.entry_of(&id) {
                Some(in_seq) => self.lost.push_back(in_seq),
                None => self.note_answer(&id, Err(Unreachable::BrokeOff)),
            },
            Heard::Refused { id } => {
                if let Some(in_seq) = self.entry_of(&id) {
                    self.requests.count_refusal(in_seq);
                    self.shared.hubs.not_handed(&self.session, in_seq);
                }
            }
            Heard::DidNotRun { id } => {
                if let Some(in_seq) = self.entry_of(&id) {
                    self.shared.hubs.not_handed(&self.session, in_seq);
                }
            }
        }
        Ok(())
    }

    async fn on_said(&mut self, text: &str, during: Option<u64>) -> Result<(), Closing> {
        for meant in heard(text) {
            match meant {
                Meant::Message(message) => self.on_message(message, during).await?,
                Meant::Question(id) => {
                    let error = RpcError::new(code::PARSE, "the question can't be read");
                    self.tell_server(error_response(Some(&id), &error));
                }
                // Many servers print something before they speak.
                Meant::Nothing => self.log_stray(text),
            }
        }
        if std::mem::take(&mut self.comparing.when_heard) {
            self.compare_lists();
        }
        Ok(())
    }

    /// Logs what is no message. Of JSON nothing is repeated: that may be a result.
    fn log_stray(&mut self, text: &str) {
        let Some(left_out) = self.stray.admit(Instant::now()) else { return };
        let is_json = ["{", "[{"].iter().any(|begin| text.trim_start().starts_with(begin));
        let text = (!is_json).then(|| excerpt(text.as_bytes()));
        tracing::warn!(session = %self.session, text, left_out, "ignored what is no message of an MCP server");
    }

    /// The request under way that the server knows by this id.
    fn entry_of(&self, id: &RequestId) -> Option<InSeq> {
        let in_seq = self.ids.entry(id.as_number()?)?;
        self.requests.get(in_seq).map(|_| in_seq)
    }

    /// The request that an answer without an id is for. On the stream of a request it is that one. Elsewhere it
    /// may answer anything, for there are servers that answer notifications; only if it says that it could not
    /// read what it answers, and there is but one request that it can mean, is it taken for the answer to that.
    fn entry_without_id(&self, message: &Message, during: Option<u64>) -> Option<InSeq> {
        #[derive(Default, Deserialize)]
        struct Error {
            code: i64,
        }
        if let Some(number) = during {
            return Some(InSeq::new(number));
        }
        let not_read = read::<Error>(message.error()).code == i64::from(code::PARSE);
        let asks_more = !self.asking.is_empty() || self.comparing.is_under_way();
        self.requests.only().filter(|_| not_read && !asks_more)
    }

    pub(super) async fn on_message(
        &mut self,
        message: Message,
        during: Option<u64>,
    ) -> Result<(), Closing> {
        match message.kind().clone() {
            Kind::Response { id, failed } => self.on_answer(id, failed, &message, during).await,
            Kind::Request { id, .. } => self.on_question(id, &message, during).await,
            Kind::Notification { method } => {
                let text = match &*method {
                    CANCELLED => self.withdrawn(&message),
                    PROGRESS if !self.requests.advances(&message) => None,
                    _ => Some(message.text().to_owned()),
                };
                let Some(text) = text else { return Ok(()) };
                let Some(stream) = self.stream_for(&message, during) else { return Ok(()) };
                self.say(stream, &text).await
            }
        }
    }

    async fn on_answer(
        &mut self,
        id: Option<RequestId>,
        failed: bool,
        message: &Message,
        during: Option<u64>,
    ) -> Result<(), Closing> {
        let in_seq = match &id {
            Some(id) => self.entry_of(id),
            None => self.entry_without_id(message, during),
        };
        let known = in_seq.and_then(|in_seq| Some((in_seq, self.requests.get(in_seq)?)));
        let Some((in_seq, pending)) = known else {
            let Some(id) = id else { return Ok(()) };
            match self.comparing.take(&id) {
                Some(asked) => self.on_page(asked, message).await?,
                None => self.note_answer(&id, Ok(message.clone())),
            }
            return Ok(());
        };
        let text = message.with_id(&pending.id);
        if failed {
            return self.answer(in_seq, &text, CallOutcome::Error).await;
        }
        let outcome = outcome_of(message);
        if let Some(pending) = self.requests.remove(in_seq) {
            self.note_success(&pending, message);
            self.requests.insert(in_seq, pending);
        }
        let text = self.with_session_tools(in_seq, text).await?;
        let text = self.with_notice(in_seq, text);
        self.answer(in_seq, &text, outcome).await
    }

    fn note_success(&mut self, pending: &Pending, message: &Message) {
        if pending.method() == INITIALIZE
            && let (Some(params), Some(result)) = (pending.message.params(), message.result())
        {
            let (params, result) = (params.to_owned(), result.to_owned());
            self.keeping.change().handshake = Some(Handshake { params, result });
            self.note_theirs();
        }
        self.note_page(pending, message);
        self.note_set_up(pending);
    }

    /// The stream that a message belongs to. One of answers carries nothing else: what comes during its request
    /// is said where it can be heard. But progress is nobody else's, so if nobody reads the general stream there
    /// is none.
    pub(super) fn stream_for(&self, message: &Message, during: Option<u64>) -> Option<StreamName> {
        let general = StreamName::general();
        match self.requests.stream_of(message, during) {
            Some(own) if !own.is_answer_only() => Some(own),
            Some(_) if message.method() == Some(PROGRESS) => {
                Some(general).filter(|general| self.hub.is_read(general))
            }
            Some(_) | None => Some(self.stream_of_no_request()),
        }
    }

    /// The stream for what belongs to no request: the general one, or the newest request's if nobody reads
    /// that. There are clients that never open it.
    pub(super) fn stream_of_no_request(&self) -> StreamName {
        let general = StreamName::general();
        match self.hub.is_read(&general) {
            true => general,
            false => self.requests.newest_stream().unwrap_or(general),
        }
    }
}
