//! What becomes of a request that the server behind died over, or that may have been handed to one before
//! Rejoin itself died. It runs again if it only reads, or its tool says that it may; of every other one
//! nobody can know what it did, and the client is told that.

use std::collections::HashMap;

use rejoin_core::{InSeq, Seq};
use rejoin_store::PageLimit;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connect::unavailable;
use super::desk::{Closing, Desk};
use super::server_side::PROGRESS;
use crate::mcp::logged::Event;
use crate::mcp::message::{Message, read};
use crate::mcp::own_words::{RpcError, code};
use crate::mcp::upstream::Unreachable;

/// How often a request is handed over again.
const MOST_RERUNS: u8 = 2;

/// What a tool says of itself. Some servers write null for what they do not say.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Annotations {
    #[serde(default, rename = "readOnlyHint")]
    read_only: Option<bool>,
    #[serde(default, rename = "idempotentHint")]
    idempotent: Option<bool>,
}

impl Annotations {
    fn may_run_again(self) -> bool {
        self.read_only == Some(true) || self.idempotent == Some(true)
    }
}

/// A page of `tools/list`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Tools {
    /// Read one by one: one that is not as it should be says nothing about the others.
    tools: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Tools {
    /// The tools on a page; none on one that can't be read.
    pub(super) fn on_page(page: Option<&RawValue>) -> Self {
        read(page)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.annotations().map(|(name, _)| name)
    }

    fn annotations(&self) -> impl Iterator<Item = (String, Annotations)> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Tool {
            name: String,
            annotations: Option<Box<RawValue>>,
        }
        let tools = self.tools.iter().map(|raw| read::<Tool>(Some(&**raw)));
        tools.map(|tool| (tool.name, read(tool.annotations.as_deref())))
    }
}

/// What becomes of a request that may have run.
enum RerunVerdict {
    /// It runs again: that does no harm.
    Again,
    /// It does not, and nobody can know whether it did.
    NobodyKnows,
    /// The server went away before that could be found out.
    ServerGone,
}

/// The server went away before it had answered.
struct WentAway;

/// How often a server may break off before its tools count as having said nothing.
const MOST_BROKEN: u8 = 3;

/// Pages of a list that are read at most.
pub(super) const MOST_PAGES: usize = 100;

impl Desk<'_> {
    /// Runs a request again that may have been handed over before, or says that nobody knows.
    pub(super) async fn hand_again(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        match self.judge(in_seq).await? {
            RerunVerdict::NobodyKnows => return self.answer_unknown(in_seq).await,
            RerunVerdict::ServerGone => return Ok(()), // which is noticed next, and comes back here
            RerunVerdict::Again => self.recall_progress(in_seq).await,
        }
        *self.keeping.change().reruns.entry(in_seq.get()).or_default() += 1;
        self.publish(Vec::new(), false).await?;
        self.flush().await?; // counted before it runs, or a crash would let it run without end
        tracing::info!(session = %self.session, %in_seq, "a request runs again");
        self.hand(in_seq);
        Ok(())
    }

    /// How far a request had come before Rejoin was started again stands in the log.
    async fn recall_progress(&mut self, in_seq: InSeq) {
        let pending = self.requests.get(in_seq).filter(|pending| pending.may_have_reported());
        let Some(stream) = pending.map(|pending| pending.stream.clone()) else { return };
        let mut after = Seq::ZERO;
        let (store, session) = (self.shared.store.clone(), self.session.clone());
        while let Ok(Some(page)) = store.read(&session, after, PageLimit::default()).await {
            for event in &page.events {
                after = event.seq;
                let said = Event::from_body(&event.body).filter(|event| event.stream == stream);
                let report = said.and_then(|event| Message::parse(event.message?).ok());
                if let Some(report) = report.filter(|report| report.method() == Some(PROGRESS)) {
                    self.requests.advances(&report);
                }
            }
            if page.events.is_empty() || after >= page.record.head {
                return;
            }
        }
    }

    /// Says that nobody can know what became of a request; of one that only reads, that it failed.
    pub(super) async fn answer_unknown(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        if self.requests.get(in_seq).is_some_and(|pending| only_reads(pending.method())) {
            let error = unavailable("it goes away whenever it is asked");
            return self.answer_error(in_seq, &error).await;
        }
        let error = RpcError::new(
            code::OUTCOME_UNKNOWN,
            "outcome unknown: the MCP server went away while this request was under way; it may or \
             may not have taken effect",
        );
        self.requests.note_unknown(in_seq);
        self.answer_error(in_seq, &error.because("upstream_lost")).await
    }

    async fn judge(&mut self, in_seq: InSeq) -> Result<RerunVerdict, Closing> {
        let reruns = self.keeping.book().reruns.get(&in_seq.get()).copied().unwrap_or(0);
        let Some(pending) = self.requests.get(in_seq) else { return Ok(RerunVerdict::NobodyKnows) };
        if reruns >= MOST_RERUNS {
            return Ok(RerunVerdict::NobodyKnows);
        }
        if only_reads(pending.method()) {
            return Ok(RerunVerdict::Again);
        }
        let Some(tool) = pending.tool().filter(|_| self.gateway.trusts_annotations) else {
            return Ok(RerunVerdict::NobodyKnows);
        };
        if self.learn_annotations().await?.is_err() {
            return Ok(RerunVerdict::ServerGone);
        }
        let said = self.annotations_of(&tool).await?;
        let again = said.is_some_and(Annotations::may_run_again);
        Ok(if again { RerunVerdict::Again } else { RerunVerdict::NobodyKnows })
    }

    /// What a tool of the server says of itself; nothing if there is no such tool.
    pub(super) async fn annotations_of(
        &mut self,
        tool: &str,
    ) -> Result<Option<Annotations>, Closing> {
        let _ = self.learn_annotations().await?; // a server that has gone has no tools
        Ok(self.annotations.as_ref().and_then(|tools| tools.get(tool)).copied())
    }

    /// Asks once what the tools of a server say of themselves, unless it has gone. One that does not
    /// say is not asked again.
    async fn learn_annotations(&mut self) -> Result<Result<(), WentAway>, Closing> {
        let mut broken = 0;
        while self.annotations.is_none() {
            match self.ask_for_annotations().await? {
                Ok(said) => self.annotations = Some(said),
                Err(Unreachable::WentAway) => return Ok(Err(WentAway)),
                // Mostly by a server that is dying: the next time it is away, or another one.
                Err(Unreachable::BrokeOff) if broken < MOST_BROKEN => broken += 1,
                Err(_) => self.annotations = Some(HashMap::new()),
            }
        }
        Ok(Ok(()))
    }

    /// Asks the server what its tools say of themselves.
    async fn ask_for_annotations(
        &mut self,
    ) -> Result<Result<HashMap<String, Annotations>, Unreachable>, Closing> {
        let (mut all, mut cursor) = (HashMap::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let params = cursor.map(|cursor| serde_json::json!({ "cursor": cursor }));
            let params = params.and_then(|params| serde_json::value::to_raw_value(&params).ok());
            let answer = match self.ask("tools/list", params.as_deref()).await? {
                Ok(answer) => answer,
                Err(why) => return Ok(Err(why)),
            };
            let page = Tools::on_page(answer.result());
            all.extend(page.annotations());
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(Ok(all))
    }
}

/// Requests that change nothing, whatever the server.
fn only_reads(method: &str) -> bool {
    let named = ["initialize", "ping", "resources/read", "prompts/get", "completion/complete"];
    method.ends_with("/list") || named.contains(&method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_says_null_says_nothing_and_hides_nobody() {
        let page = r#"{"tools":[{"name":"a","annotations":null},
            {"name":"b","annotations":{"readOnlyHint":true,"idempotentHint":null}},
            {"name":"c","annotations":{"readOnlyHint":"yes"}},
            {"name":"d","annotations":{"idempotentHint":true}}],"nextCursor":null}"#;
        let page: Tools = serde_json::from_str(page).unwrap();
        let said: HashMap<_, _> =
            page.annotations().map(|(name, said)| (name, said.may_run_again())).collect();
        let named = ["a", "b", "c", "d"].map(|name| said[name]);
        assert_eq!(named, [false, true, false, true]);
    }
}
