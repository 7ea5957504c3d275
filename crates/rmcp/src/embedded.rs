//! Opening the store on SQLite, with what a server needs that has no wishes of its own.

use std::path::Path;
use std::sync::Arc;

use rejoin::Clock;
use rejoin::embed::open_store;
use rejoin_store::embedded::OpenError;

use crate::builder::Builder;

/// A manager whose sessions are kept in a directory, which is made if need be; they are there again when it is
/// opened the next time. What was lost, if the files were damaged, is logged, and told to clients.
///
/// Blocks while it reads what is there. To be called inside a tokio runtime.
pub fn open(directory: &Path) -> Result<Builder, OpenError> {
    let clock = Clock::start();
    Ok(Builder::new(Arc::new(open_store(directory, clock)?)).clock(clock))
}
