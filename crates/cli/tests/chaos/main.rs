//! The real binary and the real client with everything in between going wrong: a network that breaks in
//! every way we know, and a server that is killed ten times. At the applications' callbacks nothing may
//! be lost, doubled or out of order, and every accepted message is answered once.
//!
//! `REJOIN_CHAOS_SEED=… cargo nextest run -p rejoin-cli --test chaos` runs a seed again.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

#[path = "../common/mod.rs"]
mod common;
mod judge;
mod proxy;
mod random;
mod server;
mod visitor;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::judge::{Tally, Violation, judge};
use self::proxy::{Proxy, Weather};
use self::random::Random;
use self::server::Server;
use self::visitor::{Planted, Testimony, Visitor, record};

const SESSIONS: u64 = 200;
const KILLS: u64 = 10;

/// How often each client must have been attached for the run to show anything. On a machine with other
/// work they are back five times between all the kills, else more than ten.
const TIMES_BACK: u64 = 3;

/// How long a client may take to catch up once the faults have stopped, on a machine with other work.
const TO_CATCH_UP: Duration = Duration::from_secs(90);

/// What the server may use at the end. Two hundred sessions with all their events are a few MiB; this
/// is what a leak of connections or events would pass.
const MAX_MEBIBYTES: u64 = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_reordered_while_networks_break_and_servers_die() {
    let seed = seed();
    say(&format!("seed {seed}"));
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let proxy = Proxy::start(server.address, seed, Weather::Foul).await;
    let (finish, finishing) = watch::channel(false);
    let mut visitors = JoinSet::new();
    for number in 0..SESSIONS {
        let visitor = Visitor {
            proxy: proxy.address,
            random: Random::of(!seed, number),
            planted: Planted::Nothing,
            pause: Duration::from_secs(4),
            restarts: number % 4 == 0,
            finish: finishing.clone(),
        };
        visitors.spawn(visitor.run());
    }
    let mut random = Random::of(seed, u64::MAX);
    for _ in 0..KILLS {
        sleep(Duration::from_millis(random.between(2_000, 7_000))).await;
        tokio::task::block_in_place(|| server.kill_and_restart());
    }
    sleep(Duration::from_secs(3)).await;

    proxy.clear_up();
    finish.send_replace(true);
    let cleared_up = Instant::now();
    let testimonies = timeout(TO_CATCH_UP, visitors.join_all()).await;
    let testimonies = testimonies.unwrap_or_else(|_| {
        panic!("seed {seed}: not every client caught up; the server says: {}", server.log())
    });
    let caught_up = cleared_up.elapsed();
    let memory = server.resident_mebibytes();
    let tally = judge_all(testimonies, &server).await;
    say(&format!("{tally:?}, caught up in {caught_up:?}, server {memory} MiB"));
    assert!(tally.attached > SESSIONS * TIMES_BACK, "seed {seed}: the network was kind");
    assert!(memory < MAX_MEBIBYTES, "seed {seed}: the server uses {memory} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_judge_notices_what_a_callback_loses_doubles_or_swaps() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let proxy = Proxy::start(server.address, 1, Weather::Fair).await;
    let cases = [
        (Planted::Nothing, None),
        (Planted::Dropped(3), Some(Violation::Lost { after: 2, next: 4 })),
        (Planted::Twice(3), Some(Violation::Duplicated { seq: 3 })),
        (Planted::Late(3), Some(Violation::Reordered { seq: 3, after: 4 })),
    ];
    for (planted, expected) in cases {
        let (_, finish) = watch::channel(true);
        let visitor = Visitor {
            proxy: proxy.address,
            random: Random::of(7, 3),
            planted,
            pause: Duration::from_millis(1),
            restarts: false,
            finish,
        };
        let testimony = timeout(Duration::from_secs(30), visitor.run()).await.unwrap();
        let record = record(server.address, testimony.session.clone().unwrap()).await;
        assert!(record.len() >= 4, "there is something to get wrong");
        assert_eq!(judge(&testimony, &record).err(), expected, "{planted:?}");

        // What the agent, or the server, could get wrong is noticed as well.
        if planted == Planted::Nothing {
            let mut without_answer = testimony.clone();
            without_answer.accepted.push(("forgotten".to_owned(), 2));
            let forgotten = Violation::Answered { message_id: "forgotten".to_owned(), times: 0 };
            assert_eq!(judge(&without_answer, &record).err(), Some(forgotten));
            let head = record.len() as u64;
            let mut behind = testimony.clone();
            behind.events.pop();
            let not_caught_up = Violation::NotCaughtUp { got: head - 1, head };
            assert_eq!(judge(&behind, &record).err(), Some(not_caught_up));
        }
    }
}

/// Judges each session beside the server's own record of it.
async fn judge_all(testimonies: Vec<Testimony>, server: &Server) -> Tally {
    let mut total = Tally::default();
    for testimony in testimonies {
        let session = testimony.session.clone().expect("every client had a session");
        let record = record(server.address, session.clone()).await;
        let tally = judge(&testimony, &record).unwrap_or_else(|violation| {
            let log = server.log();
            panic!("{session}: {violation:?}\nafter {testimony:#?}\nthe server says: {log}")
        });
        total.events += tally.events;
        total.messages += tally.messages;
        total.attached += tally.attached;
        total.begun_again += tally.begun_again;
    }
    total
}

fn seed() -> u64 {
    match std::env::var("REJOIN_CHAOS_SEED") {
        Ok(seed) => seed.parse().expect("a seed is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64,
    }
}

/// For whoever reads the run.
fn say(text: &str) {
    eprintln!("chaos: {text}");
}
