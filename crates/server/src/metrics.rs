//! What is counted and measured, for Prometheus. Names and labels are part of what people rely on; no
//! label ever holds an id, an address or a principal, and every label has few values.

mod process;
mod text;
mod tool_calls;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rejoin_core::codes::Reason;
use rejoin_core::record::Kind;
use rejoin_store::{Distribution, Measurements, StoreBytes};

pub(crate) use self::text::CONTENT_TYPE;
use self::text::MetricsText;
pub(crate) use self::tool_calls::{CallOutcome, ToolCalls};

use crate::access::CredentialFault;
use crate::agents::AgentCounts;
use crate::hook::Lifecycle;

/// How an attempt to come back ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    transport: &'static str,
    reason: &'static str,
}

/// Over what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Over {
    transport: &'static str,
}

/// A state of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

/// A step in a session's life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    change: &'static str,
}

/// Why a credential was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejection {
    reason: &'static str,
}

/// A response to a request over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Responded {
    route: &'static str,
    status: u16,
}

/// What a child process runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChildKind {
    kind: &'static str,
}

/// Seconds, from a blink to a day away.
pub(crate) const AWAY: [f64; 12] =
    [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0];

/// Events in one reconnect.
const EVENTS: [f64; 8] = [0.0, 1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 10_000.0];

/// Everything that is counted in one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    attempts: Family<Attempt, Counter>,
    successes: Family<Over, Counter>,
    /// Attempts over all transports, in the order of [`Reason::ALL`].
    outcomes: [AtomicU64; Reason::ALL.len()],
    /// Seconds from the last sign of a client to its return, by [`AWAY`].
    pub(crate) away: Distribution<12>,
    replayed: Histogram,
    lost: Histogram,
    /// Events replayed to clients that came back.
    pub(crate) replayed_events: Counter,
    /// Events that clients will never see.
    pub(crate) lost_events: Counter,
    sessions: Family<InState, Gauge>,
    changes: Family<Change, Counter>,
    rejections: Family<Rejection, Counter>,
    responses: Family<Responded, Counter>,
    children: Family<ChildKind, Gauge>,
    /// Calls of MCP tools.
    pub(crate) tool_calls: ToolCalls,
    /// Clients attached at this moment.
    pub(crate) attached: Gauge,
    /// WebSocket connections open at this moment, attached or not.
    pub(crate) connections: Gauge,
    /// Sessions with an agent at work, or something on its way to the store.
    pub(crate) working: Gauge,
    /// Sessions whose time ran out.
    pub(crate) expired: Counter,
    /// Messages that were there before.
    pub(crate) duplicates: Counter,
    /// Heartbeats that went by without a sign of life of the client.
    pub(crate) heartbeats_missed: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("rejoin"),
            attempts: Family::default(),
            successes: Family::default(),
            outcomes: [const { AtomicU64::new(0) }; Reason::ALL.len()],
            away: Distribution::default(),
            replayed: Histogram::new(EVENTS),
            lost: Histogram::new(EVENTS),
            replayed_events: Counter::default(),
            lost_events: Counter::default(),
            sessions: Family::default(),
            changes: Family::default(),
            rejections: Family::default(),
            responses: Family::default(),
            children: Family::default(),
            tool_calls: ToolCalls::default(),
            attached: Gauge::default(),
            connections: Gauge::default(),
            working: Gauge::default(),
            expired: Counter::default(),
            duplicates: Counter::default(),
            heartbeats_missed: Counter::default(),
        };
        metrics.register();
        // What has not happened yet is zero, not absent: a rate needs a value before the first one.
        for fault in CredentialFault::ALL {
            metrics.rejections.get_or_create(&Rejection { reason: fault.as_str() }).inc_by(0);
        }
        for kind in [Kind::Agent, Kind::Mcp] {
            metrics.children(kind);
        }
        metrics
    }

    /// All clones of a metric count together.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "reconnect_attempts",
            "Attempts to come back, by how they ended",
            self.attempts.clone(),
        );
        registry.register(
            "reconnect_successes",
            "Attempts to come back that worked",
            self.successes.clone(),
        );
        registry.register(
            "reconnect_replayed_events",
            "Events replayed in a reconnect",
            self.replayed.clone(),
        );
        registry.register(
            "reconnect_lost_events",
            "Events a client will never see, by reconnect",
            self.lost.clone(),
        );
        registry.register(
            "events_replayed",
            "Events replayed to clients that came back",
            self.replayed_events.clone(),
        );
        registry.register(
            "events_lost",
            "Events that clients will never see",
            self.lost_events.clone(),
        );
        registry.register("sessions", "Sessions that go on, by state", self.sessions.clone());
        registry.register(
            "session_changes",
            "Steps in the lives of sessions: made, attached, parked, ended",
            self.changes.clone(),
        );
        registry.register(
            "credentials_rejected",
            "Credentials that were rejected, by why",
            self.rejections.clone(),
        );
        registry.register(
            "http_requests",
            "Requests over HTTP that were answered, by kind of route and status",
            self.responses.clone(),
        );
        registry.register("children", "Child processes that run", self.children.clone());
        registry.register("connections", "WebSocket connections", self.connections.clone());
        registry.register("sessions_working", "Sessions with work under way", self.working.clone());
        registry.register("sessions_expired", "Sessions whose time ran out", self.expired.clone());
        registry.register(
            "duplicate_messages",
            "Messages that had been entered before",
            self.duplicates.clone(),
        );
        registry.register(
            "heartbeats_missed",
            "Heartbeats without a sign of life of the client before the next one",
            self.heartbeats_missed.clone(),
        );
    }

    /// An attempt to come back has ended.
    pub(crate) fn attempted(&self, transport: &'static str, reason: Reason) {
        self.attempts.get_or_create(&Attempt { transport, reason: reason.as_str() }).inc();
        self.outcomes[reason as usize].fetch_add(1, Ordering::Relaxed);
        if reason == Reason::Reconnected {
            self.successes.get_or_create(&Over { transport }).inc();
        }
    }

    /// A credential was rejected.
    pub(crate) fn credential_rejected(&self, fault: CredentialFault) {
        self.rejections.get_or_create(&Rejection { reason: fault.as_str() }).inc();
    }

    /// A request to a kind of route got a response with this status.
    pub(crate) fn responded(&self, route: &'static str, status: u16) {
        self.responses.get_or_create(&Responded { route, status }).inc();
    }

    /// Child processes that run for sessions of a kind.
    pub(crate) fn children(&self, of: Kind) -> Gauge {
        let kind = match of {
            Kind::Agent => "agent",
            Kind::Mcp => "mcp",
        };
        self.children.get_or_create(&ChildKind { kind }).clone()
    }

    /// A session has taken a step in its life.
    pub(crate) fn changed(&self, what: Lifecycle) {
        self.count_change(what.as_str());
    }

    /// A session's last client has gone.
    pub(crate) fn parked(&self) {
        self.count_change("parked");
    }

    fn count_change(&self, change: &'static str) {
        self.changes.get_or_create(&Change { change }).inc();
    }

    /// How attempts to come back ended so far, over whatever transport.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (Reason, u64)> {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        Reason::ALL.iter().copied().zip(counts)
    }

    /// A client is back after a while, and is replayed so much.
    pub(crate) fn returned(&self, away: Option<Duration>, replayed: u64, lost: u64) {
        self.returned_to_reader(away, replayed, lost);
        self.lost_events.inc_by(lost);
    }

    /// The same, if a driver tells the client what is lost, and counts that.
    pub(crate) fn returned_to_reader(&self, away: Option<Duration>, replayed: u64, lost: u64) {
        if let Some(away) = away {
            self.away.note(&AWAY, away.as_secs_f64());
        }
        self.replayed.observe(replayed as f64);
        self.lost.observe(lost as f64);
        self.replayed_events.inc_by(replayed);
    }

    /// Everything in the format of Prometheus; `active` sessions go on at this moment.
    pub(crate) fn encode(
        &self,
        active: usize,
        agents: &AgentCounts,
        store: Option<&Measurements>,
        bytes: StoreBytes,
    ) -> String {
        let attached = self.attached.get();
        let parked = i64::try_from(active).unwrap_or(i64::MAX).saturating_sub(attached).max(0);
        self.sessions.get_or_create(&InState { state: "attached" }).set(attached);
        self.sessions.get_or_create(&InState { state: "parked" }).set(parked);
        let mut text = MetricsText::default();
        let (name, version) = ("rejoin_build_info", env!("CARGO_PKG_VERSION"));
        text.describe(name, "gauge", "The version that runs; its value is 1");
        text.sample(name, &[("version", version)], 1);
        process::describe(&mut text);
        text.registry(&self.registry);
        let help = "From the last sign of a client to its return";
        text.histogram("rejoin_reconnect_away_seconds", help, &AWAY, &self.away);
        self.tool_calls.describe(&mut text);
        describe_agents(&mut text, agents);
        if let Some(store) = store {
            describe_store(&mut text, store);
        }
        let name = "rejoin_store_bytes";
        text.describe(name, "gauge", "Bytes that the store takes, by where");
        let StoreBytes { database, wal, memory } = bytes;
        for (place, bytes) in [("database", database), ("wal", wal), ("memory", memory)] {
            text.sample(name, &[("place", place)], bytes);
        }
        text.finish()
    }
}

fn describe_agents(text: &mut MetricsText, agents: &AgentCounts) {
    for (name, help, count) in [
        ("rejoin_agent_restarts_total", "Agents started again after they died", &agents.restarts),
        (
            "rejoin_upstream_restarts_total",
            "MCP servers started again for a session",
            &agents.upstream_restarts,
        ),
        ("rejoin_agents_given_up_total", "Agents that died too often", &agents.given_up),
        (
            "rejoin_agent_lines_ignored_total",
            "Lines of agents that were no event",
            &agents.ignored_lines,
        ),
        (
            "rejoin_agent_bad_responses_total",
            "Responses of HTTP agents with a body that brings no events",
            &agents.bad_responses,
        ),
    ] {
        text.counter(name, help, count.load(Ordering::Relaxed));
    }
}

fn describe_store(text: &mut MetricsText, store: &Measurements) {
    let overflowed = store.overflowed_events.load(Ordering::Relaxed);
    let help = "Events dropped over a bound before they were acked";
    text.counter("rejoin_buffer_overflow_events_total", help, overflowed);
    let shed = store.shed_events.load(Ordering::Relaxed);
    let help = "Events dropped because all sessions held more than max_buffered_bytes";
    text.counter("rejoin_buffer_shed_events_total", help, shed);
    let buffered = store.buffered_bytes.load(Ordering::Relaxed);
    text.gauge("rejoin_buffered_bytes", "Bytes of events that all sessions hold", buffered);
    let (help, seconds) = ("How long commits took", store.seconds());
    text.histogram("rejoin_store_commit_seconds", help, seconds, &store.commit_seconds);
    let (help, requests) = ("Requests in a commit", store.requests());
    text.histogram("rejoin_store_commit_requests", help, requests, &store.commit_requests);
}

/// Is counted in a gauge while it says so, and no longer than it lives.
#[derive(Debug)]
pub(crate) struct Counted {
    gauge: Gauge,
    counted: bool,
}

impl Counted {
    pub(crate) fn by(gauge: &Gauge) -> Self {
        Self { gauge: gauge.clone(), counted: false }
    }

    pub(crate) fn set(&mut self, counts: bool) {
        match (self.counted, counts) {
            (false, true) => self.gauge.inc(),
            (true, false) => self.gauge.dec(),
            (false, false) | (true, true) => return,
        };
        self.counted = counts;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_in_the_text() {
        let metrics = Metrics::new();
        metrics.attempted("websocket", Reason::Reconnected);
        metrics.attempted("http", Reason::TokenExpired);
        metrics.returned(Some(Duration::from_secs(3)), 12, 1);
        metrics.attached.set(2);
        metrics.changed(Lifecycle::Created);
        metrics.parked();
        metrics.credential_rejected(CredentialFault::Expired);
        let store = Measurements::default();
        store.committed(Duration::from_millis(3), 7);
        metrics.responded("api", 404);
        metrics.children(Kind::Mcp).inc();
        metrics.tool_calls.ended("add", CallOutcome::Success);
        let bytes = StoreBytes { database: 1, wal: 2, memory: 3 };
        let text = metrics.encode(5, &AgentCounts::default(), Some(&store), bytes);
        for line in [
            r#"rejoin_reconnect_attempts_total{transport="websocket",reason="reconnected"} 1"#,
            r#"rejoin_reconnect_attempts_total{transport="http",reason="token_expired"} 1"#,
            r#"rejoin_reconnect_successes_total{transport="websocket"} 1"#,
            "rejoin_reconnect_away_seconds_count 1",
            "rejoin_reconnect_replayed_events_sum 12.0",
            r#"rejoin_reconnect_away_seconds_bucket{le="5"} 1"#,
            "rejoin_events_replayed_total 12",
            "rejoin_events_lost_total 1",
            r#"rejoin_session_changes_total{change="created"} 1"#,
            r#"rejoin_session_changes_total{change="parked"} 1"#,
            r#"rejoin_credentials_rejected_total{reason="expired"} 1"#,
            r#"rejoin_store_commit_seconds_bucket{le="0.002"} 0"#,
            r#"rejoin_store_commit_seconds_bucket{le="0.005"} 1"#,
            "rejoin_store_commit_requests_count 1",
            "rejoin_agent_restarts_total 0",
            concat!("rejoin_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            r#"rejoin_credentials_rejected_total{reason="audience"} 0"#,
            r#"rejoin_http_requests_total{route="api",status="404"} 1"#,
            r#"rejoin_children{kind="mcp"} 1"#,
            r#"rejoin_children{kind="agent"} 0"#,
            r#"rejoin_mcp_tool_calls_total{tool="add",outcome="success"} 1"#,
            r#"rejoin_store_bytes{place="wal"} 2"#,
            r#"rejoin_store_bytes{place="memory"} 3"#,
            "# TYPE rejoin_events_lost_total counter",
            r#"rejoin_sessions{state="attached"} 2"#,
            r#"rejoin_sessions{state="parked"} 3"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
    }
}
