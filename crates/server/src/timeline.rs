//! What happened to each session lately: who came, went, came back and what that brought. It is for people
//! to look at and nothing is decided by it, so it is kept in the memory of this process alone, within
//! bounds. What must outlive the process is the audit trail's business.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_core::record::{Record, Transport};
use rejoin_core::resume::Gap;
use rejoin_core::{Generation, SessionId, Timestamp};

use crate::hook::Lifecycle;

/// Moments kept of one session; the oldest go.
const OF_A_SESSION: usize = 64;

/// How many more moments a session has room for when it runs out.
const ROOM_AT_ONCE: usize = 2;

/// Moments kept of all sessions; the oldest go.
const OF_ALL: usize = 100_000;

/// Something happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// The client's side, as of then.
    pub generation: Generation,
    /// What it was.
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The session was made.
    Created,
    /// A client was attached.
    Attached(Option<Transport>),
    /// The client that was attached had been there before: what it was sent, and what is gone.
    Resumed(Box<Return>),
    /// The client has gone.
    Parked,
    /// The client had gone when the server was started: it went with the one before.
    ParkedByRestart,
    /// It was made to go on from a snapshot.
    Restored,
    /// It was ended.
    Closed,
    /// Its time ran out.
    Expired,
}

/// What a client's return brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// How long it was away; nothing if it took the place of one that was there.
    pub away: Option<Duration>,
    /// Events that it is sent because it missed them.
    pub replayed: u64,
    /// Events that it missed and that are not held any more.
    pub gap: Option<Gap>,
    /// Those of them that no state stands for.
    pub lost: u64,
}

impl Happening {
    /// As it stands on the wire.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Attached(_) => "attached",
            Self::Resumed(_) => "resumed",
            Self::Parked => "parked",
            Self::ParkedByRestart => "parked_by_restart",
            Self::Restored => "restored",
            Self::Closed => "closed",
            Self::Expired => "expired",
        }
    }

    /// A step in the life of a session that is as `session` says.
    pub(crate) fn of(step: Lifecycle, session: &Record) -> Self {
        match step {
            Lifecycle::Created => Self::Created,
            Lifecycle::Attached => Self::Attached(session.attached),
            Lifecycle::Restored => Self::Restored,
            Lifecycle::Closed => Self::Closed,
            Lifecycle::Expired => Self::Expired,
        }
    }
}

/// The moments of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<SessionId, VecDeque<(u64, Moment)>>,
    /// Every moment by its number, oldest first. It may name some that are gone.
    order: VecDeque<(u64, SessionId)>,
    /// How many of those are.
    gone: usize,
    last_number: u64,
}

impl Timeline {
    /// Notes that something happened to a session.
    pub(crate) fn note(&self, id: &SessionId, moment: Moment) {
        self.lock().note(id, moment, OF_A_SESSION, OF_ALL);
    }

    /// What is known of a session, oldest first.
    pub(crate) fn of(&self, id: &SessionId) -> Vec<Moment> {
        let inner = self.lock();
        let moments = inner.sessions.get(id).into_iter().flatten();
        moments.map(|(_, moment)| moment.clone()).collect()
    }

    /// Forgets a session.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.lock().forget(id);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&mut self, id: &SessionId, moment: Moment, of_a_session: usize, of_all: usize) {
        self.last_number += 1;
        let moments = self.sessions.entry(id.clone()).or_default();
        if moments.len() == moments.capacity() {
            moments.reserve_exact(ROOM_AT_ONCE); // most sessions have two, and there are many sessions
        }
        moments.push_back((self.last_number, moment));
        let one_too_many = moments.len() > of_a_session;
        if one_too_many {
            moments.pop_front();
        }
        self.order.push_back((self.last_number, id.clone()));
        self.have_gone(usize::from(one_too_many));
        if self.order.len() > of_all {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, id)) = self.order.pop_front() else { return };
        if !is_there(&self.sessions, &id, number) {
            self.gone -= 1;
        } else if let Some(moments) = self.sessions.get_mut(&id) {
            moments.pop_front();
            if moments.is_empty() {
                self.sessions.remove(&id);
            }
        }
    }

    fn forget(&mut self, id: &SessionId) {
        let moments = self.sessions.remove(id).map_or(0, |moments| moments.len());
        self.have_gone(moments);
    }

    /// So many moments are gone that the order still names. Once most that it names are, it is put in
    /// order: sessions come and go for years.
    fn have_gone(&mut self, moments: usize) {
        self.gone += moments;
        if self.gone > self.order.len() / 2 {
            let Self { sessions, order, .. } = self;
            order.retain(|(number, id)| is_there(sessions, id, *number));
            order.shrink_to_fit();
            self.gone = 0;
        }
    }
}

/// Whether a session still has the moment with this number: those that it has are its latest.
fn is_there(
    sessions: &HashMap<SessionId, VecDeque<(u64, Moment)>>,
    id: &SessionId,
    number: u64,
) -> bool {
    let oldest = sessions.get(id).and_then(VecDeque::front);
    oldest.is_some_and(|(oldest, _)| *oldest <= number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(millis: u64) -> Moment {
        let at = Timestamp::from_millis(millis);
        Moment { at, generation: Generation::ZERO, what: Happening::Parked }
    }

    fn times(inner: &Inner, id: &SessionId) -> Vec<u64> {
        let moments = inner.sessions.get(id).into_iter().flatten();
        moments.map(|(_, moment)| moment.at.as_millis()).collect()
    }

    #[test]
    fn the_oldest_moments_of_a_session_go_first() {
        let (mut inner, id) = (Inner::default(), SessionId::parse("a").unwrap());
        for millis in 0..5 {
            inner.note(&id, moment(millis), 3, 100);
        }
        assert_eq!(times(&inner, &id), [2, 3, 4]);
    }

    #[test]
    fn the_oldest_moments_of_all_go_first_and_with_the_last_the_session() {
        let (mut inner, [a, b]) =
            (Inner::default(), ["a", "b"].map(|id| SessionId::parse(id).unwrap()));
        for (millis, id) in [(0, &a), (1, &b), (2, &b), (3, &b), (4, &b)] {
            inner.note(id, moment(millis), 3, 4);
        }
        assert!(!inner.sessions.contains_key(&a));
        assert_eq!(times(&inner, &b), [2, 3, 4]);
        inner.forget(&b);
        for millis in 5..20 {
            inner.note(&a, moment(millis), 9, 4);
        }
        assert_eq!((times(&inner, &a), inner.order.len()), (vec![16, 17, 18, 19], 4));
    }

    #[test]
    fn sessions_that_are_forgotten_leave_nothing() {
        let (mut inner, stays) = (Inner::default(), SessionId::parse("stays").unwrap());
        inner.note(&stays, moment(0), 3, 1_000);
        for number in 0..1_000 {
            let id = SessionId::parse(&format!("goes-{number}")).unwrap();
            for millis in 0..5 {
                inner.note(&id, moment(millis), 3, 1_000);
            }
            inner.forget(&id);
        }
        inner.note(&stays, moment(1), 3, 1_000);
        assert_eq!(times(&inner, &stays), [0, 1]);
        assert!(inner.order.len() < 10, "{} are named still", inner.order.len());
        assert_eq!(inner.sessions.len(), 1);
    }
}
