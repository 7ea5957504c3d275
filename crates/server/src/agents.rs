//! Agents that come with Rejoin: one in any language behind a command line, one behind a URL, and one
//! to try things out with.

mod command;
mod example;
mod http;

use std::sync::atomic::AtomicU64;

pub use command::{Command, MAX_CHILDREN};
pub use example::Example;
pub use http::Http;
use rejoin_core::worker::Publication;

use crate::child::stray::excerpt;
use crate::event::{EventRefused, Spoken};

/// What happened to agents, for a metrics layer to read.
#[derive(Debug, Default)]
pub struct AgentCounts {
    /// Agents that were started again after a death.
    pub restarts: AtomicU64,
    /// MCP servers behind the gateway that were started or introduced again to a session.
    pub upstream_restarts: AtomicU64,
    /// Times that the attempts to start one ended.
    pub given_up: AtomicU64,
    /// Lines and events of agents that were ignored: no event, a reserved name, too long.
    pub ignored_lines: AtomicU64,
    /// Responses of HTTP agents with a body that brings no events.
    pub bad_responses: AtomicU64,
}

/// The longest text that is read as an event.
const LONGEST_EVENT: usize = 8 * 1024 * 1024;

/// A line or an event of an agent that is no publication.
struct Ignored {
    why: &'static str,
    /// What of it may stand in a log: a stray text itself, of an event under a reserved name the name. What events hold
    /// belongs to their session and is not repeated.
    shown: Option<String>,
}

impl From<&'static str> for Ignored {
    fn from(why: &'static str) -> Self {
        Self { why, shown: None }
    }
}

/// What a line or an event of an agent says; nothing if it is blank.
fn publication_of(text: &[u8]) -> Result<Option<Publication>, Ignored> {
    let text = text.trim_ascii();
    if text.len() > LONGEST_EVENT {
        return Err("it is too long".into());
    }
    if text.is_empty() {
        return Ok(None);
    }
    match Spoken::parse(text) {
        Ok(spoken) => Ok(Some(spoken.into())),
        Err(EventRefused::NotAnObject(_)) => {
            Err(Ignored { why: "it is no JSON object", shown: Some(excerpt(text)) })
        }
        Err(EventRefused::TooDeep) => Err("its JSON is nested too deep".into()),
        Err(EventRefused::NoName) => Err("it has no event name".into()),
        Err(EventRefused::Reserved(name)) => {
            let shown = Some(excerpt(name.as_bytes()));
            Err(Ignored { why: "its event name is reserved", shown })
        }
        Err(EventRefused::WrongType { .. }) => Err("a member has the wrong type".into()),
    }
}
