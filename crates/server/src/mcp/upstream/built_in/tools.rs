//! The tools that there are, and what they say of themselves. What they say is true: a gateway runs those
//! again that only read, and no others.

use serde_json::{Value, json};

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Countdown,
    SlowEcho,
    Research,
    Remember,
    Recall,
}

const ALL: [Tool; 5] =
    [Tool::Countdown, Tool::SlowEcho, Tool::Research, Tool::Remember, Tool::Recall];

impl Tool {
    pub(super) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Countdown => "countdown",
            Self::SlowEcho => "slow_echo",
            Self::Research => "research",
            Self::Remember => "remember",
            Self::Recall => "recall",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Countdown => "Counts down, reporting progress at every step.",
            Self::SlowEcho => "Says again what it was told, after a while.",
            Self::Research => {
                "Works on a topic for a while, step by step, with progress and log messages."
            }
            Self::Remember => {
                "Takes a note, in the memory of this process: it is gone when that ends. Calling it \
                 twice takes two notes."
            }
            Self::Recall => "Reads the notes that `remember` took in this session.",
        }
    }

    /// Whether a call changes nothing.
    fn only_reads(self) -> bool {
        match self {
            Self::Countdown | Self::SlowEcho | Self::Research | Self::Recall => true,
            Self::Remember => false,
        }
    }

    fn arguments(self) -> (Value, &'static [&'static str]) {
        match self {
            Self::Countdown => {
                (json!({ "from": count(5), "interval_ms": milliseconds(1_000) }), &[])
            }
            Self::SlowEcho => {
                (json!({ "text": text(), "delay_ms": milliseconds(3_000) }), &["text"])
            }
            Self::Research => (
                json!({ "topic": text(), "steps": count(5), "step_ms": milliseconds(2_000) }),
                &["topic"],
            ),
            Self::Remember => (json!({ "note": text(), "delay_ms": milliseconds(0) }), &["note"]),
            Self::Recall => (json!({}), &[]),
        }
    }

    fn definition(self) -> Value {
        let (properties, required) = self.arguments();
        json!({
            "name": self.name(),
            "description": self.description(),
            "inputSchema": { "type": "object", "properties": properties, "required": required },
            "annotations": {
                "readOnlyHint": self.only_reads(),
                "destructiveHint": false,
                "idempotentHint": self.only_reads(),
                "openWorldHint": false,
            },
        })
    }
}

/// All of them, as `tools/list` shows them.
pub(super) fn list() -> Vec<Value> {
    ALL.into_iter().map(Tool::definition).collect()
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn count(default: u64) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": super::call::MOST_STEPS, "default": default })
}

fn milliseconds(default: u64) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": super::call::LONGEST_MS, "default": default })
}
