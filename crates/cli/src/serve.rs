//! Running the server: open the store, listen, say where, and stop in an orderly way.

mod agents;
pub(crate) mod connections;
mod front;
mod health;
mod opening;
mod pages;
mod reload;
mod signals;
mod supervisor;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rejoin::core::lifetime::{Lifetime, OnDisconnect};
use rejoin::core::settings::Settings as SessionSettings;
use rejoin::core::state::Takeover;
use rejoin::service::Service;
use rejoin::{Clock, ServerSettings, Sessions, WebHook};

use self::health::Health;
use self::opening::{Opened, open_store};
use self::reload::Reload;
use self::supervisor::Supervisor;
use crate::access::Authenticator;
use crate::admission::ConnectionBounds;
use crate::listener::Listener;
use crate::settings::{self, Config, Secret, Settings, Sources, StoreChoice};
use crate::{hazards, keys, tls};

/// Runs until it is told to stop, or the store fails.
pub(crate) fn run(config: &Config, sources: Sources) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime.worker_threads(workers());
    }
    let runtime = runtime.enable_all().build().context("the runtime can't be started")?;
    runtime.block_on(serve(config, sources))
}

/// A processor is left to the thread that writes: every answer waits for it, and it must not wait for one.
fn workers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    processors.saturating_sub(1).max(1)
}

async fn serve(config: &Config, sources: Sources) -> Result<()> {
    let settings = &config.settings;
    let mut stop = signals::Stop::listen()?;
    let supervisor = Supervisor::named_in(sources.environment());
    let clock = Clock::start();
    let tls = tls::open(settings)?;
    let server_settings = server_settings(settings);
    let lifetime = &server_settings.session.lifetime;
    hazards::check_data_dir(settings)?;
    let Opened { store, about, failure } = open_store(config, lifetime, clock.now())?;
    let keys = keys::open(config)?;
    tracing::debug!(signs = keys.current().newest().id(), "signing keys");
    let acceptor = tls.as_ref().map(tls::Tls::acceptor).transpose()?;
    let bounds = ConnectionBounds::of(settings, rejoin::raise_file_limit());
    let listener = Listener::bind(settings.listen, acceptor, settings.heartbeat_timeout, bounds)
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let mut builder = agents::add(Sessions::builder(store), config)?;
    if settings.store == StoreChoice::Embedded {
        builder = builder.history(&settings.data_dir);
    }
    if let Some(url) = &settings.hook_url {
        let secret = settings.hook_secret.as_ref().map(Secret::expose);
        let hook = WebHook::start(url.as_str(), secret, clock);
        builder = builder.hook(hook.map_err(|error| anyhow!("hook_url: {error}"))?);
    }
    let sessions = builder
        .settings(server_settings)
        .clock(clock)
        .start()
        .map_err(|unavailable| anyhow!(unavailable))?;
    let health = Arc::new(Health::ready());
    let current = keys.clone();
    let service_settings = front::service_settings(settings);
    let service = Service::new(sessions, Arc::new(move || current.current()), service_settings);
    let resumed = service.sessions().resume_work().await?; // not before it is served
    if resumed > 0 {
        tracing::info!(sessions = resumed, "work that was under way goes on");
    }
    let access = Authenticator::open(&config.access)?;
    let routes = front::routes(config, &access, service.clone(), &health);
    // Before it is said that the server runs: SIGHUP would end it.
    let reload = tokio::spawn(Reload::listen(keys, tls, access, sources)?.run());
    greet(&listener, &about, settings)?;
    let server = tokio::spawn(front::serve(listener, routes, Arc::clone(&health)));
    supervisor.ready();
    let alive = tokio::spawn(supervisor.clone().keep_alive());

    let outcome = tokio::select! {
        signal = stop.requested() => {
            supervisor.stopping(settings.drain_timeout);
            tracing::info!(signal, "stopping: no new sessions, what is under way may finish");
            health.drain();
            tokio::select! {
                finished = service.drain(settings.drain_timeout) => {
                    if !finished {
                        tracing::warn!("some sessions were still at work; they go on later");
                    }
                }
                signal = stop.requested() => tracing::warn!(signal, "stopping at once"),
            }
            Ok(())
        }
        sentence = failure.wait() => Err(anyhow!("{sentence}")),
    };
    reload.abort();
    let closed = service.close().await;
    health.stop();
    server.await.context("the listener's task failed")?;
    alive.abort();
    outcome?;
    closed?;
    tracing::info!("stopped; every session is kept");
    Ok(())
}

/// Says where it listens, where its data is and what to try next.
fn greet(listener: &Listener, about: &str, settings: &Settings) -> Result<()> {
    let address = listener.local_addr().context("the listener has no address")?;
    let (scheme, version) = (listener.scheme(), env!("CARGO_PKG_VERSION"));
    let (agent, mcp) = (agents::about_agent(settings), agents::about_mcp(settings));
    tracing::info!(%address, store = about, agent, mcp, version, "listening");
    crate::say(&format!(
        "rejoin {version}\n  listening on  {scheme}://{address}\n  sessions in   {about}\n  \
         agent         {agent}\n  \
         mcp           {mcp}\n  \
         try           {scheme}://{address}/play in a browser\n                \
         rejoin demo\n                \
         curl -X POST {scheme}://{address}/api/sessions\n                \
         {scheme}://{address}/mcp as a Streamable HTTP server of any MCP client\n  \
         stop with     Ctrl-C; sessions are kept\n",
    ));
    Ok(())
}

fn server_settings(settings: &Settings) -> ServerSettings {
    let on_disconnect = match settings.on_disconnect {
        settings::OnDisconnect::Immediate => OnDisconnect::Immediate,
        settings::OnDisconnect::Ttl => OnDisconnect::Ttl,
        settings::OnDisconnect::WhilePending => OnDisconnect::WhilePending,
    };
    ServerSettings {
        session: SessionSettings {
            heartbeat_interval: settings.heartbeat_interval,
            heartbeat_timeout: settings.heartbeat_timeout,
            max_heartbeat_misses: settings.max_heartbeat_misses,
            token_ttl: settings.token_ttl,
            inactivity_timeout: settings.inactivity_timeout,
            auto_export_interval: settings.auto_export_interval,
            max_waiting_bytes: usize::try_from(settings.buffer_bytes).unwrap_or(usize::MAX),
            lifetime: Lifetime {
                on_disconnect,
                disconnect_ttl: settings.disconnect_ttl,
                session_ttl: settings.session_ttl,
            },
        },
        takeover: match settings.takeover {
            settings::Takeover::Replace => Takeover::Replace,
            settings::Takeover::Reject => Takeover::Reject,
        },
        state_ttl: settings.state_ttl,
        agent_idle_ttl: agents::detached_ttl(settings),
        attended_idle_ttl: agents::idle_ttl(settings),
        mcp_idle_ttl: settings.child_idle_ttl,
        mcp_detached_ttl: agents::mcp_detached_ttl(settings),
    }
}
