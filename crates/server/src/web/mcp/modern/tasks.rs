//! Calls that became tasks: their client has a handle in place of a result, and asks for it.
//!
//! A task is an entry of the in log that somebody has a seal over. What became of it stands in the out log,
//! so any process can tell, also one that was started later.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use rejoin_core::Timestamp;
use rejoin_core::record::Record;
use rejoin_core::worker::Publication;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::asked::{StatelessRequest, invalid, object};
use super::execution::Execution;
use super::failure::{denied, missing_capability, status_of};
use super::questions::{OpenQuestion, nobody_to_ask};
use super::reader::UpstreamReader;
use super::respond::json_answer;
use super::run::written;
use super::state::{CallPlace, Purpose};
use super::upstream::UpstreamSession;
use super::wire::{MISSING_CAPABILITY, TASKS};
use crate::mcp::logged::Event;
use crate::mcp::message::{Kind, Message};
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;

/// How often a client should ask.
const POLL: Duration = Duration::from_secs(1);

/// Makes a task of a call, and stores that it is one; then its result can be answered.
pub(super) async fn create(
    client: &Client,
    front: &Arc<Front>,
    upstream: &UpstreamSession,
    execution: Execution,
) -> Result<String, McpFailure> {
    let at = front.service.now();
    let place = CallPlace { execution, call: String::new(), answered: Vec::new(), at };
    let id = place.seal(Purpose::Task, client, front, &upstream.record)?;
    let task =
        ClientTask { id: &id, created: at, updated: at, status: Status::Working, message: None };
    let result = task.to_json(front, Some("task"));
    let said = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, place.execution.id());
    let stream = place.execution.stream.of_task();
    let event = Event::said(stream, &said);
    let publication = Publication { events: vec![event.to_body()], ..Publication::default() };
    let stored = front.service.sessions().publish(&place.execution.session, publication).await;
    stored.map_err(|_| denied(crate::service::Denial::Unavailable))?;
    Ok(result)
}

/// `tasks/get`: what has become of a task.
pub(super) async fn get(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
) -> Result<Response, McpFailure> {
    let (place, record) = found(client, front, asked).await?;
    let id = asked.text("taskId").unwrap_or_default();
    let task = looked_up(front, &place, &record).await.ok_or_else(not_found)?;
    let Looked { mut status, updated, message } = task;
    if let Status::InputRequired(questions) = status {
        status = answerable(front, &record, asked, questions).await;
    }
    let task = ClientTask { id: &id, created: place.at, updated, status, message };
    Ok(json_answer(&asked.id, &task.to_json(front, Some("complete"))))
}

/// What the client can answer of this; the rest is declined.
async fn answerable(
    front: &Arc<Front>,
    record: &Record,
    asked: &StatelessRequest,
    mut questions: Vec<OpenQuestion>,
) -> Status {
    let can =
        |question: &mut OpenQuestion| question.needs().is_some_and(|need| asked.declares(need));
    let begun = front.modern.begun(record.id());
    for question in questions.extract_if(.., |question| !can(question)) {
        if begun.note_answered(&question.id) {
            let sessions = front.service.sessions();
            let _ = question.decline(sessions, record.id(), &nobody_to_ask()).await; // or it is over
        }
    }
    if questions.is_empty() { Status::Working } else { Status::InputRequired(questions) }
}

/// `tasks/update`: answers to what the server has asked.
pub(super) async fn update(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
) -> Result<Response, McpFailure> {
    let (place, record) = found(client, front, asked).await?;
    let looked = looked_up(front, &place, &record).await.ok_or_else(not_found)?;
    let begun = front.modern.begun(record.id());
    if let Status::InputRequired(questions) = looked.status {
        for question in &questions {
            let Some(answer) = question.among(&asked.responses) else { continue };
            let sessions = front.service.sessions();
            question.answer(sessions, record.id(), answer).await.map_err(denied)?;
            begun.note_answered(&question.id);
        }
    }
    Ok(json_answer(&asked.id, r#"{"resultType":"complete"}"#))
}

/// `tasks/cancel`: its client does not want the result any more.
pub(super) async fn cancel(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
) -> Result<Response, McpFailure> {
    let (place, record) = found(client, front, asked).await?;
    looked_up(front, &place, &record).await.ok_or_else(not_found)?;
    let sessions = front.service.sessions();
    place.execution.cancel(sessions, "its task was cancelled").await.map_err(denied)?;
    Ok(json_answer(&asked.id, r#"{"resultType":"complete"}"#))
}

/// The task that a request names: one of the caller's.
async fn found(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
) -> Result<(CallPlace, Record), McpFailure> {
    if !asked.knows_tasks() {
        let error = missing_capability(json!({ "extensions": { TASKS: {} } }));
        return Err(McpFailure::new(status_of(MISSING_CAPABILITY.into()), error));
    }
    let id = asked.text("taskId").ok_or_else(|| invalid("`taskId` is missing"))?;
    let place = CallPlace::open(&id, Purpose::Task, client, front).ok_or_else(not_found)?;
    let record = place.record(client, front).await.map_err(|_| not_found())?;
    Ok((place, record))
}

fn not_found() -> McpFailure {
    invalid("there is no such task, or it is no longer kept")
}

/// How far a task is.
enum Status {
    Working,
    InputRequired(Vec<OpenQuestion>),
    Completed(Box<RawValue>),
    Failed(Box<RawValue>),
    Cancelled,
}

/// What the log says of a task.
struct Looked {
    status: Status,
    updated: Timestamp,
    message: Option<String>,
}

/// Reads what became of a task; nothing if its result is gone.
async fn looked_up(front: &Arc<Front>, place: &CallPlace, record: &Record) -> Option<Looked> {
    let Execution { session, in_seq, stream, from } = &place.execution;
    let begun = front.modern.begun(session);
    let mut reader = UpstreamReader::only(front, session, *from);
    let was_answered = reader.was_answered(*in_seq).await; // if so, its answer is found below
    let (mut updated, mut message, mut questions) = (place.at, None, Vec::<OpenQuestion>::new());
    while let Ok(Some(said)) = reader.look().await {
        if said.ends(&place.execution) {
            reader.note_fetched(said.seq);
            let status = ended(said.message.as_ref());
            return Some(Looked { status, updated: said.at, message: None });
        }
        let Some(text) = said.message.filter(|_| said.stream == *stream) else { continue };
        updated = updated.max(said.at);
        match text.kind() {
            Kind::Request { .. } => questions.extend(OpenQuestion::read(&text, said.seq)),
            Kind::Notification { method } if &**method == "notifications/cancelled" => {
                let withdrawn = text.cancelled_id();
                let withdrawn = withdrawn.map(|id| id.as_json().trim_matches('"').to_owned());
                questions.retain(|question| Some(&question.id) != withdrawn.as_ref());
            }
            Kind::Notification { method } if &**method == "notifications/progress" => {
                message = progress(&text).or(message);
            }
            Kind::Notification { .. } | Kind::Response { .. } => {}
        }
    }
    if was_answered {
        return None;
    }
    // What a server asked that has gone is asked again, if at all.
    let asker = format!("rejoin-{}-", record.term);
    questions.retain(|q| q.id.starts_with(&asker) && !begun.was_answered(&q.id));
    let status =
        if questions.is_empty() { Status::Working } else { Status::InputRequired(questions) };
    Some(Looked { status, updated, message })
}

fn ended(answer: Option<&Message>) -> Status {
    let Some(answer) = answer else { return Status::Cancelled };
    match (answer.result(), answer.error()) {
        (Some(result), _) => Status::Completed(result.to_owned()),
        (None, Some(error)) => Status::Failed(error.to_owned()),
        (None, None) => Status::Cancelled,
    }
}

/// What a server says of its progress, in words.
fn progress(report: &Message) -> Option<String> {
    let params: Value = report.read_params();
    let said = params.get("message").and_then(Value::as_str).map(str::to_owned);
    said.or_else(|| params.get("progress").map(|progress| format!("progress: {progress}")))
}

/// A task as its client sees it.
struct ClientTask<'a> {
    id: &'a str,
    created: Timestamp,
    updated: Timestamp,
    status: Status,
    message: Option<String>,
}

impl ClientTask<'_> {
    fn to_json(&self, front: &Front, kind: Option<&str>) -> String {
        let word = |text: &str| Value::from(text).to_string();
        let keep = front.settings.mcp.modern.result_retention;
        let since = match &self.status {
            Status::Working | Status::InputRequired(_) => front.service.now(),
            Status::Completed(_) | Status::Failed(_) | Status::Cancelled => self.updated,
        };
        let ttl = since.since(self.created) + keep;
        let (status, inside) = self.status.to_json();
        let mut members = vec![
            ("taskId", word(self.id)),
            ("status", word(status)),
            ("createdAt", word(&written(self.created))),
            ("lastUpdatedAt", word(&written(self.updated))),
            ("ttlMs", ttl.as_millis().to_string()),
            ("pollIntervalMs", POLL.as_millis().to_string()),
        ];
        members.extend(kind.map(|kind| ("resultType", word(kind))));
        members.extend(self.message.as_deref().map(|text| ("statusMessage", word(text))));
        members.extend(inside);
        object(members.iter().map(|(name, value)| (*name, value.as_str())))
    }
}

impl Status {
    fn to_json(&self) -> (&'static str, Option<(&'static str, String)>) {
        match self {
            Self::Working => ("working", None),
            Self::InputRequired(questions) => {
                let each: Vec<_> = questions.iter().map(OpenQuestion::to_json).collect();
                let all = object(each.iter().map(|(key, value)| (key.as_str(), value.as_str())));
                ("input_required", Some(("inputRequests", all)))
            }
            Self::Completed(result) => ("completed", Some(("result", result.to_string()))),
            Self::Failed(error) => ("failed", Some(("error", error.to_string()))),
            Self::Cancelled => ("cancelled", None),
        }
    }
}
