//! Rejoin is killed while two hundred sessions are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::caller::{Caller, Testimony};
use crate::judge::{Tally, judge};
use crate::random::Random;
use crate::upstream::Upstream;
use crate::{SESSIONS, gateway, seed};

const KILLS: usize = 4;

/// Calls of each session that begin when everything else is over.
const LAST_CALLS: u64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_comes_once_while_sockets_break_and_rejoin_is_killed() {
    let seed = seed();
    let upstream = Upstream::start().await;
    let mut rejoin = gateway(&upstream, &[]).await;
    let mut beginning = JoinSet::new();
    for number in 0..SESSIONS {
        beginning.spawn(Caller::begin(rejoin.address(), seed, number));
    }
    let callers = beginning.join_all().await;

    let calm = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    for caller in callers {
        working.spawn(work(caller, Arc::clone(&calm)));
    }
    let (mut random, mut outages) = (Random::of(seed, u64::MAX), Vec::new());
    for _ in 0..KILLS {
        sleep(Duration::from_millis(random.between(1_500, 4_000))).await;
        let before = Instant::now();
        rejoin.kill_nine().await;
        rejoin.restart().await;
        outages.push(before..=Instant::now());
    }
    calm.store(true, Ordering::Relaxed);

    let all = timeout(Duration::from_secs(60), working.join_all()).await.expect("nothing hangs");
    let mut tally = Tally::default();
    for call in all.iter().flatten() {
        judge(call, &upstream, &outages, &mut tally);
    }
    eprintln!("mcp_gateway: seed {seed}: {tally:?}");
    assert!(tally.results > SESSIONS * LAST_CALLS && tally.cuts > SESSIONS, "it was too quiet");
    assert!(tally.unknown > 0 && tally.run_again > 0, "nothing was under way when it was killed");
}

/// Calls until it is calm, and a little longer.
async fn work(mut caller: Caller, calm: Arc<AtomicBool>) -> Vec<Testimony> {
    let (mut calls, mut last) = (Vec::new(), LAST_CALLS);
    while last > 0 {
        if calm.load(Ordering::Relaxed) {
            last -= 1;
        }
        calls.push(caller.call(calls.len() as u64 + 1).await);
    }
    caller.end().await;
    calls
}
