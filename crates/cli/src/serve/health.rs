//! Liveness and readiness, for whoever watches the server.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
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

    /// Waits until the listener may close.
    pub(crate) async fn stopped(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
    }
}

/// The routes that say it.
pub(crate) fn routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .with_state(health)
}

async fn readiness(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    match *health.phase.borrow() {
        Phase::Ready => (StatusCode::OK, "ready\n"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        Phase::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped\n"),
    }
}
