//! Counts disconnects, and cleans up at once.
//!
//! `cargo run -p rejoin-rmcp --example metrics`: MCP at http://127.0.0.1:8282/mcp, the count at /metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::routing::get;
use rejoin_rmcp::core::record::Record;
use rejoin_rmcp::store::MemoryStore;
use rejoin_rmcp::{CleanedUp, Cleanup, DurableSessionManager};
use rmcp::ServerHandler;

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Clients that have gone.
    pub disconnected: AtomicU64,
    /// Sessions that ended with that.
    pub cleaned_up: AtomicU64,
}

impl Metrics {
    /// The hook. A client that came back in between keeps its session, and is not counted as cleaned up.
    pub async fn count(self: Arc<Self>, session: Record, cleanup: Cleanup) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
        match cleanup.run().await {
            Ok(CleanedUp::Ended) => {
                self.cleaned_up.fetch_add(1, Ordering::Relaxed);
            }
            Ok(CleanedUp::Stale) => {}
            Err(error) => tracing::error!(session = %session.id(), %error, "not cleaned up"),
        }
    }

    /// In the format of Prometheus.
    fn text(&self) -> String {
        let (disconnected, cleaned_up) = (&self.disconnected, &self.cleaned_up);
        format!(
            "sessions_disconnected_total {}\nsessions_cleaned_up_total {}\n",
            disconnected.load(Ordering::Relaxed),
            cleaned_up.load(Ordering::Relaxed)
        )
    }
}

/// A server without any tool; yours has some.
struct Server;

impl ServerHandler for Server {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Arc::new(Metrics::default());
    let counting = Arc::clone(&metrics);
    let manager = DurableSessionManager::builder(Arc::new(MemoryStore::default()))
        .on_session_disconnect(move |session, cleanup| {
            Arc::clone(&counting).count(session, cleanup)
        })
        .start()?;
    let service = rejoin_rmcp::service(|| Ok(Server), Arc::new(manager), Default::default());
    let shown = get(move || std::future::ready(metrics.text()));
    let router = axum::Router::new().route_service("/mcp", service).route("/metrics", shown);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8282").await?;
    axum::serve(listener, router).await?;
    Ok(())
}
