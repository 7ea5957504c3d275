//! Who gives way when all sessions together hold more events than the server may: first what is settled
//! (acked, or in the agent's state), then what is not; of parked sessions before attached ones, and of
//! those before that nothing has happened to for longest. What goes is counted, and told as a gap.

use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::limits::LogBounds;
use rejoin_core::state::{SessionState, Shed};

/// How often quiet sessions are looked through for events that have outlived their retention, where
/// that is long. It takes a moment for each session …
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// … so it is not done more often than this, however short the retention.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// When they are to be looked through next.
pub(crate) fn look_again(bounds: &LogBounds, now: Timestamp) -> Timestamp {
    now + bounds.retention.min(bounds.result_retention).clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY)
}

/// How soon a session gives way: the smaller, the sooner.
pub(crate) type Rank = (bool, Timestamp);

/// The rank of a session.
pub(crate) fn rank<B>(state: &SessionState<B>) -> Rank {
    (state.vitals.attached.is_some(), state.vitals.last_activity)
}

/// How much must go where `held` bytes are held: nothing within the bound, and beyond it some more than
/// there is too much, so that there is room for a while.
pub(crate) fn excess(held: u64, bound: u64) -> usize {
    let over = held > bound;
    usize::try_from(if over { held - (bound - bound / 8) } else { 0 }).unwrap_or(usize::MAX)
}

/// Has sessions give up `excess` bytes. `shed` makes one give up what it is asked for, as far as it has
/// it, and says how much that was.
pub(crate) fn relieve<S>(
    sessions: &mut [(Rank, S)],
    mut excess: usize,
    mut shed: impl FnMut(&S, Shed, usize) -> usize,
) {
    sessions.sort_by_key(|(rank, _)| *rank);
    for what in [Shed::Settled, Shed::Anything] {
        for (_, session) in sessions.iter() {
            if excess == 0 {
                return;
            }
            excess = excess.saturating_sub(shed(session, what, excess));
        }
    }
}
