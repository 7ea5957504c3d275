//! The seal over a place in the logs: what a client holds of a call that waits for its answer, and of one that
//! became a task. It can be read by nobody else and outlives every process.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::record::Record;
use rejoin_core::seal::StateFacts;
use rejoin_core::{Principal, Timestamp};
use serde::{Deserialize, Serialize};

use super::asked::Digest;
use super::broken::INPUT_PATIENCE;
use super::execution::Execution;
use super::failure::denied;
use crate::mcp::logged::StreamName;
use crate::service::Denial;
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;

/// What a seal is for. It can be used for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `requestState`.
    Input,
    /// `taskId`.
    Task,
}

/// How long a task id is understood. What it names is mostly gone before.
const TASK_ID_LASTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Where a call stood.
#[derive(Clone, Debug)]
pub(super) struct CallPlace {
    pub(super) execution: Execution,
    /// What was called, as [`call_name`] gives it.
    pub(super) call: String,
    /// Questions after the place that were answered.
    pub(super) answered: Vec<String>,
    /// When it was sealed.
    pub(super) at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Content {
    stream: StreamName,
    call: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<String>,
}

/// What tells calls apart in a seal. Nobody can make one that is equal, for nobody can look for it.
pub(super) fn call_name(digest: &Digest) -> String {
    digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Input => "mcp request state",
            Self::Task => "mcp task",
        }
    }

    fn lasts(self) -> Duration {
        match self {
            Self::Input => INPUT_PATIENCE,
            Self::Task => TASK_ID_LASTS,
        }
    }

    /// What a seal is bound to: nobody's principal reads like this, so none of these can be taken for
    /// the state of a session.
    fn bound(self, client: &Client) -> Principal {
        Principal::new(&format!("{}\n{}", self.word(), client.identity.binding()))
    }
}

impl CallPlace {
    pub(super) fn seal(
        &self,
        purpose: Purpose,
        client: &Client,
        front: &Front,
        record: &Record,
    ) -> Result<String, McpFailure> {
        let Self { execution, call, answered, at } = self;
        let stream = execution.stream.clone();
        let content = Content { stream, call: call.clone(), answered: answered.clone() };
        let facts = StateFacts {
            principal: purpose.bound(client),
            session_id: execution.session.clone(),
            epoch: record.epoch.clone(),
            seq: execution.from,
            in_seq: execution.in_seq,
            taken_at: *at,
            sealed_at: Some(*at),
            expires_at: *at + purpose.lasts(),
            origin: Some(front.service.origin_of(record)),
        };
        let content = serde_json::to_vec(&content).unwrap_or_default();
        front.service.seal_note(&facts, &content).map_err(denied)
    }

    /// What was sealed for this caller; nothing if it was not, or its time is over.
    pub(super) fn open(
        text: &str,
        purpose: Purpose,
        client: &Client,
        front: &Arc<Front>,
    ) -> Option<Self> {
        let bound = purpose.bound(client);
        let opened = front.service.open_note(text, &bound)?;
        let Content { stream, call, answered } = serde_json::from_slice(&opened.content).ok()?;
        let StateFacts { session_id, seq, in_seq, taken_at, .. } = opened.facts;
        let execution = Execution { session: session_id, in_seq, stream, from: seq };
        Some(Self { execution, call, answered, at: taken_at })
    }

    /// The upstream session that it is in.
    pub(super) async fn record(&self, client: &Client, front: &Front) -> Result<Record, Denial> {
        front.service.mcp_session(&client.visitor, &self.execution.session).await
    }
}
