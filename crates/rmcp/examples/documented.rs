//! The pieces of Rust that docs/rmcp.md shows, as code that compiles: `scripts/check-docs` compares the two.
//!
//! `cargo run -p rejoin-rmcp --example documented` serves the first of them.

#![allow(clippy::print_stdout, reason = "an example that says what it does")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin::Sessions;
use rejoin_rmcp::core::Principal;
use rejoin_rmcp::store::Store;
use rejoin_rmcp::{DurableEventStore, DurableSessionStore};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error>;

/// A server without any tool; yours has some.
struct MyServer;

impl MyServer {
    fn new() -> Self {
        Self
    }
}

impl ServerHandler for MyServer {}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let manager = rejoin_rmcp::open(Path::new("sessions"))?.start()?; // SQLite files in a directory
    let service =
        rejoin_rmcp::service(|| Ok(MyServer::new()), Arc::new(manager), Default::default());
    let router = axum::Router::new().route_service("/mcp", service);
    let listener = TcpListener::bind("127.0.0.1:8282").await?;
    axum::serve(listener, router).await?;
    Ok(())
}

/// A say in what becomes of a session.
pub fn with_a_hook(directory: &Path) -> Result<(), Failure> {
    let manager = rejoin_rmcp::open(directory)?
        .on_session_disconnect(|session, cleanup| async move {
            println!("{} has gone; it has five minutes to come back", session.id());
            let _ = cleanup.after(Duration::from_secs(300)).await;
        })
        .start()?;
    drop(manager);
    Ok(())
}

/// Who is calling, said by a layer before the service.
pub fn as_alice(request: &mut axum::extract::Request) {
    request.extensions_mut().insert(Principal::new("alice"));
}

/// rmcp's own manager, with stores that outlive the process.
pub fn only_the_stores(
    store: Arc<dyn Store>,
    config: &mut StreamableHttpServerConfig,
) -> Result<LocalSessionManager, Failure> {
    let sessions = Sessions::builder(store).start()?;
    let events = Arc::new(DurableEventStore::new(sessions.clone()));
    let manager = LocalSessionManager::default().with_event_store(events);
    config.session_store = Some(Arc::new(DurableSessionStore::new(sessions)));
    Ok(manager)
}
