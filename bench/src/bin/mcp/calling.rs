//! Calls of one tool, and how long they take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

/// How long each call of a round took, sorted.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn of(mut each: Vec<Duration>) -> Self {
        each.sort();
        Self(each)
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that this share of the calls did not exceed.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share) as usize).copied().unwrap_or(Duration::MAX)
    }
}

/// Calls one after the other until the time is up. `call` says when its result had arrived; what it does
/// after that is not counted.
pub(crate) async fn one_by_one(
    time: Duration,
    mut call: impl AsyncFnMut() -> Result<Instant>,
) -> Result<Vec<Duration>> {
    let (started, mut latencies) = (Instant::now(), vec![]);
    while started.elapsed() < time {
        let asked = Instant::now();
        latencies.push(call().await? - asked);
    }
    Ok(latencies)
}

/// A request with an id of its own.
pub(crate) fn request(method: &str, params: Value) -> (u64, String) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    (id, request.to_string())
}

/// The first request of a session.
pub(crate) fn initialize() -> (u64, String) {
    let client = json!({ "name": "rejoin-bench", "version": "1.0.0" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    request("initialize", params)
}

/// What is said after it.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The call that is measured: a tool that does next to nothing.
pub(crate) fn tool_call() -> (u64, String) {
    request("tools/call", json!({ "name": "pid", "arguments": {} }))
}
