//! The agent that is there when nobody has brought one: it plans, "thinks", calls a tool and answers,
//! slowly enough to cut its connection while it works.
//!
//! It is also the shortest complete agent to copy from. Its state after each step is stored with the
//! event of that step, so that killed at any moment it goes on with the next one: no event is missing
//! and none comes twice.

mod script;
mod state;

use std::collections::VecDeque;

use async_trait::async_trait;
use rejoin_core::InSeq;
use rejoin_core::log::EntryKind;
use rejoin_core::page::StoredEntry;
use rejoin_core::worker::Publication;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::script::{Step, question_of, script};
use self::state::{Plan, State};
use crate::agent::{Agent, Seat};
use crate::entry::EntryBody;
use crate::event::Spoken;

/// The built-in example agent.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    pace: f64,
}

impl Default for Example {
    /// At a pace to watch: seven seconds or so for a message.
    fn default() -> Self {
        Self { pace: 1.0 }
    }
}

impl Example {
    /// With every pause this many times as long; zero for none at all.
    pub fn at_pace(pace: f64) -> Self {
        Self { pace: if pace.is_finite() { pace.clamp(0.0, 1_000.0) } else { 1.0 } }
    }
}

#[async_trait]
impl Agent for Example {
    async fn run(&self, seat: Seat) {
        let snapshot = seat.start().snapshot.as_ref();
        let state = snapshot.map_or_else(State::default, |snapshot| State::read(&snapshot.body));
        let mut worker = Worker { pace: self.pace, state, waiting: VecDeque::new(), seat };
        let mut goes_on = worker.finishes_what_is_left().await;
        while goes_on {
            goes_on = worker.deals_with_next().await;
        }
    }
}

/// The agent at work in one session.
struct Worker {
    pace: f64,
    state: State,
    /// Messages that came while it worked on another.
    waiting: VecDeque<StoredEntry>,
    seat: Seat,
}

/// A message that it works on.
struct ExampleTask {
    in_seq: InSeq,
    message_id: Option<String>,
    question: String,
    /// Whether the in log has it. A session that was restored after its logs were gone has not.
    logged: bool,
}

impl ExampleTask {
    fn of(entry: &StoredEntry) -> Self {
        let body = EntryBody::for_agent(&entry.body);
        let message_id = message_id(&body);
        Self { in_seq: entry.in_seq, message_id, question: question_of(&body), logged: true }
    }

    fn plan(&self) -> Plan {
        let (in_seq, message_id) = (self.in_seq.get(), self.message_id.clone());
        Plan { in_seq, message_id, question: self.question.clone() }
    }
}

/// What became of a pause.
enum Pause {
    Over,
    /// A client wants it to stop what it is doing.
    Cancelled(StoredEntry),
    /// There is nobody to work for.
    Stopped,
}

impl Worker {
    /// Finishes what its state says it was at, if the message will not be handed to it again: of a
    /// session that was restored after its logs were gone, the state is all there is to go on from.
    async fn finishes_what_is_left(&mut self) -> bool {
        let record = &self.seat.start().record;
        let (covered, head) = (record.covered.get(), record.in_head.get());
        let is_gone = |plan: &Plan| plan.in_seq <= covered || plan.in_seq > head;
        let Some(plan) = self.state.plan_context.clone().filter(is_gone) else { return true };
        let Plan { in_seq, message_id, question } = plan;
        let task = ExampleTask { in_seq: InSeq::new(in_seq), message_id, question, logged: false };
        self.answers(&task).await
    }

    /// Deals with one entry; says whether there may be more.
    async fn deals_with_next(&mut self) -> bool {
        let entry = match self.waiting.pop_front() {
            Some(entry) => entry,
            None => match self.seat.next().await {
                Some(entry) => entry,
                None => return false,
            },
        };
        match entry.kind {
            EntryKind::Message => self.answers(&ExampleTask::of(&entry)).await,
            EntryKind::Cancel => self.cancels(None, &entry).await,
        }
    }

    /// Works on a message, from the step that its state says is next.
    async fn answers(&mut self, task: &ExampleTask) -> bool {
        let script = script(&task.question, &self.state.memory_snapshot);
        let done = self.state.steps_done(task.in_seq);
        for (index, step) in script.iter().enumerate().skip(done) {
            match self.pauses(step).await {
                Pause::Over => {}
                Pause::Cancelled(cancel) => return self.cancels(Some(task), &cancel).await,
                Pause::Stopped => return false,
            }
            let (number, steps) = (index + 1, script.len());
            let now = self.seat.now();
            if number == steps {
                self.state.answered(&task.question, steps, now);
            } else {
                self.state.took_step(step.stage, number, task.plan(), now);
            }
            let more = json!({"step": number, "steps": steps});
            let event = json!({
                "event": step.event,
                "content": step.content,
                "metadata": metadata(task.message_id.as_deref(), task.in_seq, more),
            });
            let covers = (number == steps && task.logged).then_some(task.in_seq);
            if !self.says(event, covers).await {
                return false;
            }
        }
        true
    }

    /// Stops what it is doing, and forgets what was asked before the cancel.
    async fn cancels(&mut self, at_work_on: Option<&ExampleTask>, cancel: &StoredEntry) -> bool {
        let waiting = self.waiting.drain(..).filter(|entry| entry.kind == EntryKind::Message);
        let waiting: Vec<u64> = waiting.map(|entry| entry.in_seq.get()).collect();
        let at_work_on = at_work_on.map(|task| task.in_seq.get());
        let cancelled: Vec<u64> = at_work_on.into_iter().chain(waiting).collect();
        let content = match cancelled.len() {
            0 => "There was nothing to cancel.",
            _ => "Stopped, as you wished.",
        };
        self.state.cancelled(self.seat.now());
        let message_id = message_id(&EntryBody::for_agent(&cancel.body));
        let more = json!({ "cancelled": cancelled });
        let metadata = metadata(message_id.as_deref(), cancel.in_seq, more);
        let event = json!({"event": "agent.cancelled", "content": content, "metadata": metadata});
        self.says(event, Some(cancel.in_seq)).await
    }

    /// Waits as long as the step takes, taking in what comes meanwhile.
    async fn pauses(&mut self, step: &Step) -> Pause {
        let until = Instant::now() + step.takes.mul_f64(self.pace);
        loop {
            tokio::select! {
                biased; // a cancel that is there comes before the next event
                entry = self.seat.next() => match entry {
                    None => return Pause::Stopped,
                    Some(entry) => match entry.kind {
                        EntryKind::Cancel => return Pause::Cancelled(entry),
                        EntryKind::Message => self.waiting.push_back(entry),
                    },
                },
                () = tokio::time::sleep_until(until) => return Pause::Over,
            }
        }
    }

    /// Says something together with the state after it; says whether that was taken.
    async fn says(&self, event: Value, covers: Option<InSeq>) -> bool {
        let spoken = Spoken::parse(event.to_string().as_bytes());
        debug_assert!(spoken.is_ok(), "our own events are in order");
        let Ok(Spoken { event, .. }) = spoken else { return false };
        let (events, state) = (event.into_iter().collect(), Some(self.state.to_body()));
        self.seat
            .publish(Publication { events, state, in_seq: covers, ..Publication::default() })
            .await
            .is_ok()
    }
}

fn message_id(body: &EntryBody) -> Option<String> {
    body.message_id.as_ref().map(|id| id.as_str().to_owned())
}

fn metadata(message_id: Option<&str>, in_seq: InSeq, more: Value) -> Value {
    let mut metadata = more;
    metadata["in_seq"] = in_seq.get().into();
    if let Some(message_id) = message_id {
        metadata["message_id"] = message_id.into();
    }
    metadata
}
