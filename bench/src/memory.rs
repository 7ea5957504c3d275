//! What a parked session without events costs in memory.

use std::sync::Arc;

use anyhow::Result;

use crate::allocations;
use crate::report::{Report, Wanted};
use crate::world;

const SESSIONS: u64 = 100_000;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = tempfile::tempdir_in(".")?;
    let store = Arc::new(world::open(directory.path(), 1_000)?);
    let before = allocations::bytes();
    let shared = Arc::clone(&store);
    runtime.block_on(world::many(SESSIONS, 256, move |number| {
        let store = Arc::clone(&shared);
        async move { world::parked(&*store, number).await }
    }))?;
    let each = (allocations::bytes() - before) as f64 / SESSIONS as f64;
    let detail = format!("{SESSIONS} sessions, created, attached and left");
    report.figure("bytes for a parked session", each, Wanted::AtMost(1024.0), &detail);
    drop(store);

    let before = allocations::bytes();
    let store = world::open(directory.path(), 1_000)?;
    let each = (allocations::bytes() - before) as f64 / SESSIONS as f64;
    let detail = "the same sessions after opening the store again";
    report.figure("bytes for a parked session, reopened", each, Wanted::AtMost(1024.0), detail);
    drop(store);
    Ok(())
}
