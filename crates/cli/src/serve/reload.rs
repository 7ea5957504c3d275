//! What can be replaced while the server runs: signing keys, the certificate, and the keys that callers are
//! known by. All are read again on SIGHUP; the signing keys' file is also looked at now and then, for those
//! who rotate and send no signal.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::access::Authenticator;
use crate::hardening;
use crate::keys::SharedKeys;
use crate::settings::Sources;
use crate::tls::Tls;

/// How often the keys' file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Keeps keys and certificate up to date.
pub(crate) struct Reload {
    hang_up: Signal,
    keys: SharedKeys,
    tls: Option<Tls>,
    access: Authenticator,
    sources: Sources,
}

impl Reload {
    /// Listens for SIGHUP from now on, also if there is nothing to read again: by default it would end
    /// the process.
    pub(crate) fn listen(
        keys: SharedKeys,
        tls: Option<Tls>,
        access: Authenticator,
        sources: Sources,
    ) -> Result<Self> {
        let hang_up = signal(SignalKind::hangup()).context("signals can't be listened for")?;
        Ok(Self { hang_up, keys, tls, access, sources })
    }

    /// Runs until its task is aborted.
    pub(crate) async fn run(mut self) {
        let mut timer = tokio::time::interval(LOOK_EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = self.hang_up.recv() => self.read_all(),
                _ = timer.tick() => self.keys.look(),
            }
        }
    }

    /// Whatever can't be read stays as it was.
    fn read_all(&self) {
        if let Err(error) = self.keys.reload() {
            tracing::error!("the signing keys stay as they were: {error:#}");
        }
        match self.tls.as_ref().map(Tls::reload) {
            Some(Ok(())) => tracing::info!("certificate read"),
            Some(Err(error)) => tracing::error!("the certificate stays as it was: {error:#}"),
            None => {}
        }
        self.read_access();
    }

    /// Callers whose key is gone are disconnected.
    fn read_access(&self) {
        let config = match self.sources.load() {
            Ok(config) => config,
            Err(problems) => {
                let problems = problems.to_string();
                return tracing::error!(problems, "the keys of callers stay as they were");
            }
        };
        rejoin::set_child_environment(hardening::children_see(&config));
        match self.access.reload(&config.access) {
            Ok(Some(read)) => tracing::info!(read, "keys of callers read"),
            Ok(None) => {}
            Err(error) => tracing::error!("keys of callers: {error:#}"),
        }
    }
}
