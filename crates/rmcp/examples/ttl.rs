//! A session whose client has gone has five minutes to come back.
//!
//! `cargo run -p rejoin-rmcp --example ttl`, then connect any MCP client to http://127.0.0.1:8282/mcp, kill it, and
//! look at the log.

use std::sync::Arc;
use std::time::Duration;

use rejoin_rmcp::core::record::Record;
use rejoin_rmcp::store::MemoryStore;
use rejoin_rmcp::{Cleanup, DurableSessionManager};
use rmcp::ServerHandler;

/// How long a client has.
pub const TTL: Duration = Duration::from_secs(300);

/// The hook. The deadline is stored: it holds across a restart, and costs no task.
pub async fn ttl(session: Record, cleanup: Cleanup) {
    tracing::info!(session = %session.id(), "disconnected; it has {TTL:?} to come back");
    if let Err(error) = cleanup.after(TTL).await {
        tracing::error!(%error, "the session keeps its longest ttl");
    }
}

/// A server without any tool; yours has some.
struct Server;

impl ServerHandler for Server {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryStore::default());
    let manager = DurableSessionManager::builder(store).on_session_disconnect(ttl).start()?;
    let service = rejoin_rmcp::service(|| Ok(Server), Arc::new(manager), Default::default());
    let router = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8282").await?;
    axum::serve(listener, router).await?;
    Ok(())
}
