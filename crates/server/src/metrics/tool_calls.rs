//! Calls of MCP tools, by tool and outcome. Names of tools come from strangers, so only names that an upstream
//! has listed, or that it has answered to, are told apart, and of those so many; all others are `other`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::text::MetricsText;

/// Tools that are told apart.
const MOST_TOOLS: usize = 200;

/// The longest name that is told apart, in bytes. MCP wants 128 characters at most.
const LONGEST_NAME: usize = 128;

/// What stands for every other tool.
const OTHER: &str = "other";

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// A result.
    Success,
    /// A result in which the tool says that it failed.
    ToolError,
    /// An error of the protocol, by the upstream or because it can't be reached.
    Error,
    /// The upstream went away meanwhile: whether the call took effect is not known.
    Unknown,
    /// The client did not want it any more.
    Cancelled,
}

impl CallOutcome {
    const ALL: [Self; 5] =
        [Self::Success, Self::ToolError, Self::Error, Self::Unknown, Self::Cancelled];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ToolCalls(Mutex<CountedTools>);

#[derive(Debug, Default)]
struct CountedTools {
    known: BTreeMap<Box<str>, OutcomeCounts>,
    other: OutcomeCounts,
}

/// By outcome, in the order of [`CallOutcome::ALL`].
type OutcomeCounts = [u64; CallOutcome::ALL.len()];

impl ToolCalls {
    /// An upstream has tools of these names.
    pub(crate) fn listed(&self, names: impl IntoIterator<Item = String>) {
        let mut tools = self.lock();
        names.into_iter().for_each(|name| tools.learn(&name));
    }

    /// A call of a tool has ended.
    pub(crate) fn ended(&self, tool: &str, outcome: CallOutcome) {
        let mut tools = self.lock();
        if outcome == CallOutcome::Success {
            tools.learn(tool);
        }
        let CountedTools { known, other } = &mut *tools;
        known.get_mut(tool).unwrap_or(other)[outcome as usize] += 1;
    }

    /// Adds what was counted.
    pub(super) fn describe(&self, text: &mut MetricsText) {
        let name = "rejoin_mcp_tool_calls_total";
        text.describe(name, "counter", "Calls of MCP tools that have ended, by tool and outcome");
        let tools = self.lock();
        let known = tools.known.iter().map(|(tool, counts)| (&**tool, counts));
        for (tool, counts) in known.chain([(OTHER, &tools.other)]) {
            for (outcome, count) in CallOutcome::ALL.iter().zip(counts) {
                if *count > 0 || tool == OTHER {
                    let labels = [("tool", tool), ("outcome", outcome.as_str())];
                    text.sample(name, &labels, count);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, CountedTools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedTools {
    fn learn(&mut self, name: &str) {
        let fits = !name.is_empty() && name.len() <= LONGEST_NAME && name != OTHER;
        if fits && self.known.len() < MOST_TOOLS && !self.known.contains_key(name) {
            self.known.insert(name.into(), OutcomeCounts::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(calls: &ToolCalls) -> String {
        let mut text = MetricsText::default();
        calls.describe(&mut text);
        text.finish()
    }

    fn line(tool: &str, outcome: &str, count: u64) -> String {
        format!("rejoin_mcp_tool_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}\n")
    }

    #[test]
    fn a_tool_has_a_name_once_it_was_listed_or_has_answered() {
        let calls = ToolCalls::default();
        calls.listed(["listed".into()]);
        calls.ended("listed", CallOutcome::ToolError);
        calls.ended("made up", CallOutcome::ToolError);
        calls.ended("answers", CallOutcome::Error);
        calls.ended("answers", CallOutcome::Success);
        calls.ended("answers", CallOutcome::Unknown);
        let text = told(&calls);
        for line in [
            line("listed", "tool_error", 1),
            line("answers", "success", 1),
            line("answers", "unknown", 1),
            line(OTHER, "tool_error", 1),
            line(OTHER, "error", 1),
            line(OTHER, "success", 0),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("made up"), "{text}");
    }

    #[test]
    fn tools_beyond_a_bound_have_no_name() {
        let calls = ToolCalls::default();
        calls.listed((0..MOST_TOOLS + 10).map(|number| format!("tool{number}")));
        for number in 0..MOST_TOOLS + 10 {
            calls.ended(&format!("tool{number}"), CallOutcome::Success);
        }
        calls.ended(&"x".repeat(LONGEST_NAME + 1), CallOutcome::Success);
        calls.ended(OTHER, CallOutcome::Success);
        let text = told(&calls);
        assert_eq!(text.lines().filter(|line| line.contains("tool=\"tool")).count(), MOST_TOOLS);
        assert!(text.contains(&line(OTHER, "success", 12)), "{text}");
    }
}
