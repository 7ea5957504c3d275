//! What the example agent remembers, in the form in which clients may export it.

use std::collections::VecDeque;
use std::sync::Arc;

use rejoin_core::page::Body;
use rejoin_core::{InSeq, Timestamp};
use serde::{Deserialize, Serialize};

/// Questions that are remembered …
const REMEMBERED: usize = 5;

/// … and how much of each.
const REMEMBERED_CHARS: usize = 200;

/// The agent's state after a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) stage: String,
    /// Steps done of what it is at work on, or of what it did last.
    pub(super) current_step: usize,
    /// What it is at work on, if anything.
    pub(super) plan_context: Option<Plan>,
    pub(super) memory_snapshot: Memory,
    pub(super) timestamp: String,
}

/// The message it is at work on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) in_seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<String>,
    pub(super) question: String,
}

/// What it keeps from message to message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) answered: u64,
    pub(super) questions: VecDeque<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            stage: "new".into(),
            current_step: 0,
            plan_context: None,
            memory_snapshot: Memory::default(),
            timestamp: Timestamp::default().to_string(),
        }
    }
}

impl State {
    /// Reads what was stored. What another agent has stored under its own rules means nothing here.
    pub(super) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn to_body(&self) -> Body {
        // Strings and numbers have no way to fail.
        serde_json::to_vec(self).map_or_else(|_| Arc::from(&b"{}"[..]), Arc::from)
    }

    /// How many steps of the work on this entry are done.
    pub(super) fn steps_done(&self, in_seq: InSeq) -> usize {
        match &self.plan_context {
            Some(plan) if plan.in_seq == in_seq.get() => self.current_step,
            Some(_) | None => 0,
        }
    }

    pub(super) fn took_step(&mut self, stage: &str, number: usize, plan: Plan, now: Timestamp) {
        self.plan_context = Some(Plan { question: beginning(&plan.question), ..plan });
        self.is_at(stage, number, now);
    }

    pub(super) fn answered(&mut self, question: &str, steps: usize, now: Timestamp) {
        self.plan_context = None;
        self.memory_snapshot.answered += 1;
        self.memory_snapshot.questions.push_back(beginning(question));
        while self.memory_snapshot.questions.len() > REMEMBERED {
            self.memory_snapshot.questions.pop_front();
        }
        self.is_at("answered", steps, now);
    }

    pub(super) fn cancelled(&mut self, now: Timestamp) {
        self.plan_context = None;
        self.is_at("cancelled", self.current_step, now);
    }

    fn is_at(&mut self, stage: &str, step: usize, now: Timestamp) {
        self.stage = stage.into();
        self.current_step = step;
        self.timestamp = now.to_string();
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(REMEMBERED_CHARS).collect()
}
