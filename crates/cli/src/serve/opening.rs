//! Opening the store that the settings name.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use rejoin::core::limits::LogBounds;
use rejoin::core::state::Recovery;
use rejoin::core::{Timestamp, lifetime::Lifetime};
use rejoin::store::embedded::{Damage, EmbeddedStore, OpenReport, Options};
use rejoin::store::{MemoryStore, Store};
use sha2::{Digest as _, Sha256};

use crate::settings::{Config, Settings, StoreChoice};

/// Memory for the bodies of events in the embedded store; what does not fit is read from the file.
const BODIES_IN_MEMORY: u64 = 256 * 1024 * 1024;

/// A store, and what to tell people about it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Where sessions are, in words.
    pub(crate) about: String,
    pub(crate) failure: StoreFailure,
}

/// How the server learns that its store does not work any more.
pub(crate) enum StoreFailure {
    /// It can't fail by itself.
    Never,
    Of(Arc<EmbeddedStore>),
}

impl StoreFailure {
    /// Waits until the store fails, and says why.
    pub(crate) async fn wait(&self) -> String {
        match self {
            Self::Never => std::future::pending().await,
            Self::Of(store) => store.failure().await.to_string(),
        }
    }
}

/// Opens the store; `lifetime` says how long what the last process left behind is kept.
pub(crate) fn open_store(config: &Config, lifetime: &Lifetime, now: Timestamp) -> Result<Opened> {
    let settings = &config.settings;
    let bounds = log_bounds(settings);
    match &settings.store {
        StoreChoice::Memory => Ok(Opened {
            store: Arc::new(
                MemoryStore::new(bounds, settings.audit_max)
                    .max_buffered_bytes(settings.max_buffered_bytes)
                    .max_bytes_per_principal(config.max_bytes_per_principal()),
            ),
            about: "memory: they are gone when the server stops".to_owned(),
            failure: StoreFailure::Never,
        }),
        StoreChoice::Postgres(_) => {
            bail!("store: postgres:// is not yet available; use \"embedded\" or \"memory\"")
        }
        StoreChoice::Embedded => {
            let keep_for = lifetime.disconnect_ttl.unwrap_or(lifetime.session_ttl);
            let longest = lifetime.session_ttl;
            let options = Options {
                directory: settings.data_dir.clone(),
                bounds,
                max_buffered_bytes: settings.max_buffered_bytes,
                max_bytes_per_principal: config.max_bytes_per_principal(),
                audit_max: settings.audit_max,
                memory_bytes: BODIES_IN_MEMORY,
                disk_reserve: settings.disk_reserve,
                notice_copies: true,
                accept_data_loss: settings.accept_data_loss,
                recovery: Recovery { now, keep_for: keep_for.min(longest), longest },
                random: Box::new(random_bytes()?),
            };
            let (store, report) =
                EmbeddedStore::open(options).map_err(|error| anyhow!("{error}"))?; // one sentence
            tell(&report);
            let about = format!(
                "{} ({} sessions, {} events)",
                settings.data_dir.display(),
                report.sessions,
                report.events
            );
            let store = Arc::new(store);
            let failure = StoreFailure::Of(Arc::clone(&store));
            Ok(Opened { store, about, failure })
        }
    }
}

/// What a session's out log may hold.
pub(crate) fn log_bounds(settings: &Settings) -> LogBounds {
    LogBounds {
        events: settings.buffer_size,
        bytes: usize::try_from(settings.buffer_bytes).unwrap_or(usize::MAX),
        retention: settings.buffer_retention,
        result_retention: settings.result_retention,
    }
}

/// Says what was found, above all if something is missing.
fn tell(report: &OpenReport) {
    let kept = || report.kept.as_ref().map(|path| path.display().to_string());
    if report.damage == [Damage::PutBack] {
        tracing::warn!(
            new_epochs = report.new_epochs,
            kept = kept(),
            "a backup was restored: sessions go on from it under a new epoch, and clients that have seen \
             more are told of the gap"
        );
        return tell_parked(report);
    }
    for damage in &report.damage {
        tracing::error!("{damage}");
    }
    if !report.damage.is_empty() {
        tracing::error!(
            new_epochs = report.new_epochs,
            kept = kept(),
            "the store was damaged: what is whole goes on under a new epoch, clients are told of \
             the gap, and the damaged files are kept"
        );
    }
    tell_parked(report);
}

fn tell_parked(report: &OpenReport) {
    if !report.parked.is_empty() {
        tracing::info!(sessions = report.parked.len(), "parked: their clients may come back");
    }
}

/// Random bytes without end, from a seed of the operating system.
fn random_bytes() -> Result<impl FnMut(&mut [u8]) + Send> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the operating system gives no random bytes")?;
    let mut counter = 0_u64;
    Ok(move |bytes: &mut [u8]| {
        for chunk in bytes.chunks_mut(32) {
            counter += 1;
            let block =
                Sha256::new().chain_update(seed).chain_update(counter.to_le_bytes()).finalize();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    })
}
