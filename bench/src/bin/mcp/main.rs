//! What a gateway adds to the latency of `tools/call`: Rejoin, with every message durable, beside
//! supergateway and mcp-proxy (npm), which keep nothing.
//!
//! Behind each is the same server, the fixture of mcp-tests on standard input and output, one process of it;
//! the same server called without any gateway, over its own pipes, is what is subtracted. One session each,
//! with 1 and with 32 calls in flight, all gateways with their defaults and with sessions. The caller speaks
//! HTTP without an SDK and keeps its connections; the clock stops when the result has arrived. The targets
//! take turns, and a figure is the median over the rounds of each round's median.
//!
//! `scripts/mcp-bench` builds and runs it; with `peers` it leaves Rejoin out, with `rejoin` the peers.

mod calling;
mod over_http;
mod over_pipes;
mod targets;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rejoin_bench::report::{Report, Wanted, median};

use crate::calling::Latencies;
use crate::targets::{Peer, Target};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(1_500);
const WARM_UP: Duration = Duration::from_millis(500);
const IN_FLIGHT: [usize; 2] = [1, 32];

/// Of what the better peer adds, we may add so much.
const SHARE: f64 = 0.5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let peers = match std::env::args().nth(1).as_deref() {
        Some("peers") => vec![Peer::Nothing, Peer::Supergateway, Peer::McpProxy],
        Some("rejoin") => vec![Peer::Nothing, Peer::Rejoin],
        _ => vec![Peer::Nothing, Peer::Supergateway, Peer::McpProxy, Peer::Rejoin],
    };
    let mut targets = vec![];
    for peer in peers {
        targets.push(Target::start(peer).await.with_context(|| format!("{peer} did not start"))?);
    }
    let mut report = Report::default();
    for in_flight in IN_FLIGHT {
        measure(&targets, in_flight, &mut report).await?;
    }
    Ok(report.finish())
}

/// Lets the targets take turns, and compares what they add.
#[expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]
async fn measure(targets: &[Target], in_flight: usize, report: &mut Report) -> Result<()> {
    for target in targets {
        target.call_for(WARM_UP, in_flight).await?;
    }
    let mut rounds: Vec<Vec<Latencies>> = targets.iter().map(|_| vec![]).collect();
    for _ in 0..ROUNDS {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            rounds.push(target.call_for(ROUND, in_flight).await?);
        }
    }
    let middle = |rounds: &[Latencies], share| {
        median(rounds.iter().map(|round| round.at(share).as_secs_f64() * 1e6).collect())
    };
    let direct = middle(&rounds[0], 0.5);
    println!("{in_flight} in flight");
    let mut added = vec![];
    for (target, rounds) in targets.iter().zip(&rounds) {
        let (half, most) = (middle(rounds, 0.5), middle(rounds, 0.99));
        let more = half - direct;
        let calls = median(rounds.iter().map(|round| round.count() as f64).collect());
        let rate = calls / ROUND.as_secs_f64();
        let name = target.peer.to_string();
        println!(
            "  {name:12} p50 {half:7.0} µs  p99 {most:7.0} µs  adds {more:7.0} µs  {rate:6.0} calls/s"
        );
        added.push((target.peer, more));
    }
    compare(&added, in_flight, report);
    Ok(())
}

/// Our share of what the better peer adds, if we are there.
fn compare(added: &[(Peer, f64)], in_flight: usize, report: &mut Report) {
    let of = |wanted: Peer| added.iter().find(|(peer, _)| *peer == wanted).map(|(_, more)| *more);
    let (Some(ours), Some(first), Some(second)) =
        (of(Peer::Rejoin), of(Peer::Supergateway), of(Peer::McpProxy))
    else {
        return;
    };
    let better = first.min(second);
    let name = format!("added to tools/call at {in_flight} in flight, share of the better peer");
    let detail = format!("{ours:.0} µs, the better peer {better:.0} µs");
    report.figure(&name, ours / better, Wanted::AtMost(SHARE), &detail);
}
