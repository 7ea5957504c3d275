//! What the server behind asks the client. Whoever asked may go away before there is an answer, with Rejoin or
//! alone: then the question is withdrawn, and for that the book says which are open.

use rejoin_core::InSeq;
use serde_json::json;

use super::book::Question;
use super::client_side::CANCELLED;
use super::desk::{Closing, Desk};
use crate::mcp::logged::{Entry, StreamName};
use crate::mcp::message::{Kind, Message, RequestId};
use crate::mcp::own_words::notification;

/// Entries that are looked through for requests under way.
const MOST_LOOKED_AT: usize = 1_000;

/// A question that the client has not answered.
#[derive(Debug)]
pub(super) struct Asked {
    /// The id that the server gave it.
    theirs: RequestId,
    /// The stream on which the client was asked.
    stream: StreamName,
}

impl Desk<'_> {
    /// The server asks the client something, under an id of ours: the next server may use its ids again.
    pub(super) async fn on_question(
        &mut self,
        theirs: RequestId,
        message: &Message,
        during: Option<u64>,
    ) -> Result<(), Closing> {
        let Some(stream) = self.stream_for(message, during) else { return Ok(()) };
        self.asked += 1;
        let id = format!("rejoin-{}-{}", self.term, self.asked);
        let text = message.with_id(&RequestId::text(&id));
        self.keeping.change().ask(Question { id: id.clone(), stream: stream.clone() });
        self.questions.insert(id, Asked { theirs, stream: stream.clone() });
        self.put(stream, &text).await
    }

    /// The client answers a question of the server's.
    pub(super) fn on_response(&mut self, id: Option<RequestId>, message: &Message) {
        let ours = id.and_then(|id| serde_json::from_str::<String>(id.as_json()).ok());
        match ours.and_then(|id| self.close_question(&id)) {
            Some(asked) => self.tell_server(message.with_id(&asked.theirs)),
            // The server that asked has gone.
            None => tracing::debug!(session = %self.session, "an answer to nobody's question"),
        }
    }

    /// The server withdraws a question: the client knows it by our id.
    pub(super) fn withdrawn(&mut self, message: &Message) -> Option<String> {
        let theirs = message.cancelled_id()?;
        let ours = self.questions.iter().find(|(_, asked)| asked.theirs == theirs)?.0.clone();
        self.close_question(&ours);
        Some(message.with_cancelled_id(&RequestId::text(&ours)))
    }

    fn close_question(&mut self, id: &str) -> Option<Asked> {
        let asked = self.questions.remove(id)?;
        self.keeping.change().questions.retain(|question| question.id != id);
        Some(asked)
    }

    /// The server has gone: nobody waits for the answers to what it had asked.
    pub(super) async fn withdraw_questions(&mut self) -> Result<(), Closing> {
        let open = std::mem::take(&mut self.questions);
        let open = open.into_iter().map(|(id, Asked { stream, .. })| Question { id, stream });
        let under_way = self.requests.audible_streams();
        self.withdraw(open.collect(), &under_way).await
    }

    /// The same for what was asked before this gateway began.
    pub(super) async fn withdraw_left_questions(&mut self) -> Result<(), Closing> {
        let open = self.keeping.book().questions.clone();
        if open.is_empty() {
            return Ok(());
        }
        let entries = self.shared.store.entries(&self.session, InSeq::ZERO, MOST_LOOKED_AT).await;
        let entries = entries.unwrap_or_default(); // then they are withdrawn where everybody looks
        let under_way = entries.iter().filter_map(|stored| {
            let Entry { message, stream, .. } = Entry::from_body(&stored.body)?;
            let asks = matches!(message.kind(), Kind::Request { .. });
            (asks && !stream.is_answer_only()).then_some(stream)
        });
        let under_way: Vec<_> = under_way.collect();
        self.withdraw(open, &under_way).await
    }

    /// Withdraws questions, each where it was asked. A stream is read only while it owes an answer.
    async fn withdraw(
        &mut self,
        questions: Vec<Question>,
        under_way: &[StreamName],
    ) -> Result<(), Closing> {
        if !self.keeping.book().questions.is_empty() {
            self.keeping.change().questions.clear();
        }
        for Question { id, stream } in questions {
            let params = json!({ "requestId": id, "reason": "the MCP server went away" });
            let text = notification(CANCELLED, &params);
            let is_read = stream == StreamName::general() || under_way.contains(&stream);
            let elsewhere = || under_way.last().cloned().unwrap_or_else(StreamName::general);
            let stream = if is_read { stream } else { elsewhere() };
            self.say(stream, &text).await?;
        }
        Ok(())
    }
}
