//! Agents that come with Rejoin: one in any language behind a command line, one behind a URL, and one
//! to try things out with.

mod command;
mod example;
mod http;

use std::sync::atomic::AtomicU64;

pub use command::{Command, MAX_CHILDREN};
pub use example::Example;
pub use http::Http;

/// What happened to agents, for a metrics layer to read.
#[derive(Debug, Default)]
pub struct AgentCounts {
    /// Agents that were started again after a death.
    pub restarts: AtomicU64,
    /// MCP servers behind the gateway that were started or introduced again to a session.
    pub upstream_restarts: AtomicU64,
    /// Times that the attempts to start one ended.
    pub given_up: AtomicU64,
    /// Lines of child agents that were ignored: no event, a reserved name, too long.
    pub ignored_lines: AtomicU64,
}
