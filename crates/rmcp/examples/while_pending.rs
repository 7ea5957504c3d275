//! A session is kept as long as jobs of it are pending; without any it is cleaned up at once.
//!
//! `cargo run -p rejoin-rmcp --example while_pending`: MCP at http://127.0.0.1:8282/mcp. The tool `compose` begins a
//! job that goes on after its answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rejoin_rmcp::core::record::Record;
use rejoin_rmcp::store::MemoryStore;
use rejoin_rmcp::{Cleanup, DurableSessionManager};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::Extension;
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use tokio::sync::watch;

/// How many jobs of each session are pending.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<watch::Sender<HashMap<String, usize>>>);

/// A job that is pending until this is dropped.
#[derive(Debug)]
pub struct Job {
    jobs: Jobs,
    session: String,
}

impl Jobs {
    /// Begins a job of a session.
    pub fn begin(&self, session: &str) -> Job {
        self.0.send_modify(|jobs| *jobs.entry(session.to_owned()).or_default() += 1);
        Job { jobs: self.clone(), session: session.to_owned() }
    }

    /// Waits until a session has none.
    pub async fn none_of(&self, session: &str) {
        let none = |jobs: &HashMap<String, usize>| !jobs.contains_key(session);
        let _ = self.0.subscribe().wait_for(none).await; // the sender is in our hand
    }

    /// The hook. If the client comes back meanwhile, nothing happens.
    pub async fn keep_while_pending(self, session: Record, cleanup: Cleanup) {
        match cleanup.when(self.none_of(session.id().as_str())).await {
            Ok(outcome) => tracing::info!(session = %session.id(), ?outcome, "no job is pending"),
            Err(error) => tracing::error!(session = %session.id(), %error, "not cleaned up"),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.jobs.0.send_modify(|jobs| {
            let left = jobs.get_mut(&self.session);
            if left.is_some_and(|left| {
                *left -= 1;
                *left == 0
            }) {
                jobs.remove(&self.session);
            }
        });
    }
}

/// A server whose tool leaves work behind.
struct Server {
    tool_router: ToolRouter<Self>,
    jobs: Jobs,
}

#[tool_router]
impl Server {
    #[tool(description = "Begins to compose, for a minute")]
    async fn compose(&self, Extension(call): Extension<http::request::Parts>) -> String {
        let session = call.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let job = self.jobs.begin(session.unwrap_or_default());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(job);
        });
        "it will be ready in a minute".to_owned()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Server {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let jobs = Jobs::default();
    let asked = jobs.clone();
    let manager = DurableSessionManager::builder(Arc::new(MemoryStore::default()))
        .on_session_disconnect(move |session, cleanup| {
            asked.clone().keep_while_pending(session, cleanup)
        })
        .start()?;
    let factory = move || Ok(Server { tool_router: Server::tool_router(), jobs: jobs.clone() });
    let service = rejoin_rmcp::service(factory, Arc::new(manager), Default::default());
    let router = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8282").await?;
    axum::serve(listener, router).await?;
    Ok(())
}
