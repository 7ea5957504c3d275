//! The real binary as a gateway before a real HTTP server that outlives it: many MCP sessions at once, sockets that
//! are cut in mid-call, a Rejoin that is killed and started again, clients that come and go. Every result reaches
//! its client once, nothing runs twice unasked, and when all have gone nothing of them is left.
//!
//! `REJOIN_CHAOS_SEED=… cargo nextest run -p rejoin-cli --test mcp_gateway` draws the same cuts again.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod caller;
#[path = "../common/mod.rs"]
mod common;
mod judge;
#[path = "../chaos/random.rs"]
mod random;
mod upstream;
mod wire;

mod killed_reconnect;
mod leaving_nothing;
mod remembering;
mod restarting;
mod servers_sessions;

use std::time::{SystemTime, UNIX_EPOCH};

use self::common::server_process::ServerProcess;
use self::upstream::Upstream;

/// Sessions at the same time.
const SESSIONS: u64 = 200;

/// Rejoin before a server, with these flags besides.
async fn gateway(upstream: &Upstream, flags: &[&str]) -> ServerProcess {
    let mut arguments = vec![format!("--mcp={}", upstream.url()), "--log-level=warn".to_owned()];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    ServerProcess::start(arguments, "", &[]).await
}

fn seed() -> u64 {
    let seed = match std::env::var("REJOIN_CHAOS_SEED") {
        Ok(seed) => seed.parse().expect("a seed is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64,
    };
    eprintln!("mcp_gateway: seed {seed}");
    seed
}
