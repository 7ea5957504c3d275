//! What must be true of every call.

use std::ops::RangeInclusive;
use std::time::Instant;

use serde_json::Value;

use crate::caller::Testimony;
use crate::upstream::{REPORTS, Upstream};

/// A call that only reads runs again at most twice.
const MOST_RUNS: u64 = 3;

/// Nobody knows whether it took effect.
const OUTCOME_UNKNOWN: i64 = -32050;

/// What there was, for whoever reads the run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) cuts: u64,
    pub(crate) results: u64,
    /// Calls that Rejoin died over, of which the client was told that nobody knows.
    pub(crate) unknown: u64,
    /// Calls that Rejoin died over before their client had heard anything of them.
    pub(crate) without_place: u64,
    /// Calls that only read and ran more than once.
    pub(crate) run_again: u64,
}

/// From just before Rejoin was killed until it was there again.
pub(crate) type Outage = RangeInclusive<Instant>;

/// Judges a call. There were these outages.
pub(crate) fn judge(call: &Testimony, upstream: &Upstream, outages: &[Outage], tally: &mut Tally) {
    let runs = upstream.runs(call.tool, &call.key);
    let killed = outages.iter().any(|o| call.begun <= *o.end() && *o.start() <= call.ended);
    tally.calls += 1;
    tally.cuts += call.cuts;
    let only_reads = call.tool == "read";
    assert!(runs <= if only_reads && killed { MOST_RUNS } else { 1 }, "ran {runs} times: {call:?}");
    tally.run_again += u64::from(runs > 1);
    assert!(call.progress.is_sorted_by(|a, b| a < b), "progress only grows: {call:?}");
    if call.without_place {
        assert!(killed && call.answers.is_empty(), "a stream begins with a place: {call:?}");
        tally.without_place += 1;
        return;
    }
    let [answer] = &call.answers[..] else { panic!("answered other than once: {call:?}") };
    assert!(call.finished, "a stream that has ended is over: {call:?}");
    match answer["error"]["code"].as_i64() {
        None => {
            assert_eq!(text_of(answer), format!("{} run {runs}", call.key), "{call:?}");
            let whole = !killed && call.progress.len() as u64 == REPORTS;
            assert!(killed || whole, "all progress is reported: {call:?}");
            tally.results += 1;
        }
        Some(OUTCOME_UNKNOWN) if killed && !only_reads => tally.unknown += 1,
        Some(_) => panic!("{call:?}"),
    }
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}
