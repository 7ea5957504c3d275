//! The deadlines of all sessions without a client, in one task. They are kept by the store in order,
//! so a hundred thousand parked sessions cost one timer.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::lifetime::Verdict;
use rejoin_core::record::{Ending, Record, Status};
use rejoin_core::state::{End, Keep};
use rejoin_store::{Failure, Unavailable};
use tokio::time::sleep_until;

use crate::shared::Shared;

/// Sessions looked at in one go.
const AT_ONCE: usize = 256;

/// How often in a row, before others get a turn at the store.
const ROUNDS: usize = 64;

/// And how long that turn is.
const BREATH: Duration = Duration::from_millis(10);

/// The longest the task sleeps without looking: a store shared with other processes may have got
/// deadlines that nobody told this one of.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Ends, keeps or forgets sessions whose time has come, until the store fails or the server stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let changed = shared.deadlines.notified();
        let now = shared.clock.now();
        let next = match sweep(&shared, now).await {
            Ok(next) => next,
            Err(unavailable) => {
                tracing::error!(%unavailable, "deadlines are not looked after any more");
                return;
            }
        };
        let latest = now + LONGEST_SLEEP;
        let wake = shared.clock.instant(next.map_or(latest, |next| next.min(latest)));
        tokio::select! {
            () = changed => {}
            () = sleep_until(wake) => {}
            () = shared.stopping() => return,
        }
    }
}

/// Looks at every session whose time has come by `now`; says when the next one's will.
async fn sweep(shared: &Arc<Shared>, now: Timestamp) -> Result<Option<Timestamp>, Unavailable> {
    for _ in 0..ROUNDS {
        let due = shared.store.due(now, AT_ONCE).await?;
        if due.records.is_empty() || shared.is_stopping() {
            return Ok(due.next);
        }
        for record in &due.records {
            match &record.status {
                Status::Active => look_at(shared, record, now).await?,
                Status::Ended { .. } => shared.store.forget(record.id(), now).await?,
            }
        }
    }
    Ok(Some(now + BREATH))
}

async fn look_at(shared: &Arc<Shared>, record: &Record, now: Timestamp) -> Result<(), Unavailable> {
    let generation = record.generation;
    match shared.settings.session.lifetime.on_due(record, now) {
        Verdict::KeepUntil(until) => {
            ignore_refusal(shared.store.keep(record.id(), Keep { generation, until }).await)
        }
        Verdict::End => {
            let end = End {
                ending: Ending::Expired,
                only_parked: Some(generation),
                only_due: true,
                remember_for: shared.settings.remember_for(),
                now,
            };
            let ended = shared.end(record.id(), end).await;
            if ended.is_ok() {
                shared.metrics.expired.inc();
            }
            ignore_refusal(ended.map(drop))
        }
    }
}

/// A refusal means that something happened to the session since it was listed: then it is not due.
fn ignore_refusal<R>(answer: Result<(), Failure<R>>) -> Result<(), Unavailable> {
    match answer {
        Ok(()) | Err(Failure::NotFound | Failure::Refused(_)) => Ok(()),
        Err(Failure::Unavailable(unavailable)) => Err(unavailable),
    }
}
