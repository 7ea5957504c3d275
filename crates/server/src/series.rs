//! How the server has been doing lately: what was counted, looked at every few seconds and kept for an hour,
//! so that a page that is opened now can show what happened before. A [`History`] hands samples on to the next
//! process, whose counts go on from them: the difference of two samples is what happened between them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::codes::Reason;
use rejoin_store::{Measurements, Unavailable};
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use crate::history::History;
use crate::limits::SAMPLES_FILE_BYTES;
use crate::metrics::Metrics;
use crate::shared::Shared;

/// How often is looked.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Samples kept: those of an hour.
const KEPT: usize = 720;

/// The counts of a server at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Sessions with a client.
    pub attached: u64,
    /// Sessions that go on without one.
    pub parked: u64,
    /// Attempts to come back so far, by how they ended; those that never happened are left out.
    pub reconnects: Vec<(Reason, u64)>,
    /// How often clients were away for how long.
    pub away: Spread,
    /// Events replayed to clients that came back.
    pub replayed: u64,
    /// Events that clients will never see.
    pub lost: u64,
    /// How often a commit took how long, if the store measures it.
    pub commits: Option<Spread>,
    /// Bytes of events that all sessions hold.
    pub buffered_bytes: u64,
}

/// How often something lay at or below each of some bounds, and in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// At or below each bound.
    pub below: Vec<u64>,
    /// In all.
    pub all: u64,
}

impl From<(Vec<u64>, u64)> for Spread {
    fn from((below, all): (Vec<u64>, u64)) -> Self {
        Self { below, all }
    }
}

impl Spread {
    /// Adds what was counted before; nothing if that was by other bounds.
    fn add(&mut self, before: &Self) {
        if self.below.len() == before.below.len() {
            self.below.iter_mut().zip(&before.below).for_each(|(count, before)| *count += before);
            self.all += before.all;
        }
    }
}

impl Sample {
    /// Adds what the process before this one had counted.
    fn go_on_from(&mut self, before: &Self) {
        for (reason, count) in &before.reconnects {
            match self.reconnects.iter_mut().find(|(own, _)| own == reason) {
                Some((_, own)) => *own += count,
                None => self.reconnects.push((*reason, *count)),
            }
        }
        self.away.add(&before.away);
        self.replayed += before.replayed;
        self.lost += before.lost;
        if let (Some(commits), Some(before)) = (&mut self.commits, &before.commits) {
            commits.add(before);
        }
    }
}

/// The samples that are kept.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The last sample of the process before this one, if it is not an hour old.
    before: Option<Sample>,
    kept: Mutex<KeptSeries>,
}

#[derive(Debug, Default)]
struct KeptSeries {
    samples: VecDeque<Sample>,
    history: History,
}

impl Series {
    /// What the processes before this one have written into a file in `directory` within the last hour.
    pub(crate) fn open(directory: &Path, now: Timestamp) -> Self {
        let file = directory.join("samples.jsonl");
        let (history, mut samples) = History::open::<Sample>(&file, SAMPLES_FILE_BYTES);
        samples.retain(|sample| now.since(sample.at) < EVERY * KEPT as u32 && sample.at <= now);
        samples.drain(..samples.len().saturating_sub(KEPT));
        let before = samples.last().cloned();
        Self { before, kept: Mutex::new(KeptSeries { samples: samples.into(), history }) }
    }

    /// Those after `after`, oldest first.
    pub(crate) fn after(&self, after: Option<Timestamp>) -> Vec<Sample> {
        let wanted = |sample: &&Sample| after.is_none_or(|after| sample.at > after);
        self.lock().samples.iter().filter(wanted).cloned().collect()
    }

    fn add(&self, sample: Sample) {
        let mut kept = self.lock();
        kept.history.add(&sample);
        if kept.samples.len() == KEPT {
            kept.samples.pop_front();
        }
        kept.samples.push_back(sample);
    }

    fn lock(&self) -> MutexGuard<'_, KeptSeries> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again, until the server stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.stopping() => return,
        }
        // A store that does not answer leaves a hole, which is what there was.
        if let Ok(sample) = look(&shared).await {
            shared.series.add(sample);
        }
    }
}

/// How things are at this moment.
pub(crate) async fn look(shared: &Shared) -> Result<Sample, Unavailable> {
    let active = shared.store.count(None).await? as u64;
    let (metrics, store) = (&shared.metrics, shared.store.measurements());
    let mut sample = sample(metrics, active, store, shared.clock.now());
    if let Some(before) = &shared.series.before {
        sample.go_on_from(before);
    }
    Ok(sample)
}

fn sample(metrics: &Metrics, active: u64, store: Option<&Measurements>, at: Timestamp) -> Sample {
    let attached = u64::try_from(metrics.attached.get()).unwrap_or(0);
    Sample {
        at,
        attached,
        parked: active.saturating_sub(attached),
        reconnects: metrics.outcomes().filter(|(_, count)| *count > 0).collect(),
        away: metrics.away.cumulated().into(),
        replayed: metrics.replayed_events.get(),
        lost: metrics.lost_events.get(),
        commits: store.map(|store| store.commit_seconds.cumulated().into()),
        buffered_bytes: store.map_or(0, |store| store.buffered_bytes.load(Ordering::Relaxed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_read_on_from_any_moment() {
        let (series, metrics) = (Series::default(), Metrics::new());
        let at = |number: usize| Timestamp::from_millis(number as u64 * 5_000);
        for number in 0..KEPT + 10 {
            series.add(sample(&metrics, 0, None, at(number)));
        }
        let all = series.after(None);
        assert_eq!((all.len(), all[0].at), (KEPT, at(10)));
        let newest: Vec<_> = series.after(Some(at(KEPT + 7))).iter().map(|s| s.at).collect();
        assert_eq!(newest, [at(KEPT + 8), at(KEPT + 9)]);
    }

    #[test]
    fn counts_go_on_from_those_of_the_process_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |seconds: u64| Timestamp::from_millis(10_000_000 + seconds * 1_000);
        let metrics = Metrics::new();
        metrics.attempted("http", Reason::Reconnected);
        metrics.returned(Some(Duration::from_secs(3)), 12, 1);
        let first = Series::open(dir.path(), at(0));
        assert_eq!(first.before, None);
        first.add(sample(&metrics, 0, None, at(5)));
        first.add(sample(&metrics, 0, None, at(7_000)));
        let second = Series::open(dir.path(), at(7_010));
        let times: Vec<_> = second.after(None).iter().map(|sample| sample.at).collect();
        assert_eq!(times, [at(7_000)], "older than an hour");
        metrics.attempted("http", Reason::TokenExpired);
        let mut now = sample(&metrics, 0, None, at(7_010));
        now.go_on_from(second.before.as_ref().unwrap());
        assert_eq!(now.reconnects, [(Reason::Reconnected, 2), (Reason::TokenExpired, 1)]);
        assert_eq!((now.replayed, now.lost, now.away.all), (24, 2, 2));
        let set_back = Series::open(dir.path(), at(6_000));
        assert_eq!(set_back.before, None, "a sample of the future");
    }

    #[test]
    fn a_sample_has_what_was_counted() {
        let metrics = Metrics::new();
        metrics.attempted("http", Reason::TokenExpired);
        metrics.attempted("websocket", Reason::Reconnected);
        metrics.attempted("mcp", Reason::Reconnected);
        metrics.returned(Some(Duration::from_secs(3)), 12, 1);
        metrics.attached.set(2);
        let store = Measurements::default();
        store.committed(Duration::from_millis(3), 7);
        let sample = sample(&metrics, 5, Some(&store), Timestamp::from_millis(1));
        assert_eq!((sample.attached, sample.parked), (2, 3));
        assert_eq!(sample.reconnects, [(Reason::Reconnected, 2), (Reason::TokenExpired, 1)]);
        assert_eq!((sample.replayed, sample.lost, sample.away.all), (12, 1, 1));
        assert_eq!(sample.commits.unwrap().below[3..5], [0, 1]);
    }
}
