//! Replaying a tail, beside copying its bytes.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use rejoin_core::Seq;
use rejoin_store::{PageLimit, Store as _};

use rejoin_bench::report::{Report, Wanted, median};
use rejoin_bench::world;

const EVENTS: u64 = 1_000;
const ROUNDS: usize = 300;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let directory = world::directory()?;
    let store = world::open(directory.path(), EVENTS as usize)?;
    let bodies: Vec<_> = (0..EVENTS).map(world::event).collect();
    let (mut replays, mut copies) = (vec![], vec![]);
    runtime.block_on(async {
        let (id, term) = world::session(&store, 1).await?;
        world::append(&store, &id, term, Seq::new(1), bodies.iter().cloned()).await?;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let (mut after, mut events) = (Seq::ZERO, 0);
            while let Some(page) = store.read(&id, after, PageLimit::default()).await? {
                let Some(last) = page.events.last() else { break };
                after = last.seq;
                events += page.events.len() as u64;
                black_box(&page);
            }
            replays.push(started.elapsed().as_secs_f64() * 1e6);
            assert_eq!(events, EVENTS, "the whole tail was read");

            let started = Instant::now();
            let copy: Vec<Vec<u8>> = bodies.iter().map(|body| body.to_vec()).collect();
            black_box(&copy);
            copies.push(started.elapsed().as_secs_f64() * 1e6);
        }
        anyhow::Ok(())
    })?;
    let (replay, copy) = (median(replays), median(copies));
    let detail = format!("{replay:.0} µs against {copy:.0} µs");
    let name = "replay of 1,000 events, times the copying of them";
    report.figure(name, replay / copy, Wanted::AtMost(2.0), &detail);
    Ok(())
}
