//! Liveness and readiness, for whoever watches the server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Draining,
    Stopped,
}

/// Tells whoever asks whether the server lives and takes work.
pub(crate) struct Health {
    phase: watch::Sender<Phase>,
}

/// How long a connection may take to finish its last answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Health {
    pub(crate) fn ready() -> Self {
        Self { phase: watch::Sender::new(Phase::Ready) }
    }

    /// It finishes what is under way and takes nothing new.
    pub(crate) fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// The listener may close.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Stopped);
    }

    async fn stopped(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
    }
}

/// Answers on `listener` until the server stops.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>) -> Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .with_state(Arc::clone(&health));
    let stopping = Arc::clone(&health);
    let server = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stopping.stopped().await })
        .into_future();
    let too_long = async {
        health.stopped().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        served = server => served.context("the listener failed"),
        () = too_long => Ok(()),
    }
}

async fn readiness(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    match *health.phase.borrow() {
        Phase::Ready => (StatusCode::OK, "ready\n"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        Phase::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped\n"),
    }
}
