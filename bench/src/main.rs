//! Measurements against a peer or a limit in the same run. Never part of the tests: machines are shared
//! and noisy, so each figure is the median of rounds in which both sides take turns.
//!
//! `cargo run --release -p rejoin-bench [append|replay|memory|open]`

mod allocations;
mod append;
mod memory;
mod open;
mod peer;
mod replay;
mod report;
mod world;

use std::process::ExitCode;

use anyhow::Result;

use self::report::Report;

#[global_allocator]
static ALLOCATIONS: allocations::Counting = allocations::Counting;

fn main() -> Result<ExitCode> {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut report = Report::default();
    if wanted("append") {
        append::measure(&mut report)?;
    }
    if wanted("replay") {
        replay::measure(&mut report)?;
    }
    if wanted("memory") {
        memory::measure(&mut report)?;
    }
    if wanted("open") {
        open::measure(&mut report)?;
    }
    Ok(report.finish())
}
