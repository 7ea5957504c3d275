//! Running the server: open the store, listen, say where, and stop in an orderly way.

mod health;
mod opening;
mod signals;

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use rejoin::core::lifetime::{Lifetime, OnDisconnect};
use rejoin::core::session::Settings as SessionSettings;
use rejoin::core::state::Takeover;
use rejoin::{Clock, ServerSettings, Sessions};
use tokio::net::TcpListener;

use self::health::Health;
use self::opening::{Opened, open_store};
use crate::settings::{self, Config, Settings};

/// Runs until it is told to stop, or the store fails.
pub(crate) fn run(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime can't be started")?;
    runtime.block_on(serve(&config.settings))
}

async fn serve(settings: &Settings) -> Result<()> {
    let mut stop = signals::Stop::listen()?;
    let clock = Clock::start();
    let server_settings = server_settings(settings);
    let lifetime = &server_settings.session.lifetime;
    let Opened { store, about, failure } = open_store(settings, lifetime, clock.now())?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let sessions = Sessions::builder(store)
        .settings(server_settings)
        .clock(clock)
        .start()
        .map_err(|unavailable| anyhow!(unavailable))?;
    sessions.resume_work().await?;

    let health = Arc::new(Health::ready());
    greet(&listener, &about)?;
    let server = tokio::spawn(health::serve(listener, Arc::clone(&health)));

    let outcome = tokio::select! {
        signal = stop.requested() => {
            tracing::info!(signal, "stopping: no new sessions, what is under way may finish");
            health.drain();
            tokio::select! {
                () = drain(&sessions, settings) => {}
                signal = stop.requested() => tracing::warn!(signal, "stopping at once"),
            }
            Ok(())
        }
        sentence = failure.wait() => Err(anyhow!("{sentence}")),
    };
    health.stop();
    server.await.context("the listener's task failed")??;
    if outcome.is_ok() {
        sessions.close().await?;
        tracing::info!("stopped; every session is kept");
    }
    outcome
}

/// Tells clients that the server will be back, and lets what is under way finish.
async fn drain(sessions: &Sessions, settings: &Settings) {
    sessions.drain().await;
    let finished = async {
        while sessions.live() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(settings.drain_timeout, finished).await.is_err() {
        tracing::warn!(
            live = sessions.live(),
            "some sessions were still at work; they go on later"
        );
    }
}

/// Says where it listens, where its data is and what to try next.
fn greet(listener: &TcpListener, about: &str) -> Result<()> {
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, store = about, version = env!("CARGO_PKG_VERSION"), "listening");
    crate::say(&format!(
        "rejoin {}\n  listening on  http://{address}\n  sessions in   {about}\n  \
         try           curl http://{address}/readyz\n  stop with     Ctrl-C; sessions are kept\n",
        env!("CARGO_PKG_VERSION"),
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
            max_waiting_bytes: usize::try_from(settings.buffer_bytes).unwrap_or(usize::MAX),
            lifetime: Lifetime {
                on_disconnect,
                disconnect_ttl: settings.disconnect_ttl,
                session_ttl: settings.session_ttl,
            },
            ..SessionSettings::default()
        },
        takeover: Takeover::Replace,
        state_ttl: settings.state_ttl,
    }
}
