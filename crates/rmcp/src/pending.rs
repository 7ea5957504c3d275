//! Requests of a client that its handler has not answered yet, and which stream a message belongs to.

use std::collections::HashMap;

use rejoin::core::InSeq;
use rejoin::mcp::parts::{Present, StreamName};
use rmcp::model::{
    ClientJsonRpcMessage, GetExtensions as _, GetMeta as _, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;

/// One request under way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The entry of the in log that it is.
    pub(crate) in_seq: InSeq,
    /// The stream that its answer goes to.
    pub(crate) stream: StreamName,
    /// What progress is reported under.
    token: Option<ProgressToken>,
    /// The furthest that was reported: progress only ever grows, also when the request runs again.
    progress: Option<f64>,
    /// A session with a request under way is attached.
    _present: Option<Present>,
}

/// All of a session's.
#[derive(Debug, Default)]
pub(crate) struct Requests(HashMap<RequestId, Pending>);

impl Pending {
    pub(crate) fn new(
        in_seq: InSeq,
        stream: StreamName,
        message: &ClientJsonRpcMessage,
        present: Option<Present>,
    ) -> Self {
        let token = match message {
            ClientJsonRpcMessage::Request(request) => {
                request.request.get_meta().get_progress_token()
            }
            ClientJsonRpcMessage::Response(_)
            | ClientJsonRpcMessage::Notification(_)
            | ClientJsonRpcMessage::Error(_) => None,
        };
        Self { in_seq, stream, token, progress: None, _present: present }
    }

    /// It had come so far before it runs again.
    pub(crate) fn has_reached(&mut self, progress: Option<f64>) {
        self.progress = progress;
    }
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn insert(&mut self, id: RequestId, pending: Pending) {
        self.0.insert(id, pending);
    }

    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<Pending> {
        self.0.remove(id)
    }

    /// The ids of all of them.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.0.keys().cloned().collect()
    }

    /// The stream of the newest one.
    fn newest(&self) -> Option<&StreamName> {
        self.0.values().max_by_key(|pending| pending.in_seq).map(|pending| &pending.stream)
    }

    fn by_token(&mut self, token: &ProgressToken) -> Option<&mut Pending> {
        self.0.values_mut().find(|pending| pending.token.as_ref() == Some(token))
    }

    /// The stream of a message that answers nothing. What belongs to no request goes to the general stream, or,
    /// where nobody reads that, to the newest request. Nothing if it should not be sent: it reports less
    /// progress than the client knows of.
    pub(crate) fn stream_for(
        &mut self,
        message: &ServerJsonRpcMessage,
        general_is_read: bool,
    ) -> Option<StreamName> {
        let own = match message {
            ServerJsonRpcMessage::Request(request) => {
                let asked_during = request.request.extensions().get::<OriginatingRequestId>();
                asked_during
                    .and_then(|origin| self.0.get(&origin.0))
                    .map(|found| found.stream.clone())
            }
            ServerJsonRpcMessage::Notification(notification) => {
                match self.stream_of_report(&notification.notification) {
                    Report::Of(stream) => Some(stream),
                    Report::OldNews => return None,
                    Report::None => None,
                }
            }
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => None,
        };
        let newest = || if general_is_read { None } else { self.newest().cloned() };
        Some(own.or_else(newest).unwrap_or_else(StreamName::general))
    }

    /// Where a report of progress belongs. Anything else is none.
    fn stream_of_report(&mut self, notification: &ServerNotification) -> Report {
        let ServerNotification::ProgressNotification(report) = notification else {
            return Report::None;
        };
        let progress = report.params.progress;
        match self.by_token(&report.params.progress_token) {
            Some(pending) if pending.progress.is_some_and(|known| progress <= known) => {
                Report::OldNews
            }
            Some(pending) => {
                pending.progress = Some(progress);
                Report::Of(pending.stream.clone())
            }
            None => Report::None,
        }
    }
}

/// What a notification says of a request.
enum Report {
    /// It has come further.
    Of(StreamName),
    /// Its client knows that it has come further than that.
    OldNews,
    /// Nothing.
    None,
}
