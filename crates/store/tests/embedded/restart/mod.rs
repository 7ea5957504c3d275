//! Whatever is done to it, the embedded store answers and shows what the memory store does, also after it
//! was closed or dropped at any point and opened again: what the running store knew is known, and what it
//! had forgotten is forgotten.
//!
//! A restart may take back acks and trims, it parks sessions that had a client, and it voids leases.
//! Nothing else may differ. `REJOIN_RESTART_SEEDS=5000` runs so many histories instead of the usual ones, and
//! `REJOIN_RESTART_SEEDS=110..111` those with these seeds.

mod compare;
mod steps;
mod world;

use std::ops::Range;

use tempfile::TempDir;

use self::world::World;

/// Random changes in one history.
const STEPS: u64 = 300;

/// How many histories are run by default.
const SEEDS: u64 = 16;

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("REJOIN_RESTART_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse().expect("REJOIN_RESTART_SEEDS is a number or a range");
    match wanted.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&wanted),
    }
}

/// In memory where there is such a place: what a disk does to the files is not what is tested here.
fn quick_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// One history. On average every 30th step is a restart.
async fn run(seed: u64) {
    let directory = quick_directory();
    let mut world = World::new(directory.path(), seed);
    for _ in 0..STEPS {
        world.step().await;
        if world.dice.one_in(30) {
            world = world.restart(directory.path()).await;
            world.compare_all().await;
        }
    }
    world.compare_all().await;
    world.bring_all_back().await;
    world = world.restart(directory.path()).await;
    world.send_everything_again().await;
    world.compare_all().await;
}

/// Every history runs, so that one failure does not hide another.
#[tokio::test]
async fn a_store_that_was_opened_again_equals_one_that_was_not() {
    let mut failed: Vec<u64> = Vec::new();
    for seed in seeds() {
        println!("seed {seed}");
        if tokio::spawn(run(seed)).await.is_err() {
            failed.push(seed);
        }
    }
    assert_eq!(failed, [0; 0], "these seeds show a difference");
}
