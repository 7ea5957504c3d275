//! Requests that were under way when a session's handler ended, with its server or alone. One that only reads,
//! or whose tool says that it may, runs again; of every other one nobody can know what it did, and its client
//! is told that.

use std::collections::VecDeque;
use std::sync::Arc;

use rejoin::Sessions;
use rejoin::core::record::Record;
use rejoin::core::{InSeq, Seq, SessionId};
use rejoin::mcp::parts::{Book, Entry, Event, Kind, Message, StreamName};
use rejoin::store::{PageLimit, Unavailable};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions as _, RequestId};
use serde_json::Value;

use crate::limits::{MOST_RERUNS, REQUESTS_LEFT};
use crate::pending::Pending;
use crate::words;

/// Whether a tool of this name may run again.
pub(crate) type MayRunAgain = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct LeftOver {
    in_seq: InSeq,
    stream: StreamName,
    stored: Message,
    message: ClientJsonRpcMessage,
    id: RequestId,
}

impl LeftOver {
    /// All of a session's, oldest first.
    pub(crate) async fn of(
        sessions: &Sessions,
        record: &Record,
    ) -> Result<VecDeque<Self>, Unavailable> {
        let entries = sessions.store().entries(record.id(), record.covered, REQUESTS_LEFT).await?;
        let unanswered = entries.into_iter();
        Ok(unanswered.filter_map(|entry| Self::from(entry.in_seq, &entry.body)).collect())
    }

    fn from(in_seq: InSeq, body: &[u8]) -> Option<Self> {
        let Entry { stream, message: stored, .. } = Entry::from_body(body)?;
        let message = words::client_message(&stored)?;
        let ClientJsonRpcMessage::Request(request) = &message else { return None };
        let id = request.id.clone();
        Some(Self { in_seq, stream, stored, message, id })
    }

    /// The request, to hand it over again; nothing if that might do harm. What the handler learns of the
    /// connection is that of the one which brought the session back.
    pub(crate) fn request_again(
        &self,
        may_run_again: &MayRunAgain,
        book: &Book,
        restoring: &ClientJsonRpcMessage,
    ) -> Option<ClientJsonRpcMessage> {
        let reruns = book.reruns.get(&self.in_seq.get()).copied().unwrap_or(0);
        if reruns >= MOST_RERUNS || !self.does_no_harm(may_run_again) {
            return None;
        }
        let mut message = self.message.clone();
        if let (ClientJsonRpcMessage::Request(again), ClientJsonRpcMessage::Request(restoring)) =
            (&mut message, restoring)
            && let Some(parts) = restoring.request.extensions().get::<http::request::Parts>()
        {
            again.request.extensions_mut().insert(parts.clone());
        }
        Some(message)
    }

    fn does_no_harm(&self, may_run_again: &MayRunAgain) -> bool {
        let Kind::Request { method, .. } = self.stored.kind() else { return false };
        if &**method != "tools/call" {
            return only_reads(method);
        }
        let request: Value = serde_json::from_str(self.stored.text()).unwrap_or_default();
        request["params"]["name"].as_str().is_some_and(|tool| may_run_again(tool))
    }

    pub(crate) fn into_pending(self) -> (RequestId, Pending) {
        (self.id, Pending::new(self.in_seq, self.stream, &self.message, None))
    }

    /// How far a request has come, by what was reported on its stream.
    pub(crate) async fn progress(
        sessions: &Sessions,
        session: &SessionId,
        stream: &StreamName,
    ) -> Result<Option<f64>, Unavailable> {
        let (mut after, mut reached) = (Seq::ZERO, None);
        while let Some(page) = sessions.store().read(session, after, PageLimit::default()).await? {
            for event in &page.events {
                after = event.seq;
                let said = Event::from_body(&event.body).filter(|event| event.stream == *stream);
                reached = said.and_then(|event| reported(event.message?)).or(reached);
            }
            if page.events.is_empty() || after >= page.record.head {
                break;
            }
        }
        Ok(reached)
    }
}

fn reported(text: &str) -> Option<f64> {
    let message: Value = serde_json::from_str(text).ok()?;
    let is_report = message["method"] == "notifications/progress";
    message["params"]["progress"].as_f64().filter(|_| is_report)
}

/// Requests that change nothing, whatever the server.
fn only_reads(method: &str) -> bool {
    let named = ["ping", "resources/read", "prompts/get", "completion/complete"];
    method.ends_with("/list") || named.contains(&method)
}
