//! Results that no client of a session has fetched, for one that comes back to it.
//!
//! A result counts as fetched when it has been read from its stream, or when the answer that repeated it here has
//! been. The reply to a token may be lost, and the token brought again: so what was repeated since its first use
//! does not count. A result may be given twice that way, and is never lost.

use std::collections::BTreeSet;

use rejoin_core::{Seq, SessionId, Timestamp};
use rejoin_store::{PageLimit, StoredEvent, Unavailable};
use serde_json::{Value, json};

use crate::mcp::logged::Event;
use crate::shared::Shared;

/// Calls with their results, and where these stand in the log.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) calls: Vec<Value>,
    pub(super) seqs: Vec<Seq>,
}

impl Waiting {
    /// Those of a session, for whoever brings a token that was first used at this time.
    pub(super) async fn of(
        shared: &Shared,
        session: &SessionId,
        first_used: Timestamp,
    ) -> Result<Self, Unavailable> {
        let (mut after, mut log) = (Seq::ZERO, Log::new(first_used));
        let (store, limit) = (&shared.store, PageLimit::default());
        let here = |seq: Seq| shared.hubs.fetched.contains(session, seq);
        // What is missing in a page was kept when the page was read, or is gone: results may step aside between
        // two pages.
        while let Some(page) = store.read(session, after, limit).await? {
            let kept = match after.next() < page.record.oldest {
                true => store.read_kept(session, after, limit).await?,
                false => Vec::new(),
            };
            let events = if kept.is_empty() { page.events } else { kept };
            let Some(last) = events.last() else { break };
            after = last.seq;
            events.into_iter().for_each(|event| log.add(event, here));
        }
        Ok(log.unfetched())
    }
}

/// What the answers of a session say, each of others before it.
#[derive(Debug)]
struct Log {
    first_used: Timestamp,
    /// Results of calls.
    results: Vec<StoredEvent>,
    /// Those that some client has.
    fetched: BTreeSet<Seq>,
    /// Answers that repeat others.
    repeating: Vec<(Seq, Vec<Seq>)>,
}

impl Log {
    fn new(first_used: Timestamp) -> Self {
        let (results, fetched, repeating) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { first_used, results, fetched, repeating }
    }

    /// The next event of the log; `fetched` are the answers that were fetched from this process.
    fn add(&mut self, event: StoredEvent, fetched: impl Fn(Seq) -> bool) {
        let Some(said) = Event::from_body(&event.body) else { return };
        let is_result = said.request.is_some() && said.message.is_some();
        self.fetched.extend(said.notes.fetched);
        if fetched(event.seq) {
            self.fetched.insert(event.seq);
        }
        if !said.notes.repeats.is_empty() && event.at < self.first_used {
            self.repeating.push((event.seq, said.notes.repeats));
        }
        if is_result && !self.fetched.contains(&event.seq) {
            self.results.push(event);
        }
    }

    fn unfetched(mut self) -> Waiting {
        for (seq, repeats) in self.repeating {
            if self.fetched.contains(&seq) {
                self.fetched.extend(repeats);
            }
        }
        let mut waiting = Waiting::default();
        for event in self.results.iter().filter(|event| !self.fetched.contains(&event.seq)) {
            if let Some(call) = call(event) {
                waiting.calls.push(call);
                waiting.seqs.push(event.seq);
            }
        }
        waiting
    }
}

/// A call and its result, whole.
fn call(event: &StoredEvent) -> Option<Value> {
    let Event { message, request, .. } = Event::from_body(&event.body)?;
    let read = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    Some(json!({ "request": read(request), "result": read(message) }))
}

#[cfg(test)]
mod tests {
    use rejoin_core::InSeq;

    use super::*;
    use crate::mcp::logged::{Notes, StreamName};

    /// An answer that stands in the log at this number and time.
    fn answer(seq: u64, request: Option<&str>, notes: Notes) -> StoredEvent {
        let (stream, answers) = (StreamName::general(), Some(InSeq::new(seq)));
        let event = Event { message: Some("{}"), stream, answers, request, notes };
        StoredEvent {
            seq: Seq::new(seq),
            at: Timestamp::from_millis(seq),
            body: event.to_body().into_body(),
        }
    }

    fn result(seq: u64) -> StoredEvent {
        answer(seq, Some("{}"), Notes::default())
    }

    fn repeating(seq: u64, repeats: &[u64]) -> StoredEvent {
        let repeats = repeats.iter().copied().map(Seq::new).collect();
        answer(seq, None, Notes { repeats, ..Notes::default() })
    }

    /// What waits in a log for a token that was first used at this time, if these were fetched.
    fn waiting(events: Vec<StoredEvent>, first_used: u64, fetched: &[u64]) -> Vec<Seq> {
        let mut log = Log::new(Timestamp::from_millis(first_used));
        for event in events {
            log.add(event, |seq| fetched.contains(&seq.get()));
        }
        log.unfetched().seqs
    }

    #[test]
    fn what_was_repeated_waits_until_the_answer_that_repeats_it_was_fetched() {
        let log = || vec![result(1), result(2), repeating(3, &[1]), result(4)];
        assert_eq!(waiting(log(), 9, &[]), [1, 2, 4].map(Seq::new));
        assert_eq!(waiting(log(), 9, &[3]), [2, 4].map(Seq::new));
    }

    #[test]
    fn what_was_repeated_since_a_token_was_first_used_is_repeated_when_it_is_brought_again() {
        let log = || vec![result(1), repeating(2, &[1]), result(3), repeating(5, &[3])];
        assert_eq!(waiting(log(), 4, &[2, 5]), [Seq::new(3)]);
        assert_eq!(waiting(log(), 6, &[2, 5]), []);
    }

    #[test]
    fn a_later_answer_says_what_was_fetched_before_a_restart() {
        let notes = Notes { fetched: vec![Seq::new(1)], ..Notes::default() };
        let log = vec![result(1), result(2), answer(3, Some("{}"), notes)];
        assert_eq!(waiting(log, 9, &[]), [2, 3].map(Seq::new));
    }
}
