//! Durable append throughput: producers that each append one event, wait until it is durable, and go on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rejoin_core::Seq;

use crate::peer;
use rejoin_bench::report::{Report, Wanted, median};
use rejoin_bench::world;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1_500);

/// Events a session keeps: the rest is dropped while others are appended, as in a long run. A client
/// that keeps up acks at least once a second, so few events of a session are live at any moment.
const KEPT: usize = 16;

/// `only` limits it to one number of producers.
pub(crate) fn measure(report: &mut Report, only: Option<usize>) -> Result<()> {
    let all = [(1, 0.85), (64, 0.55), (1_024, 0.35)];
    for (producers, wanted) in all.into_iter().filter(|(n, _)| only.is_none_or(|only| only == *n)) {
        let directory = world::directory()?;
        let (mut growing, mut prefilled, mut ours) = (vec![], vec![], vec![]);
        let mut store = Producers::start(directory.path(), producers)?;
        for _ in 0..ROUNDS {
            growing.push(peer::append_rate(directory.path(), producers, false, ROUND / 2)?);
            ours.push(store.rate(ROUND)?);
            prefilled.push(peer::append_rate(directory.path(), producers, true, ROUND / 2)?);
        }
        let (growing, prefilled, ours) = (median(growing), median(prefilled), median(ours));
        let detail = format!(
            "{ours:.0} events/s; hand-written file, growing {growing:.0}, pre-filled {prefilled:.0}"
        );
        let name = format!("append, {producers} producers, share of a hand-written file");
        report.figure(&name, ours / growing.max(prefilled), Wanted::AtLeast(wanted), &detail);
    }
    Ok(())
}

/// Producers on one thread, as tasks; the store has its own.
struct Producers {
    runtime: tokio::runtime::Runtime,
    store: Arc<rejoin_store::embedded::EmbeddedStore>,
    sessions: Vec<(rejoin_core::SessionId, rejoin_core::Term, Seq)>,
}

impl Producers {
    fn start(directory: &Path, producers: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let store = Arc::new(world::open(&directory.join("store"), KEPT)?);
        let mut sessions = Vec::new();
        for number in 0..producers as u64 {
            let (id, term) = runtime.block_on(world::session(&*store, number))?;
            sessions.push((id, term, Seq::new(1)));
        }
        Ok(Self { runtime, store, sessions })
    }

    fn rate(&mut self, time: Duration) -> Result<f64> {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let started = Instant::now();
        let sessions = std::mem::take(&mut self.sessions);
        self.sessions = self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for (number, (id, term, mut next)) in sessions.into_iter().enumerate() {
                let (store, stop, count) =
                    (Arc::clone(&self.store), Arc::clone(&stop), Arc::clone(&count));
                tasks.push(tokio::spawn(async move {
                    let body = world::event(number as u64);
                    while !stop.load(Ordering::Relaxed) {
                        let head =
                            world::append(&*store, &id, term, next, [Arc::clone(&body)]).await?;
                        next = head.next();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    anyhow::Ok((id, term, next))
                }));
            }
            tokio::time::sleep(time).await;
            stop.store(true, Ordering::Relaxed);
            let mut back = Vec::new();
            for task in tasks {
                back.push(task.await??);
            }
            anyhow::Ok(back)
        })?;
        Ok(count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
    }
}
