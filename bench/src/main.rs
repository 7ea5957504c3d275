//! Measurements against a peer or a limit in the same run. Never part of the tests: machines are shared
//! and noisy, so each figure is the median of rounds in which both sides take turns.
//!
//! `cargo run --release -p rejoin-bench --bin rejoin-bench [append [producers]|replay|open|push]`; what
//! sessions and connections cost in memory is measured by other binaries, `memory` and `connections`.

mod append;
mod open;
mod peer;
mod push;
mod replay;

use std::process::ExitCode;

use anyhow::Result;

use rejoin_bench::report::Report;

/// The allocator that the binary has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<ExitCode> {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut report = Report::default();
    if wanted("append") {
        let producers = std::env::args().nth(2).map(|number| number.parse()).transpose()?;
        append::measure(&mut report, producers)?;
    }
    if wanted("replay") {
        replay::measure(&mut report)?;
    }
    if wanted("open") {
        open::measure(&mut report)?;
    }
    if wanted("push") {
        push::measure(&mut report)?;
    }
    Ok(report.finish())
}
