//! What the embedded store is compared with: the simplest thing that makes events durable, an append
//! file written by hand, with one fdatasync for each batch. It keeps no sessions, drops nothing, answers
//! nobody.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use rejoin_bench::world;

/// The pre-filled file is this large, and written round and round.
const PREFILLED: u64 = 64 << 20;

/// Events a second in batches of `batch`, into a file that grows or one that was filled before.
pub(crate) fn append_rate(
    directory: &Path,
    batch: usize,
    prefilled: bool,
    time: Duration,
) -> Result<f64> {
    let path = directory.join("peer");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    if prefilled {
        let zeros = vec![0; 1 << 20];
        for block in 0..PREFILLED >> 20 {
            file.write_all_at(&zeros, block << 20)?;
        }
        file.sync_all()?;
    }
    let event = world::event(1);
    let (mut buffer, mut offset, mut events) = (Vec::new(), 0, 0_u64);
    let started = Instant::now();
    while started.elapsed() < time {
        buffer.clear();
        for _ in 0..batch {
            events += 1;
            buffer.extend_from_slice(&events.to_le_bytes());
            buffer.extend_from_slice(&(event.len() as u64).to_le_bytes());
            buffer.extend_from_slice(&event);
        }
        if prefilled && offset + buffer.len() as u64 > PREFILLED {
            offset = 0;
        }
        file.write_all_at(&buffer, offset)?;
        file.sync_data()?;
        offset += buffer.len() as u64;
    }
    let rate = events as f64 / started.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}
