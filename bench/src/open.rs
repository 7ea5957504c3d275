//! Opening a large store, beside reading and checking its file.

use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use rejoin_core::Seq;
use rejoin_store::Store as _;

use rejoin_bench::report::{Report, Wanted, median};
use rejoin_bench::world;

const SESSIONS: u64 = 100_000;
const EVENTS_EACH: u64 = 10;
const ROUNDS: usize = 5;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = world::directory()?;
    let store = Arc::new(world::open(directory.path(), 1_000)?);
    let shared = Arc::clone(&store);
    runtime.block_on(async {
        world::many(SESSIONS, 512, move |number| {
            let store = Arc::clone(&shared);
            async move {
                let (id, term) = world::session(&*store, number).await?;
                let bodies = (0..EVENTS_EACH).map(|event| world::event(number * 10 + event));
                world::append(&*store, &id, term, Seq::new(1), bodies).await?;
                Ok(())
            }
        })
        .await?;
        store.close().await?;
        anyhow::Ok(())
    })?;
    drop(store);

    let (mut opens, mut reads) = (vec![], vec![]);
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        bytes = read_and_check(directory.path())?;
        reads.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let store = world::open(directory.path(), 1_000)?;
        opens.push(started.elapsed().as_secs_f64());
        runtime.block_on(store.close())?;
    }
    let (open, read) = (median(opens), median(reads));
    let detail = format!(
        "{:.0} ms against {:.0} ms for {} MiB with {SESSIONS} sessions and {} events",
        open * 1e3,
        read * 1e3,
        bytes >> 20,
        SESSIONS * EVENTS_EACH,
    );
    let name = "opening a store, times the reading and checking of its file";
    report.figure(name, open / read, Wanted::AtMost(3.0), &detail);
    Ok(())
}

/// Reads every file of the directory once, with a checksum.
fn read_and_check(directory: &Path) -> Result<u64> {
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 20]);
    let mut checksum = crc32fast::Hasher::new();
    for entry in std::fs::read_dir(directory)? {
        let mut file = std::fs::File::open(entry?.path())?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            checksum.update(&buffer[..read]);
            bytes += read as u64;
        }
    }
    black_box(checksum.finalize());
    Ok(bytes)
}
