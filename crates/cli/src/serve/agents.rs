//! The agent and the MCP server that the settings name.

use std::time::Duration;

use anyhow::{Result, anyhow};
use rejoin::Builder;
use rejoin::agents::{Command, Example, Http};
use rejoin::mcp::Gateway;

use crate::settings::{Config, Program, Settings};

/// Adds whoever does the work of agent sessions and of MCP sessions.
pub(crate) fn add(builder: Builder, config: &Config) -> Result<Builder> {
    add_gateway(add_agent(builder, config)?, config)
}

/// The MCP server behind `/mcp`: a child process, a server, or the built-in example.
fn add_gateway(builder: Builder, config: &Config) -> Result<Builder> {
    let settings = &config.settings;
    let gateway = match &settings.mcp {
        None => Gateway::built_in(),
        Some(Program::Command(line)) => Gateway::command(line),
        Some(Program::Http(url)) => {
            Gateway::http(url.as_str()).map_err(|error| anyhow!("mcp: {error}"))?
        }
    };
    let gateway = gateway
        .max_children(settings.max_children)
        .max_children_per_principal(config.max_children_per_principal())
        .max_bytes(usize::try_from(settings.max_mcp_bytes).unwrap_or(usize::MAX))
        .trust_annotations(settings.trust_annotations)
        .tell_restarts(settings.tell_restarts)
        .session_tools(settings.session_tools || settings.mcp.is_none());
    Ok(builder.mcp(gateway))
}

/// The agent: a child process, a backend, or the built-in example.
fn add_agent(builder: Builder, config: &Config) -> Result<Builder> {
    let settings = &config.settings;
    Ok(match &settings.agent {
        None => builder.agent(Example::default()),
        Some(Program::Command(line)) => {
            let command = Command::shell(line).max_children(settings.max_children);
            let share = config.max_children_per_principal();
            builder.agent(command.max_children_per_principal(share))
        }
        Some(Program::Http(url)) => {
            let agent = Http::new(url.as_str()).map_err(|error| anyhow!("agent: {error}"))?;
            let agent = agent.idle_timeout(settings.agent_idle_timeout);
            builder.agent(match &settings.agent_secret {
                Some(secret) => agent.secret(secret.expose()),
                None => agent,
            })
        }
    })
}

/// How long an agent without work is kept while a client is there: a child has a memory worth keeping, and
/// takes a place. Nothing for one that costs nothing: it goes with its client.
pub(crate) fn idle_ttl(settings: &Settings) -> Option<Duration> {
    match &settings.agent {
        Some(Program::Command(_)) => Some(settings.child_idle_ttl),
        Some(Program::Http(_)) | None => None,
    }
}

/// How long an agent without work is kept when its client has left.
pub(crate) fn detached_ttl(settings: &Settings) -> Duration {
    idle_ttl(settings).map(|ttl| ttl.min(settings.child_detached_ttl)).unwrap_or_default()
}

/// The same for what is behind `/mcp`. A server that is no child of ours takes no place here, and what it
/// remembers is given up with its session.
pub(crate) fn mcp_detached_ttl(settings: &Settings) -> Duration {
    match &settings.mcp {
        Some(Program::Command(_)) => settings.child_detached_ttl,
        Some(Program::Http(_)) | None => settings.child_idle_ttl,
    }
}

/// The agent, in words.
pub(crate) fn about_agent(settings: &Settings) -> String {
    about(settings.agent.as_ref(), "the built-in example")
}

/// What is behind `/mcp`, in words.
pub(crate) fn about_mcp(settings: &Settings) -> String {
    about(settings.mcp.as_ref(), "the built-in example tools")
}

fn about(program: Option<&Program>, built_in: &str) -> String {
    match program {
        None => built_in.to_owned(),
        Some(Program::Command(line)) => format!("{line}, one process a session"),
        Some(Program::Http(url)) => url.to_string(),
    }
}
