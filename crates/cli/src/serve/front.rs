//! The web side of the server: every route it answers, and serving them until it stops.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use rejoin::WallClock;
use rejoin::service::{Service, ServiceSettings};
use rejoin::web::{
    self, AllowList, Allowed, McpSettings, MetricsFor, ModernSettings, Revisions, WebSettings,
};

use super::connections;
use super::health::{self, Health};
use super::opening::log_bounds;
use super::pages;
use crate::access::Authenticator;
use crate::listener::Listener;
use crate::settings::{Access, Config, MetricsAccess, ModernUpstream, Settings, StaleStatus};

/// How long a connection may take to finish its last answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// All routes.
pub(crate) fn routes(
    config: &Config,
    access: &Authenticator,
    service: Service,
    health: &Arc<Health>,
) -> Router {
    let settings = web_settings(config);
    let allowed = Allowed { navigation: true, ..settings.allowed.clone() };
    let health = health::routes(Arc::clone(health));
    let own = web::gate(health.merge(pages::routes()), allowed);
    let own = web::count_responses(own, service.sessions());
    web::router(service, access.shared(), settings).merge(own)
}

/// Answers on `listener` until the server stops.
pub(crate) async fn serve(listener: Listener, routes: Router, health: Arc<Health>) {
    let server = connections::serve(listener, routes, health.stopped());
    let too_long = async {
        health.stopped().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = server => {}
        () = too_long => {}
    }
}

/// What the service is to hold its callers to.
pub(crate) fn service_settings(settings: &Settings) -> ServiceSettings {
    ServiceSettings {
        max_state_bytes: bytes(settings.max_state_bytes),
        max_sessions: settings.max_sessions,
        max_sessions_per_principal: settings.max_sessions_per_principal,
        client_session_ids: settings.client_session_ids,
        bounds: log_bounds(settings),
    }
}

fn web_settings(config: &Config) -> WebSettings {
    let settings = &config.settings;
    WebSettings {
        allowed: Allowed {
            hosts: AllowList::of(settings.allowed_hosts.iter().map(String::as_str)),
            origins: AllowList::of(settings.allowed_origins.iter().map(String::as_str)),
            navigation: false,
        },
        open: config.access == Access::Open,
        max_frame_bytes: bytes(settings.max_frame_bytes),
        receiving_of_caller: config.receiving_of_caller(),
        receiving: config.receiving(),
        reconnect_backoff: settings.reconnect_backoff.clone(),
        max_reconnect_attempts: settings.max_reconnect_attempts,
        sse_keep_alive: settings.sse_keep_alive,
        metrics: metrics_for(settings),
        mcp: mcp_settings(config),
        wall_clock: WallClock::default(),
    }
}

/// Beyond loopback what goes on in a server is not for everybody.
fn metrics_for(settings: &Settings) -> MetricsFor {
    let beyond = !settings.listen.ip().to_canonical().is_loopback();
    match settings.metrics_access {
        Some(MetricsAccess::Open) => MetricsFor::Anybody,
        Some(MetricsAccess::Admin) => MetricsFor::Administrators,
        None if beyond => MetricsFor::Administrators,
        None => MetricsFor::Anybody,
    }
}

fn mcp_settings(config: &Config) -> McpSettings {
    let settings = &config.settings;
    McpSettings {
        retry: settings.sse_retry,
        max_bytes: bytes(settings.max_mcp_bytes),
        session_tools: settings.session_tools || settings.mcp.is_none(),
        adopt_unknown_sessions: settings.adopt_unknown_sessions,
        stale_session_status: match settings.stale_session_status {
            StaleStatus::Gone => StatusCode::GONE,
            StaleStatus::NotFound => StatusCode::NOT_FOUND,
        },
        // Where anybody may call from anywhere, no two requests belong together.
        knows_callers: !settings.insecure_no_auth,
        revisions: Revisions::only(settings.mcp_revisions.iter().map(String::as_str)),
        modern: modern_settings(settings),
    }
}

fn modern_settings(settings: &Settings) -> ModernSettings {
    ModernSettings {
        upstream: match settings.modern_upstream {
            ModernUpstream::PerPrincipal => web::ModernUpstream::PerPrincipal,
            ModernUpstream::PerRequest => web::ModernUpstream::PerRequest,
        },
        reissue_window: settings.reissue_window,
        task_after: settings.task_after,
        result_retention: settings.result_retention,
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
