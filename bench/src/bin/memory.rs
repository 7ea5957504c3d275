//! What a parked session without events costs in memory.
//!
//! `cargo run --release -p rejoin-bench --bin memory`

use std::process::ExitCode;

use std::sync::Arc;

use anyhow::Result;

use rejoin_bench::report::{Report, Wanted};
use rejoin_bench::{allocations, world};

#[global_allocator]
static ALLOCATIONS: allocations::Counting = allocations::Counting;

const SESSIONS: u64 = 100_000;

fn main() -> Result<ExitCode> {
    let mut report = Report::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = world::directory()?;
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
    Ok(report.finish())
}
