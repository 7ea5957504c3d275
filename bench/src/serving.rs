//! The server in this process, on a socket, as an embedder runs it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::serve::ListenerExt as _;
use rejoin::core::keys::{KeyRing, SecretKey};
use rejoin::service::{Service, ServiceSettings};
use rejoin::web::{self, WebSettings};
use rejoin::{Builder, Open};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Where a server listens, and its task.
#[derive(Debug)]
pub struct Serving {
    /// The address.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves these sessions to everybody on this machine.
pub async fn sessions(builder: Builder) -> Result<Serving> {
    let sessions = builder.start()?;
    let secret = SecretKey::new(b"a secret of thirty-two characters");
    let keys = Arc::new(KeyRing::new(secret.ok().context("it is long enough")?, vec![]));
    let settings = ServiceSettings::default();
    let service = Service::new(sessions, Arc::new(move || Arc::clone(&keys)), settings);
    let router = web::router(service, Arc::new(Open), WebSettings::default());
    routes(router, Sending::AtOnce).await
}

/// When what is written to a socket leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// At once (`TCP_NODELAY`), as the binary has it.
    AtOnce,
    /// When the last packet was acknowledged, or a packet is full (Nagle's algorithm), as the operating
    /// system has it unless it is told otherwise. A flush then flushes nothing.
    Together,
}

/// Serves these routes.
pub async fn routes(routes: Router, sending: Sending) -> Result<Serving> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(move |stream| {
        let _ = stream.set_nodelay(sending == Sending::AtOnce);
    });
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(async move {
        let _ = axum::serve(listener, service).await;
    });
    Ok(Serving { address, task })
}
