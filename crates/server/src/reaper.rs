//! The deadlines of all sessions without a client, in one task. They are kept by the store in order,
//! so a hundred thousand parked sessions cost one timer. The same task has the store let go of events
//! that have outlived their retention.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::lifetime::Verdict;
use rejoin_core::record::{Ending, Record, Status};
use rejoin_core::state::{End, Keep};
use rejoin_store::{Failure, Unavailable};
use tokio::time::sleep_until;

use crate::shared::Shared;
use crate::tasks::Owned;

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
pub(crate) async fn run(owned: Owned, shared: Arc<Shared>) {
    let mut settle_at = Some(shared.clock.now());
    loop {
        let changed = shared.deadlines.notified();
        let now = shared.clock.now();
        let next = match look_after(owned, &shared, &mut settle_at, now).await {
            Ok(next) => next,
            Err(unavailable) => {
                tracing::error!(%unavailable, "deadlines are not looked after any more");
                return;
            }
        };
        let latest = now + LONGEST_SLEEP;
        let wake = shared.clock.instant(next.into_iter().chain(settle_at).fold(latest, Ord::min));
        tokio::select! {
            () = changed => {}
            () = sleep_until(wake) => {}
            () = shared.stopping() => return,
        }
    }
}

/// Sees to sessions whose time has come, and now and then to events whose time has; says when the next
/// session's will.
async fn look_after(
    owned: Owned,
    shared: &Arc<Shared>,
    settle_at: &mut Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Unavailable> {
    if settle_at.is_some_and(|at| at <= now) {
        *settle_at = shared.store.change(owned).settle(now).await?;
    }
    sweep(owned, shared, now).await
}

/// Looks at every session whose time has come by `now`; says when the next one's will.
async fn sweep(
    owned: Owned,
    shared: &Arc<Shared>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Unavailable> {
    for _ in 0..ROUNDS {
        let due = shared.store.due(now, AT_ONCE).await?;
        if due.records.is_empty() || shared.is_stopping() {
            return Ok(due.next);
        }
        for record in &due.records {
            match &record.status {
                Status::Active => look_at(owned, shared, record, now).await?,
                Status::Ended { .. } => {
                    // Before another session may get its id.
                    shared.hubs.forget(record.id());
                    shared.store.change(owned).forget(record.id(), now).await?;
                    shared.timeline.forget(record.id());
                }
            }
        }
    }
    Ok(Some(now + BREATH))
}

/// Ends a session whose time has come, or keeps it for longer.
pub(crate) async fn look_at(
    owned: Owned,
    shared: &Arc<Shared>,
    record: &Record,
    now: Timestamp,
) -> Result<(), Unavailable> {
    let generation = record.generation;
    match shared.settings.session.lifetime.on_due(record, now) {
        Verdict::KeepUntil(until) => {
            let keep = Keep { generation, until };
            ignore_refusal(shared.store.change(owned).keep(record.id(), keep).await)
        }
        Verdict::End => {
            let end = End {
                ending: Ending::Expired,
                only_parked: Some(generation),
                only_by: None,
                only_due: true,
                remember_for: shared.settings.remember_for(),
                now,
            };
            let ended = shared.end(owned, record.id(), end).await;
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
