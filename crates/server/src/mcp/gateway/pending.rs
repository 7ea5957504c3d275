//! Requests of the client that the server behind has not answered yet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rejoin_core::InSeq;
use rejoin_core::token::TokenRecipe;
use serde::Deserialize;
use serde_json::Value;

use crate::mcp::logged::StreamName;
use crate::mcp::message::{Message, RequestId};
use crate::mcp::{NEWEST_REVISION, OLDEST_REVISION};

/// One request under way.
#[derive(Debug)]
pub(super) struct Pending {
    /// The id that the client gave it.
    pub(super) id: RequestId,
    /// The stream that its answer goes to.
    pub(super) stream: StreamName,
    /// Where it came from, where that is known.
    pub(super) from: Option<IpAddr>,
    /// The request as it came, to hand it over again.
    pub(super) message: Message,
    /// What progress is reported under. Its value counts, not how it was written: servers escape strings in
    /// ways of their own.
    token: Option<Value>,
    /// The furthest that was reported: progress only ever grows, also when the request runs again.
    progress: Option<f64>,
    /// How many servers have gone away meanwhile.
    losses: u8,
    /// How many servers have got it, and said that they did not run it.
    refusals: u8,
    /// Whether nobody knows what became of it. Its answer then says what was asked, for whoever asks again.
    pub(super) unknown: bool,
    /// The reconnect token that its answer brings.
    pub(super) token_given: Option<Box<TokenRecipe>>,
}

/// All of a session's, by the entry they came with, which is also their id towards the server behind.
#[derive(Debug, Default)]
pub(super) struct Requests(BTreeMap<InSeq, Pending>);

impl Pending {
    pub(super) fn new(id: RequestId, stream: StreamName, message: Message) -> Self {
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default, rename = "_meta")]
            meta: Option<Meta>,
        }
        #[derive(Default, Deserialize)]
        struct Meta {
            #[serde(default, rename = "progressToken")]
            token: Option<Value>,
        }
        let token = message.read_params::<Params>().meta.and_then(|meta| meta.token);
        let (from, progress, token_given) = (None, None, None);
        let (losses, refusals, unknown) = (0, 0, false);
        Self { id, stream, from, message, token, progress, losses, refusals, unknown, token_given }
    }

    /// It came from there.
    pub(super) fn from(mut self, from: Option<IpAddr>) -> Self {
        self.from = from;
        self
    }

    pub(super) fn method(&self) -> &str {
        self.message.method().unwrap_or_default()
    }

    /// Whether progress may have been reported of which nothing is known here.
    pub(super) fn may_have_reported(&self) -> bool {
        self.token.is_some() && self.progress.is_none()
    }

    /// The tool that it calls, if it calls one.
    pub(super) fn tool(&self) -> Option<String> {
        tool_called(&self.message)
    }
}

/// The tool that a message calls, if it calls one.
pub(super) fn tool_called(message: &Message) -> Option<String> {
    #[derive(Default, Deserialize)]
    struct Params {
        name: String,
    }
    let calls = message.method() == Some("tools/call");
    calls.then(|| message.read_params::<Params>().name)
}

/// A report of progress, as far as the gateway looks.
#[derive(Default, Deserialize)]
struct ProgressReport {
    #[serde(rename = "progressToken")]
    token: Option<Value>,
    progress: Option<f64>,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, in_seq: InSeq, pending: Pending) {
        self.0.insert(in_seq, pending);
    }

    pub(super) fn get(&self, in_seq: InSeq) -> Option<&Pending> {
        self.0.get(&in_seq)
    }

    pub(super) fn remove(&mut self, in_seq: InSeq) -> Option<Pending> {
        self.0.remove(&in_seq)
    }

    /// Counts that a server has gone away while it waited.
    pub(super) fn count_loss(&mut self, in_seq: InSeq) -> u8 {
        let Some(pending) = self.0.get_mut(&in_seq) else { return 0 };
        pending.losses = pending.losses.saturating_add(1);
        pending.losses
    }

    /// Counts that a server got a request and said that it did not run it.
    pub(super) fn count_refusal(&mut self, in_seq: InSeq) {
        if let Some(pending) = self.0.get_mut(&in_seq) {
            pending.refusals = pending.refusals.saturating_add(1);
        }
    }

    /// How many servers said so.
    pub(super) fn refusals(&self, in_seq: InSeq) -> u8 {
        self.0.get(&in_seq).map_or(0, |pending| pending.refusals)
    }

    /// Nobody knows what became of a request.
    pub(super) fn note_unknown(&mut self, in_seq: InSeq) {
        if let Some(pending) = self.0.get_mut(&in_seq) {
            pending.unknown = true;
        }
    }

    /// The answer to a request brings a reconnect token.
    pub(super) fn note_token(&mut self, in_seq: InSeq, recipe: TokenRecipe) {
        if let Some(pending) = self.0.get_mut(&in_seq) {
            pending.token_given = Some(Box::new(recipe));
        }
    }

    /// The one that there is, if there is one.
    pub(super) fn only(&self) -> Option<InSeq> {
        self.0.keys().next().copied().filter(|_| self.0.len() == 1)
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Pending> {
        self.0.values()
    }

    /// Their entries, oldest first.
    pub(super) fn entries(&self) -> Vec<InSeq> {
        self.0.keys().copied().collect()
    }

    /// The one that the client knows by this id.
    pub(super) fn by_id(&self, id: &RequestId) -> Option<InSeq> {
        self.0.iter().rev().find(|(_, pending)| pending.id == *id).map(|(in_seq, _)| *in_seq)
    }

    /// The stream that a message of the server belongs to, which may have come on the stream of one
    /// request; nothing if it belongs to none. Whose progress it reports counts before who can be told.
    pub(super) fn stream_of(&self, message: &Message, during: Option<u64>) -> Option<StreamName> {
        let named = during.and_then(|number| self.0.get(&InSeq::new(number)));
        let only = || self.audible().next().filter(|_| self.audible().count() == 1);
        let reported = || self.by_token(message).map(|(_, found)| found);
        let found = named.or_else(reported).or_else(only);
        found.map(|pending| pending.stream.clone())
    }

    /// The newest revision that whoever sent them can be taken to understand, if it never said.
    pub(super) fn revision(&self) -> &'static str {
        match self.0.values().any(|pending| pending.stream.is_whole()) {
            true => OLDEST_REVISION,
            false => NEWEST_REVISION,
        }
    }

    /// The stream of the newest one that can be told something.
    pub(super) fn newest_stream(&self) -> Option<StreamName> {
        self.audible().next_back().map(|pending| pending.stream.clone())
    }

    /// The streams of all that can be told something, oldest first.
    pub(super) fn audible_streams(&self) -> Vec<StreamName> {
        self.audible().map(|pending| pending.stream.clone()).collect()
    }

    fn audible(&self) -> impl DoubleEndedIterator<Item = &Pending> {
        self.0.values().filter(|pending| !pending.stream.is_answer_only())
    }

    /// Whether a report of progress says more than the last.
    pub(super) fn advances(&mut self, message: &Message) -> bool {
        let report: ProgressReport = message.read_params();
        let Some((in_seq, _)) = self.by_token(message) else { return true };
        let Some(pending) = self.0.get_mut(&in_seq) else { return true };
        let further = pending.progress.is_none_or(|known| report.progress > Some(known));
        if further {
            pending.progress = report.progress;
        }
        further
    }

    fn by_token(&self, message: &Message) -> Option<(InSeq, &Pending)> {
        let token = message.read_params::<ProgressReport>().token?;
        let has = |pending: &Pending| pending.token.as_ref() == Some(&token);
        self.0.iter().rev().find(|(_, pending)| has(pending)).map(|(in_seq, p)| (*in_seq, p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(tokens: &[&str]) -> Requests {
        let mut requests = Requests::default();
        for (index, token) in tokens.iter().enumerate() {
            let number = index as u64 + 1;
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{token}}}}}}}"#
            );
            let stream = StreamName::from_random(number.to_be_bytes());
            let message = Message::parse(&text).unwrap();
            let pending = Pending::new(RequestId::number(number), stream, message);
            requests.insert(InSeq::new(number), pending);
        }
        requests
    }

    fn progress(token: &str, progress: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
        );
        Message::parse(&text).unwrap()
    }

    fn stream(number: u64) -> Option<StreamName> {
        Some(StreamName::from_random(number.to_be_bytes()))
    }

    #[test]
    fn a_message_goes_to_its_request() {
        let one = requests(&["7"]);
        assert_eq!(one.stream_of(&progress("8", "1"), None), stream(1));
        let two = requests(&["7", "\"b\""]);
        assert_eq!(two.stream_of(&progress("\"b\"", "1"), None), stream(2));
        assert_eq!(two.stream_of(&progress("9", "1"), None), None);
        assert_eq!(two.stream_of(&progress("9", "1"), Some(2)), stream(2));
        assert_eq!(two.newest_stream(), stream(2));
    }

    #[test]
    fn progress_of_a_call_that_hears_nothing_is_not_anothers() {
        let mut requests = requests(&["7"]);
        let stream = StreamName::answers_only([2; 8]);
        let message = requests.0[&InSeq::new(1)].message.clone();
        let quiet = Pending {
            token: Some(8.into()),
            ..Pending::new(RequestId::number(2), stream.clone(), message)
        };
        requests.insert(InSeq::new(2), quiet);
        assert_eq!(requests.stream_of(&progress("8", "1"), None), Some(stream));
        assert_eq!(requests.stream_of(&progress("9", "1"), None), self::stream(1));
    }

    #[test]
    fn progress_only_ever_grows() {
        let mut one = requests(&["7"]);
        let reports = ["1", "2.5", "2", "2.5", "3"].map(|p| one.advances(&progress("7", p)));
        assert_eq!(reports, [true, true, false, false, true]);
        let mut written_otherwise = requests(&["\"t\u{f6}k/\""]);
        let reports =
            ["1", "1"].map(|p| written_otherwise.advances(&progress(r#""t\u00f6k\/""#, p)));
        assert_eq!(reports, [true, false]);
    }
}
