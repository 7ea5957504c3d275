//! Opening the store on SQLite, with what a server needs that has no wishes of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin::Clock;
use rejoin::core::limits::LogBounds;
use rejoin::core::state::Recovery;
use rejoin_store::embedded::{EmbeddedStore, OpenError, Options};

use crate::builder::Builder;

/// Events of all sessions together.
const MAX_BUFFERED_BYTES: u64 = 1024 * 1024 * 1024;

/// How much of them is in memory.
const MEMORY_BYTES: u64 = 256 * 1024 * 1024;

/// Free bytes of the disk below which nothing new is taken.
const DISK_RESERVE: u64 = 64 * 1024 * 1024;

/// Audit records; nothing here writes any.
const AUDIT_MAX: usize = 10_000;

/// How long what the last process left behind is kept, as long as sessions are by default.
const KEEP_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A manager whose sessions are kept in a directory, which is made if need be; they are there again when it is
/// opened the next time. What was lost, if the files were damaged, is logged, and told to clients.
///
/// Blocks while it reads what is there. To be called inside a tokio runtime.
pub fn open(directory: &Path) -> Result<Builder, OpenError> {
    let clock = Clock::start();
    let options = Options {
        directory: directory.to_owned(),
        bounds: LogBounds::default(),
        max_buffered_bytes: MAX_BUFFERED_BYTES,
        max_bytes_per_principal: MAX_BUFFERED_BYTES,
        audit_max: AUDIT_MAX,
        memory_bytes: MEMORY_BYTES,
        disk_reserve: DISK_RESERVE,
        recovery: Recovery { now: clock.now(), keep_for: KEEP_FOR, longest: KEEP_FOR },
        random: Box::new(fill),
    };
    let (store, report) = EmbeddedStore::open(options)?;
    for damage in &report.damage {
        tracing::error!("{damage}");
    }
    Ok(Builder::new(Arc::new(store)).clock(clock))
}

/// A new epoch's name. Without randomness it is not random, but still another one than before.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = nanos.unwrap_or_default().as_nanos().to_le_bytes();
        bytes.iter_mut().zip(nanos).for_each(|(byte, now)| *byte = now);
    }
}
