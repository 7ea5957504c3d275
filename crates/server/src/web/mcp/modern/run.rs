//! A call under way: what its client is to be told next.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use rejoin_core::{Seq, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use super::asked::StatelessRequest;
use super::beginning::{StartedCall, begin};
use super::broken::Attended;
use super::execution::Execution;
use super::failure::{missing_capability, status_of};
use super::questions::{OpenQuestion, Questions, nobody_to_ask};
use super::reader::{ReaderHeard, Said, UpstreamReader};
use super::state::{CallPlace, Purpose, call_name};
use super::wire::{INTERNAL, RESOURCE_NOT_FOUND, meta};
use super::{shape, tasks};
use crate::mcp::logged::StreamName;
use crate::mcp::message::{Kind, Message, RequestId, read, splice};
use crate::mcp::own_words::{RpcError, code, error_response};
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;

/// Questions that a server asks at once are told at once: how long more of them are waited for.
const MORE_QUESTIONS: Duration = Duration::from_millis(40);

/// The requests that may end with a question.
const MAY_ASK: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// The levels of log messages, the least severe first.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A call whose client waits.
pub(super) struct Run {
    front: Arc<Front>,
    client: Client,
    asked: StatelessRequest,
    call: Attended,
    reader: UpstreamReader,
    questions: Questions,
    /// Capabilities that the server wanted of the client, and that it has not declared.
    missing: Map<String, Value>,
    /// When what the server has asked so far is told.
    tell_questions: Option<Instant>,
    /// When the call becomes a task.
    task_at: Option<Instant>,
    /// Where its answer is.
    answer_at: Option<Seq>,
}

/// What the client is to be told.
pub(super) enum CallStep {
    /// A notification.
    Tell(String),
    /// The answer; after it nothing comes.
    Done(Answer),
    /// Nothing, for so long that it should be said.
    Quiet,
    /// The connection ends here.
    Broken,
}

/// An answer, and the status that goes with it.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Run {
    /// Begins a call, or goes on with one: with one that broke, or that has asked its client something.
    pub(super) async fn start(
        client: &Client,
        front: &Arc<Front>,
        asked: StatelessRequest,
    ) -> Result<Self, McpFailure> {
        let StartedCall { asked, call, answered } = begin(client, front, asked).await?;
        let from = call.execution().from;
        let reader = UpstreamReader::attached(front, &call.upstream().record, from).await;
        let becomes_task = asked.knows_tasks() && &*asked.method == "tools/call";
        let task_at = becomes_task.then(|| Instant::now() + front.settings.mcp.modern.task_after);
        Ok(Self {
            front: Arc::clone(front),
            client: client.clone(),
            asked,
            call,
            reader,
            questions: Questions::after(answered),
            missing: Map::new(),
            tell_questions: None,
            task_at,
            answer_at: None,
        })
    }

    /// The client has the answer.
    pub(super) fn finish(&mut self) {
        if let Some(seq) = self.answer_at {
            self.reader.note_fetched(seq);
        }
        self.call.finish();
    }

    /// The request that is answered.
    pub(super) fn id(&self) -> &RequestId {
        &self.asked.id
    }

    /// What to tell next. Nothing is lost if it is dropped while it waits.
    pub(super) async fn step(&mut self) -> CallStep {
        loop {
            if let Some(step) = self.on_due().await {
                return step;
            }
            let heard = timeout(self.patience(), self.reader.next()).await;
            let step = match heard {
                Ok(ReaderHeard::Said(said)) => self.on_said(said).await,
                Ok(ReaderHeard::Over) => self.on_over().await,
                Ok(ReaderHeard::Interrupted) => Some(CallStep::Broken),
                Err(_) => self.on_quiet().await,
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// The session of the client has ended, or goes on under another name.
    async fn on_over(&mut self) -> Option<CallStep> {
        match self.reader.follow().await {
            true => None,
            false => Some(self.fail(INTERNAL, "the session of this client was ended")),
        }
    }

    /// When there is something to do whether or not anything is said.
    fn due(&self) -> Option<Instant> {
        [self.tell_questions, self.task_at].into_iter().flatten().min()
    }

    fn patience(&self) -> Duration {
        let keep_alive = self.front.settings.sse_keep_alive;
        let patience = self.front.patience(&self.client.visitor.caller, keep_alive);
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        patience.unwrap_or_default().min(self.due().map_or(keep_alive, left))
    }

    async fn on_due(&mut self) -> Option<CallStep> {
        let now = Instant::now();
        if self.tell_questions.is_some_and(|at| at <= now) {
            return Some(self.ask_client());
        }
        if self.task_at.is_some_and(|at| at <= now) {
            return Some(self.become_task().await);
        }
        None
    }

    async fn on_quiet(&mut self) -> Option<CallStep> {
        if self.due().is_some_and(|at| at <= Instant::now()) {
            return None;
        }
        if self.front.patience(&self.client.visitor.caller, Duration::MAX).is_none() {
            return Some(CallStep::Broken); // its credential has run out
        }
        if self.reader.has_lost(self.call.execution().in_seq).await {
            let sentence = "the result of this request was there and is no longer kept";
            let error = RpcError::new(code::RESULT_EVICTED, sentence).because("result_evicted");
            return Some(CallStep::Done(self.failed(&error)));
        }
        Some(CallStep::Quiet)
    }

    async fn on_said(&mut self, said: Said) -> Option<CallStep> {
        let call = self.call.execution();
        if said.ends(call) {
            self.answer_at = Some(said.seq);
            return Some(self.on_answer(said.message.as_ref()));
        }
        let ours = said.stream == call.stream;
        let message = said.message?;
        if said.stream == StreamName::general() {
            self.decline_idle(OpenQuestion::read(&message, said.seq)?).await;
        }
        if !ours {
            return None;
        }
        match message.kind() {
            Kind::Request { .. } => self.on_question(OpenQuestion::read(&message, said.seq)?).await,
            Kind::Notification { method } => match &**method {
                "notifications/cancelled" => {
                    self.questions.withdraw(&message);
                    None
                }
                _ => self.relayed(&message).map(CallStep::Tell),
            },
            Kind::Response { .. } => None,
        }
    }

    /// The server asks something: the client has brought the answer along, or is to be told.
    async fn on_question(&mut self, question: OpenQuestion) -> Option<CallStep> {
        if self.questions.is_answered(&question) {
            return None;
        }
        let (front, session) = (Arc::clone(&self.front), self.call.execution().session.clone());
        let sessions = front.service.sessions();
        if let Some(answer) = self.questions.answer_for(&question, &self.asked) {
            self.call.upstream().begun.note_answered(&question.id);
            let _ = question.answer(sessions, &session, answer).await; // or its session is over
            return None;
        }
        let can = question.needs().is_some_and(|needed| self.asked.declares(needed));
        let may_ask = can && MAY_ASK.contains(&&*self.asked.method);
        if may_ask {
            self.tell_questions.get_or_insert_with(|| Instant::now() + MORE_QUESTIONS);
            self.questions.add(question);
            return None;
        }
        self.call.upstream().begun.note_answered(&question.id);
        let _ = question.decline(sessions, &session, &nobody_to_ask()).await; // or it is over
        let needed = question.needs().filter(|_| !question.is_idle());
        self.missing.extend(needed.map(|needed| (needed.to_owned(), json!({}))));
        None
    }

    /// The server asks something outside of any call: there is nobody to tell.
    async fn decline_idle(&self, question: OpenQuestion) {
        let Execution { session, .. } = self.call.execution();
        if self.call.upstream().begun.note_answered(&question.id) {
            let sessions = self.front.service.sessions();
            let _ = question.decline(sessions, session, &nobody_to_ask()).await; // or it is over
        }
    }

    /// The client is told what the server asks, and is to come again with the answers.
    fn ask_client(&mut self) -> CallStep {
        let Some(before) = self.questions.before() else {
            self.tell_questions = None;
            return CallStep::Quiet;
        };
        let execution = Execution { from: before, ..self.call.execution().clone() };
        let place = CallPlace {
            execution,
            call: call_name(&self.asked.call_digest),
            answered: self.questions.answered.clone(),
            at: self.front.service.now(),
        };
        let record = &self.call.upstream().record;
        let state = match place.seal(Purpose::Input, &self.client, &self.front, record) {
            Ok(state) => state,
            Err(_) => return self.fail(INTERNAL, "the state of the call could not be sealed"),
        };
        let questions = self.questions.to_json();
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{questions},"requestState":"{state}"}}"#
        );
        self.call.asks();
        CallStep::Done(self.answered(&result))
    }

    /// The call takes long: it goes on without its client, who gets a handle for it.
    async fn become_task(&mut self) -> CallStep {
        self.task_at = None;
        let (execution, upstream) = (self.call.execution().clone(), self.call.upstream().clone());
        match tasks::create(&self.client, &self.front, &upstream, execution).await {
            Ok(result) => {
                self.call.let_go();
                CallStep::Done(self.answered(&result))
            }
            Err(_) => CallStep::Quiet, // the store does not work: the call goes on as it is
        }
    }

    fn on_answer(&mut self, message: Option<&Message>) -> CallStep {
        let Some(message) = message else {
            return self.fail(INTERNAL, "the request was cancelled");
        };
        if self.is_missing_something(message) {
            let required = Value::Object(std::mem::take(&mut self.missing));
            return CallStep::Done(self.failed(&missing_capability(required)));
        }
        if let Some(error) = message.error() {
            return CallStep::Done(self.refused(message, error));
        }
        let result = message.result().map_or("{}", RawValue::get);
        CallStep::Done(self.answered(result))
    }

    /// Whether the call failed after the server had asked what its client can't answer.
    fn is_missing_something(&self, answer: &Message) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Outcome {
            is_error: bool,
        }
        let failed = answer.error().is_some() || read::<Outcome>(answer.result()).is_error;
        failed && !self.missing.is_empty()
    }

    /// An error of the server behind, or of the gateway.
    fn refused(&self, message: &Message, error: &RawValue) -> Answer {
        #[derive(Default, Deserialize)]
        struct Error<'a> {
            #[serde(borrow)]
            code: Option<&'a RawValue>,
        }
        let raw = read::<Error<'_>>(Some(error)).code.map_or("0", RawValue::get);
        let mut number: i64 = raw.parse().unwrap_or_default();
        let text = message.with_id(&self.asked.id);
        if number == i64::from(RESOURCE_NOT_FOUND) {
            number = code::INVALID_PARAMS.into();
            let other = splice(error.get(), raw, &number.to_string());
            let text = Message::parse(&text).map(|message| message.with_error(&other));
            return Answer { status: status_of(number), text: text.unwrap_or_default() };
        }
        Answer { status: status_of(number), text }
    }

    fn answered(&self, result: &str) -> Answer {
        let result = shape::result(&self.asked.method, &self.call.upstream().server, result);
        let id = &self.asked.id;
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        Answer { status: StatusCode::OK, text }
    }

    fn failed(&self, error: &RpcError) -> Answer {
        let text = error_response(Some(&self.asked.id), error);
        Answer { status: status_of(error.code.into()), text }
    }

    fn fail(&mut self, code: i32, sentence: &str) -> CallStep {
        let error = RpcError::new(code, sentence);
        CallStep::Done(self.failed(&error))
    }

    /// What the client is told of a notification of the server; nothing of what it did not ask for.
    fn relayed(&self, message: &Message) -> Option<String> {
        match message.method()? {
            "notifications/progress" => {
                let token = self.asked.token.as_deref()?;
                let ours = read_member(message.params(), meta::PROGRESS)?;
                Some(splice(message.text(), ours.get(), token.get()))
            }
            "notifications/message" => {
                let level = read_member(message.params(), "level")?;
                let level: String = serde_json::from_str(level.get()).ok()?;
                let wanted = rank(self.asked.log_level.as_deref()?)?;
                (rank(&level)? >= wanted).then(|| message.text().to_owned())
            }
            // For those who listen.
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => None,
            _ => Some(message.text().to_owned()),
        }
    }
}

fn read_member<'a>(object: Option<&'a RawValue>, name: &str) -> Option<&'a RawValue> {
    let members: std::collections::HashMap<String, &'a RawValue> =
        serde_json::from_str(object?.get()).ok()?;
    members.get(name).copied()
}

fn rank(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == level)
}

/// How a moment is written.
pub(super) fn written(at: Timestamp) -> String {
    at.to_string()
}
