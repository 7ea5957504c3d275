//! Who gives way when all sessions together hold more events than the server may: first what is settled
//! (acked, or in the agent's state), then what is not; of parked sessions before attached ones, and of
//! those before that nothing has happened to for longest. What goes is counted, and told as a gap.

use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::Trimmed;
use rejoin_core::record::{Kind, Status};
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

/// Has a session give up events that count about so many bytes. Says what has gone and how much it counted.
pub(crate) fn shed<B>(session: &mut SessionState<B>, what: Shed, bytes: usize) -> (Trimmed, usize) {
    let count = |session: &SessionState<B>| session.holding().events as usize;
    let had = count(session);
    if what == Shed::Settled {
        session.inbox.shed_kept(bytes); // messages that are dealt with
    }
    let left = bytes.saturating_sub(had - count(session));
    // Each event counts more than its bytes: so much less of those is enough.
    let own = (left as u128 * session.out.bytes() as u128).div_ceil(count(session).max(1) as u128);
    let trimmed = session.shed(what, own.min(left as u128) as usize);
    (trimmed, had - count(session))
}

/// When a session ended whose sealed states must not be gone on from: its user closed it, or another goes on
/// in its place. Those of other sessions may be.
pub(crate) fn closed_at<B>(session: &SessionState<B>) -> Option<Timestamp> {
    match &session.vitals.status {
        Status::Ended { ending, at, .. } if !ending.is_restorable() => {
            Some(*at).filter(|_| session.about.kind == Kind::Agent)
        }
        Status::Ended { .. } | Status::Active => None,
    }
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
