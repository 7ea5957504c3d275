//! The server under test, as a process that can be killed: this test's own executable, asked to serve.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use rejoin_rmcp::DurableSessionManager;
use rejoin_rmcp::core::limits::LogBounds;
use rejoin_rmcp::store::MemoryStore;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, RequestMetaObject, ServerCapabilities, ServerConfig};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// Where a process that is to serve finds how.
pub(crate) const SETTINGS: &str = "REJOIN_RMCP_TEST_SERVER";

/// Who keeps the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manager {
    Rejoin,
    Rmcp,
}

/// How to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) manager: Manager,
    pub(crate) address: SocketAddr,
    /// Where sessions are kept; in memory if nowhere.
    pub(crate) data: Option<PathBuf>,
    /// Where is written what really ran.
    pub(crate) runs: PathBuf,
    /// After how much silence a handler is let go.
    pub(crate) idle: Option<Duration>,
    /// How many bytes a session in memory keeps.
    pub(crate) log_bytes: Option<usize>,
}

/// No test, but the server that the tests start.
#[tokio::test]
#[ignore = "serves until it is killed"]
async fn serve_when_asked() {
    let settings = std::env::var(SETTINGS).expect("only the tests ask for a server");
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let listener = tokio::net::TcpListener::bind(settings.address).await.unwrap();
    axum::serve(listener, router(&settings)).await.unwrap();
}

fn router(settings: &Settings) -> Router {
    let runs = settings.runs.clone();
    let counted = Arc::new(AtomicU64::new(0));
    let factory = move || Ok(Tools::new(runs.clone(), Arc::clone(&counted)));
    let config = StreamableHttpServerConfig::default();
    match settings.manager {
        Manager::Rejoin => {
            let manager = Arc::new(durable(settings));
            Router::new().route_service("/mcp", rejoin_rmcp::service(factory, manager, config))
        }
        Manager::Rmcp => {
            let mut manager = LocalSessionManager::default();
            manager.session_config.keep_alive = settings.idle.or(manager.session_config.keep_alive);
            let service = StreamableHttpService::new(factory, Arc::new(manager), config);
            Router::new().route_service("/mcp", service)
        }
    }
}

fn durable(settings: &Settings) -> DurableSessionManager {
    let mut bounds = LogBounds::default();
    bounds.bytes = settings.log_bytes.unwrap_or(bounds.bytes);
    let builder = match &settings.data {
        Some(directory) => rejoin_rmcp::open(directory).unwrap(),
        None => DurableSessionManager::builder(Arc::new(MemoryStore::new(bounds, 100))),
    };
    let builder = match settings.idle {
        Some(idle) => builder.handler_idle_ttl(Some(idle)),
        None => builder,
    };
    builder.start().unwrap()
}

/// Tools that say in a file when they began and ended.
struct Tools {
    tool_router: ToolRouter<Self>,
    runs: PathBuf,
    counted: Arc<AtomicU64>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Work {
    key: String,
    #[serde(default)]
    ms: u64,
    /// Steps of progress.
    #[serde(default)]
    n: u32,
    /// How large the result is.
    #[serde(default)]
    bytes: usize,
}

#[tool_router]
impl Tools {
    fn new(runs: PathBuf, counted: Arc<AtomicU64>) -> Self {
        Self { tool_router: Self::tool_router(), runs, counted }
    }

    #[tool(description = "Takes its time, and may not be repeated")]
    async fn slow(&self, Parameters(work): Parameters<Work>) -> String {
        self.note("start slow", &work.key);
        sleep(Duration::from_millis(work.ms)).await;
        self.note("end slow", &work.key);
        format!("slept {} ms for {}{}", work.ms, work.key, "x".repeat(work.bytes))
    }

    #[tool(description = "Takes its time, and only reads", annotations(read_only_hint = true))]
    async fn slow_readonly(&self, Parameters(work): Parameters<Work>) -> String {
        self.note("start slow_readonly", &work.key);
        sleep(Duration::from_millis(work.ms)).await;
        self.note("end slow_readonly", &work.key);
        format!("slept {} ms for {}", work.ms, work.key)
    }

    #[tool(description = "Reports each step")]
    async fn progress(
        &self,
        Parameters(work): Parameters<Work>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> String {
        self.note("start progress", &work.key);
        for step in 1..=work.n {
            sleep(Duration::from_millis(work.ms)).await;
            report(&meta, &client, step).await;
        }
        self.note("end progress", &work.key);
        format!("{} steps", work.n)
    }

    #[tool(description = "Reports a step, waits, reports all others at once, and works on")]
    async fn burst(
        &self,
        Parameters(work): Parameters<Work>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> String {
        self.note("start burst", &work.key);
        report(&meta, &client, 1).await;
        sleep(Duration::from_millis(1_500)).await;
        for step in 2..=work.n {
            report(&meta, &client, step).await;
        }
        self.note("end burst", &work.key);
        sleep(Duration::from_millis(work.ms)).await;
        format!("{} steps", work.n)
    }

    #[tool(description = "How often it was called in this process")]
    async fn counter(&self) -> String {
        (self.counted.fetch_add(1, Ordering::SeqCst) + 1).to_string()
    }

    fn note(&self, what: &str, key: &str) {
        let mut runs = OpenOptions::new().create(true).append(true).open(&self.runs).unwrap();
        writeln!(runs, "{what} {key}").unwrap();
    }
}

async fn report(meta: &RequestMetaObject, client: &Peer<RoleServer>, step: u32) {
    if let Some(token) = meta.get_progress_token() {
        let report = ProgressNotificationParam::new(token, f64::from(step));
        let _ = client.notify_progress(report).await;
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
