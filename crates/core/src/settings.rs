//! What sessions are treated by: the settings that readers and the rules of a session's life look at.

use std::time::Duration;

use crate::lifetime::Lifetime;

/// The settings a session runs under.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often a client is sent a heartbeat.
    pub heartbeat_interval: Duration,
    /// A client that was not heard of for so long is cut off.
    pub heartbeat_timeout: Duration,
    /// So is one that let more than so many heartbeats pass.
    pub max_heartbeat_misses: u32,
    /// A client that sends nothing but pongs for so long is cut off; never if nothing is set.
    pub inactivity_timeout: Option<Duration>,
    /// How long a reconnect token is good; a client gets the next one after half of it.
    pub token_ttl: Duration,
    /// At most once in this time a changed state is sent to the client by itself.
    pub auto_export_interval: Duration,
    /// How many bytes may wait for the agent.
    pub max_waiting_bytes: usize,
    /// How long a session without a client is kept.
    pub lifetime: Lifetime,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(60),
            max_heartbeat_misses: 2,
            inactivity_timeout: None,
            token_ttl: Duration::from_secs(15 * 60),
            auto_export_interval: Duration::from_secs(60),
            max_waiting_bytes: 4 * 1024 * 1024,
            lifetime: Lifetime::default(),
        }
    }
}
