//! What the server says of sessions, their health and the attempts to get at them.

use rejoin_core::SessionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::api::Api;
use super::failure::Failure;
use super::out::tame;

/// A session.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) session_id: String,
    pub(crate) status: String,
    /// Why it goes on no longer; servers before it was told do not say.
    #[serde(default)]
    pub(crate) ended_reason: Option<String>,
    pub(crate) attached: bool,
    pub(crate) transport: Option<String>,
    pub(crate) client: Value,
    pub(crate) principal: String,
    pub(crate) created_at: String,
    pub(crate) last_activity: String,
    pub(crate) generation: u64,
    pub(crate) reconnect_count: u64,
    pub(crate) last_seq: u64,
    pub(crate) last_acked_seq: u64,
    pub(crate) buffered: u64,
    pub(crate) expires_at: String,
}

impl Record {
    /// Whether anything can still happen in it.
    pub(crate) fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// How it stands, in a word: `attached` or `parked` while it is active, else how it ended.
    pub(crate) fn standing(&self) -> &str {
        match (self.is_active(), self.attached) {
            (true, true) => "attached",
            (true, false) => "parked",
            (false, _) => &self.status,
        }
    }

    /// What the client calls itself, as far as it says.
    pub(crate) fn client_name(&self) -> String {
        let text = |pointer: &str| self.client.pointer(pointer).and_then(Value::as_str);
        let name = ["/client_id", "/name", "/clientInfo/name"].into_iter().find_map(text);
        let version =
            ["/app_version", "/version", "/clientInfo/version"].into_iter().find_map(text);
        match (name, version) {
            (Some(name), Some(version)) => tame(&format!("{name} {version}")),
            (Some(one), None) | (None, Some(one)) => tame(one),
            (None, None) => "-".to_owned(),
        }
    }
}

/// How full a session's buffer is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BufferHealth {
    pub(crate) buffer_size: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) buffer_usage_percent: f64,
    pub(crate) oldest_event_seq: Option<u64>,
    pub(crate) newest_event_seq: Option<u64>,
    pub(crate) unacked_events: u64,
}

/// What happened to a session.
#[derive(Debug, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) moments: Vec<Moment>,
}

/// A moment in a timeline, as far as it is read here.
#[derive(Debug, Deserialize)]
pub(crate) struct Moment {
    pub(crate) at: String,
    pub(crate) what: String,
    /// How an agent's process ended.
    #[serde(default)]
    pub(crate) status: Option<String>,
    /// The last lines of its standard error; nothing, if the caller may not read them.
    #[serde(default)]
    pub(crate) stderr: Option<Vec<String>>,
}

/// An attempt to get at a session.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) at: String,
    pub(crate) session_id: Option<String>,
    pub(crate) principal: String,
    pub(crate) address: Option<String>,
    pub(crate) transport: String,
    pub(crate) action: String,
    pub(crate) success: bool,
    pub(crate) reason: String,
}

/// A part of a list, its members as they came.
pub(crate) struct Part {
    pub(crate) members: Vec<Box<RawValue>>,
    /// Whether the server has more of them.
    pub(crate) more: bool,
}

impl Part {
    /// The members, read.
    pub(crate) fn read<T: DeserializeOwned>(&self, api: &Api) -> Result<Vec<T>, Failure> {
        let read = self.members.iter().map(|member| serde_json::from_str(member.get()));
        read.collect::<Result<_, _>>()
            .map_err(|error| Failure::Strange { url: api.url().to_owned(), why: error.to_string() })
    }
}

/// The most that a server gives at once.
const PAGE: usize = 1_000;

#[derive(Deserialize)]
struct SessionPage {
    sessions: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// At most `limit` sessions that are `wanted`: of one status, or of all that are remembered.
pub(crate) async fn sessions(
    api: &Api,
    status: Option<&str>,
    limit: usize,
    mut wanted: impl FnMut(&Record) -> bool,
) -> Result<Part, Failure> {
    let which = status.map_or_else(String::new, |status| format!("status={status}&"));
    let (mut members, mut after) = (Vec::new(), String::new());
    loop {
        let page: SessionPage =
            api.get(&format!("/api/sessions?{which}limit={}{after}", PAGE.min(limit))).await?;
        let part = Part { members: page.sessions, more: false };
        let records: Vec<Record> = part.read(api)?;
        for (member, record) in part.members.into_iter().zip(records) {
            if !wanted(&record) {
                continue;
            }
            if members.len() == limit {
                return Ok(Part { members, more: true });
            }
            members.push(member);
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(Part { members, more: false }),
        }
    }
}

/// At most `limit` sessions of those whose ids come after this one, in their order.
pub(crate) async fn sessions_after(
    api: &Api,
    id: &SessionId,
    limit: usize,
) -> Result<Part, Failure> {
    let page: SessionPage = api.get(&format!("/api/sessions?limit={limit}&after={id}")).await?;
    Ok(Part { members: page.sessions, more: page.next.is_some() })
}

#[derive(Deserialize)]
struct AuditPage {
    records: Vec<Box<RawValue>>,
    next: Option<u64>,
}

/// The latest attempts, at most `limit`, of one session or of all.
pub(crate) async fn attempts(
    api: &Api,
    session: Option<&SessionId>,
    limit: usize,
) -> Result<Part, Failure> {
    let which = session.map_or_else(String::new, |id| format!("session_id={id}&"));
    let (mut members, mut before) = (Vec::new(), String::new());
    loop {
        let wanted = (limit - members.len()).min(PAGE);
        let page: AuditPage = api.get(&format!("/api/audit?{which}limit={wanted}{before}")).await?;
        members.extend(page.records);
        match page.next {
            Some(next) if members.len() < limit => before = format!("&before={next}"),
            next => return Ok(Part { members, more: next.is_some() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_is_called_what_it_calls_itself() {
        let name = |client: Value| {
            let record = json!({
                "session_id": "s", "status": "active", "attached": false, "transport": null,
                "client": client, "principal": "p", "created_at": "", "last_activity": "",
                "generation": 1, "reconnect_count": 0, "last_seq": 0, "last_acked_seq": 0,
                "buffered": 0, "expires_at": "",
            });
            serde_json::from_value::<Record>(record).unwrap().client_name()
        };
        assert_eq!(name(json!({})), "-");
        assert_eq!(name(json!({"client_id": "web", "app_version": "1.2"})), "web 1.2");
        assert_eq!(name(json!({"clientInfo": {"name": "in\u{1b}spector"}})), "in\\u{1b}spector");
    }
}
