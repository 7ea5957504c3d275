//! The use case that rejoin-rmcp was asked for: five agents make music together over MCP, with jobs that take up to
//! a minute, while connections break and the server is redeployed. See README.md.
//!
//! ```text
//! ensemble [--short] [--seed N] [--svg FILE]      plays, checks, and draws what happened
//! ensemble serve ADDRESS DIRECTORY [--short]      the server alone, for any MCP client
//! ```
#![allow(clippy::print_stdout, reason = "it speaks to people")]

mod musician;
mod network;
mod pace;
mod random;
mod server;
mod stage;
mod studio;
mod timeline;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::pace::{FULL, SHORT};

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| "off".into()); // set RUST_LOG to see what breaks
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let short = take(&mut arguments, "--short");
    let pace = if short { SHORT } else { FULL };
    if arguments.first().is_some_and(|first| first == "serve") {
        let [_, address, data] = &arguments[..] else {
            anyhow::bail!("ensemble serve ADDRESS DIRECTORY");
        };
        return server::serve(address.parse()?, Path::new(data), pace.retry).await;
    }
    let seed = value(&mut arguments, "--seed")?.map_or(Ok(1), |seed| seed.parse())?;
    let svg = value(&mut arguments, "--svg")?.map(PathBuf::from);
    anyhow::ensure!(arguments.is_empty(), "what is {:?}?", arguments[0]);
    play(pace, seed, short, svg).await
}

async fn play(pace: pace::Pace, seed: u64, short: bool, svg: Option<PathBuf>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let begun = Instant::now();
    println!(
        "Five musicians, thirty jobs, connections cut at random, two restarts (seed {seed}) …"
    );
    let performance = stage::perform(pace, seed, short, home.path()).await?;
    println!(
        "{} results, each once; {} cuts, {} restarts, {} calls made again, {:.0} s.",
        performance.results,
        performance.cuts,
        performance.restarts,
        performance.repeated,
        begun.elapsed().as_secs_f64()
    );
    if let Some(path) = svg {
        std::fs::write(&path, performance.svg)?;
        println!("What happened when is in {}.", path.display());
    }
    Ok(())
}

/// Whether a flag is there.
fn take(arguments: &mut Vec<String>, flag: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != flag);
    arguments.len() < before
}

/// The value behind a flag, if it is there.
fn value(arguments: &mut Vec<String>, flag: &str) -> Result<Option<String>> {
    let Some(at) = arguments.iter().position(|argument| argument == flag) else { return Ok(None) };
    arguments.remove(at);
    let value = (at < arguments.len()).then(|| arguments.remove(at));
    Ok(Some(value.with_context(|| format!("{flag} needs a value"))?))
}
