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
const ROUNDS: u64 = 12;

/// Calls of each in a round.
const CALLS: u64 = 2;

/// What the last round may use more than the second one. Two hundred sessions with all they have are more.
const MORE_KIBIBYTES: u64 = 3 * 1024;

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
    let (mut tally, mut left) = (Tally::default(), Vec::new());
    for round in 0..ROUNDS {
        let mut working = JoinSet::new();
        for number in 0..SESSIONS {
            working.spawn(visit(rejoin.address(), seed, round * SESSIONS + number));
        }
        let calls = timeout(Duration::from_secs(60), working.join_all()).await.expect("no hang");
        calls.iter().flatten().for_each(|call| judge(call, &upstream, &[], &mut tally));
        left.push(until_all_have_gone(&rejoin, &upstream).await);
    }
    eprintln!("mcp_gateway: ttl {ttl}, seed {seed}: {tally:?}, left after each round {left:?}");
    let (second, last) = (&left[1], &left[left.len() - 1]);
    assert!(last.descriptors <= second.descriptors, "{left:?}");
    assert!(last.kibibytes <= second.kibibytes + MORE_KIBIBYTES, "{left:?}");

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

/// What is left when all sessions have gone.
#[derive(Debug)]
struct Left {
    descriptors: usize,
    kibibytes: u64,
}

/// Waits until no session is left, ended ones included.
async fn until_all_have_gone(rejoin: &ServerProcess, upstream: &Upstream) -> Left {
    let waiting = Instant::now();
    loop {
        let metrics = Metrics::of(rejoin).await;
        let active = ["attached", "parked"].map(|state| metrics.sessions(state));
        if active == [0, 0] && upstream.sessions() == 0 && remembered(rejoin).await == 0 {
            break;
        }
        assert!(waiting.elapsed() < Duration::from_secs(30), "{active:?}, {}", upstream.sessions());
        sleep(Duration::from_millis(100)).await;
    }
    let process = format!("/proc/{}", rejoin.id());
    let descriptors = fs::read_dir(format!("{process}/fd")).unwrap().count();
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let rss =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Left { descriptors, kibibytes: rss.unwrap().parse().unwrap() }
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
