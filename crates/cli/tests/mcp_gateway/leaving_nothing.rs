//! When all sessions have gone nothing of them is left, whatever their time to live: no session here or behind, no
//! descriptor, no memory. What came and went is in the metrics.

use std::fs;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::caller::{Caller, Testimony};
use crate::common::server_process::ServerProcess;
use crate::judge::{Tally, judge};
use crate::upstream::Upstream;
use crate::wire::send;
use crate::{SESSIONS, gateway, seed};

/// How often two hundred come and go.
const ROUNDS: u64 = 5;

/// Calls of each in a round.
const CALLS: u64 = 2;

/// What may be left after the last rounds more than after the first ones, six hundred sessions before: ten
/// kilobytes a session would be more. What the allocator keeps differs by as much from one moment to the next,
/// so the lower of two rounds counts.
const MORE_KIBIBYTES: u64 = 6 * 1024;

/// Descriptors that there may be more than before the first session: a connection to the server behind that is
/// kept for a moment, the one that asks for the metrics.
const FEW: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_sessions_that_live_a_second() {
    come_and_go("1s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_sessions_that_live_three_seconds() {
    come_and_go("3s").await;
}

async fn come_and_go(ttl: &str) {
    let seed = seed();
    let upstream = Upstream::start().await;
    let flags = [&*format!("--session-ttl={ttl}"), "--state-ttl=1s", "--token-ttl=1s"];
    let rejoin = gateway(&upstream, &flags).await;
    let at_first = descriptors(&rejoin);
    let (mut tally, mut left) = (Tally::default(), Vec::new());
    for round in 0..ROUNDS {
        let mut working = JoinSet::new();
        for number in 0..SESSIONS {
            working.spawn(visit(rejoin.address(), seed, round * SESSIONS + number));
        }
        let calls = timeout(Duration::from_secs(60), working.join_all()).await.expect("no hang");
        calls.iter().flatten().for_each(|call| judge(call, &upstream, &[], &mut tally));
        left.push(until_all_have_gone(&rejoin, &upstream, at_first + FEW).await);
    }
    eprintln!("mcp_gateway: ttl {ttl}, seed {seed}: {tally:?}, KiB after each round {left:?}");
    let [first, second, .., last_but_one, last] = left[..] else { panic!("{left:?}") };
    assert!(last_but_one.min(last) <= first.min(second) + MORE_KIBIBYTES, "{left:?}");

    let made = ROUNDS * SESSIONS;
    let metrics = Metrics::of(&rejoin).await;
    assert_eq!(metrics.changes("created"), made);
    assert_eq!(metrics.changes("closed"), made / 2, "every second client said goodbye");
    assert_eq!(metrics.changes("expired"), made / 2, "and the others did not");
    let (attached, parked) = (metrics.changes("attached"), metrics.changes("parked"));
    assert!(attached >= made && parked >= made / 2 && parked <= attached, "{attached}, {parked}");
    let back = metrics.value("rejoin_reconnect_successes_total{transport=\"mcp\"}");
    assert!(back >= tally.cuts, "{back} returns after {} cuts", tally.cuts);
}

/// A client comes, calls, and goes, every second one without a word.
async fn visit(address: std::net::SocketAddr, seed: u64, number: u64) -> Vec<Testimony> {
    let mut caller = Caller::begin(address, seed, number).await;
    let mut calls = Vec::new();
    for id in 1..=CALLS {
        calls.push(caller.call(id).await);
    }
    if number.is_multiple_of(2) {
        caller.end().await;
    }
    calls
}

/// Waits until no session is left, ended ones included, and at most so many descriptors; says how many KiB of memory
/// are.
async fn until_all_have_gone(rejoin: &ServerProcess, upstream: &Upstream, most: usize) -> u64 {
    let waiting = Instant::now();
    loop {
        let metrics = Metrics::of(rejoin).await;
        let active = ["attached", "parked"].map(|state| metrics.sessions(state));
        let left = (active, upstream.sessions(), remembered(rejoin).await, descriptors(rejoin));
        if left.0 == [0, 0] && left.1 == 0 && left.2 == 0 && left.3 <= most {
            break;
        }
        assert!(waiting.elapsed() < Duration::from_secs(30), "{left:?}");
        sleep(Duration::from_millis(100)).await;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", rejoin.id())).unwrap();
    let rss =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    rss.unwrap().parse().unwrap()
}

fn descriptors(rejoin: &ServerProcess) -> usize {
    fs::read_dir(format!("/proc/{}/fd", rejoin.id())).unwrap().count()
}

/// Sessions that are over and still remembered.
async fn remembered(rejoin: &ServerProcess) -> usize {
    let answer = send(rejoin.address(), "GET", "/api/sessions?limit=1", &[], "").await.unwrap();
    let page: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    page["sessions"].as_array().unwrap().len()
}

/// What `/metrics` said.
struct Metrics(String);

impl Metrics {
    async fn of(rejoin: &ServerProcess) -> Self {
        let answer = send(rejoin.address(), "GET", "/metrics", &[], "").await.unwrap();
        Self(answer.text().await.unwrap())
    }

    fn value(&self, name: &str) -> u64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in\n{}", self.0))
    }

    fn changes(&self, change: &str) -> u64 {
        self.value(&format!("rejoin_session_changes_total{{change=\"{change}\"}}"))
    }

    fn sessions(&self, state: &str) -> u64 {
        self.value(&format!("rejoin_sessions{{state=\"{state}\"}}"))
    }
}
