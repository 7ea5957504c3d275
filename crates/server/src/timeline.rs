//! What happened to each session lately: who came, went, came back and what that brought. It is for people
//! to look at and nothing is decided by it: it is kept in memory, within bounds, and in a [`History`] that the
//! next process reads. What must be durable is the audit trail's business.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_core::record::{Record, Transport};
use rejoin_core::resume::Gap;
use rejoin_core::{Generation, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::hook::Lifecycle;
use crate::limits::{TIMELINE_FILE_BYTES, TIMELINE_STDERR_BYTES};

/// How many more moments a session has room for when it runs out.
const ROOM_AT_ONCE: usize = 2;

/// How much is kept; the oldest moments go.
#[derive(Clone, Copy)]
struct TimelineBounds {
    /// Moments of one session.
    of_a_session: usize,
    /// Moments of all sessions.
    of_all: usize,
    /// Bytes of what dead agents wrote, in all.
    stderr_bytes: usize,
}

const BOUNDS: TimelineBounds =
    TimelineBounds { of_a_session: 64, of_all: 100_000, stderr_bytes: TIMELINE_STDERR_BYTES };

/// Something happened to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// The client's side, as of then.
    pub generation: Generation,
    /// What it was.
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Its agent died; of an MCP session, the server behind it.
    AgentDied(Box<Death>),
    /// It was made to go on from a snapshot.
    Restored,
    /// It was ended.
    Closed,
    /// Its time ran out.
    Expired,
}

/// What a client's return brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// How an agent died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// How its process ended (`exit status: 1`, `signal: 9 (SIGKILL)`), or what else is known of it.
    pub status: Box<str>,
    /// The last lines that it wrote to standard error, oldest first.
    pub stderr: Vec<Box<str>>,
}

impl Death {
    /// The death of somebody who left no words.
    pub(crate) fn silent(status: impl Into<Box<str>>) -> Self {
        Self { status: status.into(), stderr: Vec::new() }
    }

    /// The death of a child; without a status, of one that spoke no more and was ended for that.
    pub(crate) fn of_child(status: Option<ExitStatus>, stderr: Vec<Box<str>>) -> Self {
        let status = match status {
            Some(status) => status.to_string().into(),
            None => "it closed its standard input or output, and was ended".into(),
        };
        Self { status, stderr }
    }
}

impl Moment {
    /// Bytes that it takes beyond those of every moment.
    fn stderr_bytes(&self) -> usize {
        match &self.what {
            Happening::AgentDied(death) => death.stderr.iter().map(|line| line.len()).sum(),
            Happening::Created
            | Happening::Attached(_)
            | Happening::Resumed(_)
            | Happening::Parked
            | Happening::ParkedByRestart
            | Happening::Restored
            | Happening::Closed
            | Happening::Expired => 0,
        }
    }
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
            Self::AgentDied(_) => "agent_died",
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
pub(crate) struct Timeline(Mutex<TimelineParts>);

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct TimelineLine<Id, M> {
    id: Id,
    /// What happened to it; nothing if it was forgotten.
    moment: Option<M>,
}

#[derive(Debug, Default)]
struct TimelineParts {
    history: History,
    since: Option<Timestamp>,
    sessions: HashMap<SessionId, VecDeque<(u64, Moment)>>,
    /// Every moment by its number, oldest first. It may name some that are gone.
    order: VecDeque<(u64, SessionId)>,
    /// How many of those are.
    gone: usize,
    /// Bytes of what dead agents wrote.
    stderr_bytes: usize,
    last_number: u64,
}

impl Timeline {
    /// What the processes before this one have written into a file in `directory`, and what is going to
    /// happen.
    pub(crate) fn open(directory: &Path) -> Self {
        let file = directory.join("timeline.jsonl");
        let (history, lines) = History::open(&file, TIMELINE_FILE_BYTES);
        let since = lines.iter().find_map(|line: &TimelineLine<SessionId, Moment>| {
            line.moment.as_ref().map(|moment| moment.at)
        });
        let mut inner = TimelineParts::default();
        for TimelineLine { id, moment } in lines {
            match moment {
                Some(moment) => inner.note(&id, moment, BOUNDS),
                None => inner.forget(&id),
            }
        }
        Self(Mutex::new(TimelineParts { history, since, ..inner }))
    }

    /// Notes that something happened to a session.
    pub(crate) fn note(&self, id: &SessionId, moment: Moment) {
        let mut inner = self.lock();
        inner.history.add(&TimelineLine { id, moment: Some(&moment) });
        inner.note(id, moment, BOUNDS);
    }

    /// What is known of a session, oldest first.
    pub(crate) fn of(&self, id: &SessionId) -> Vec<Moment> {
        let inner = self.lock();
        let moments = inner.sessions.get(id).into_iter().flatten();
        moments.map(|(_, moment)| moment.clone()).collect()
    }

    /// Forgets a session.
    pub(crate) fn forget(&self, id: &SessionId) {
        let mut inner = self.lock();
        inner.history.add(&TimelineLine::<_, Moment> { id, moment: None });
        inner.forget(id);
    }

    /// When what it has from processes before this one began; nothing if there was nothing.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.lock().since
    }

    fn lock(&self) -> MutexGuard<'_, TimelineParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimelineParts {
    fn note(&mut self, id: &SessionId, moment: Moment, bounds: TimelineBounds) {
        self.last_number += 1;
        self.stderr_bytes += moment.stderr_bytes();
        let moments = self.sessions.entry(id.clone()).or_default();
        if moments.len() == moments.capacity() {
            moments.reserve_exact(ROOM_AT_ONCE); // most sessions have two, and there are many sessions
        }
        moments.push_back((self.last_number, moment));
        let one_too_many = match moments.len() > bounds.of_a_session {
            true => moments.pop_front(),
            false => None,
        };
        self.order.push_back((self.last_number, id.clone()));
        self.have_gone(one_too_many);
        while self.order.len() > bounds.of_all || self.stderr_bytes > bounds.stderr_bytes {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, id)) = self.order.pop_front() else { return self.stderr_bytes = 0 };
        if !is_there(&self.sessions, &id, number) {
            self.gone -= 1;
        } else if let Some(moments) = self.sessions.get_mut(&id) {
            let dropped = moments.pop_front();
            self.stderr_bytes -= dropped.map_or(0, |(_, moment)| moment.stderr_bytes());
            if moments.is_empty() {
                self.sessions.remove(&id);
            }
        }
    }

    fn forget(&mut self, id: &SessionId) {
        let moments = self.sessions.remove(id).unwrap_or_default();
        self.have_gone(moments);
    }

    /// Moments are gone that the order still names. Once most that it names are, it is put in order:
    /// sessions come and go for years.
    fn have_gone(&mut self, moments: impl IntoIterator<Item = (u64, Moment)>) {
        for (_, moment) in moments {
            self.gone += 1;
            self.stderr_bytes -= moment.stderr_bytes();
        }
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

    fn within(of_a_session: usize, of_all: usize) -> TimelineBounds {
        TimelineBounds { of_a_session, of_all, ..BOUNDS }
    }

    fn death(millis: u64, bytes: usize) -> Moment {
        let death =
            Death { status: "exit status: 1".into(), stderr: vec!["x".repeat(bytes).into()] };
        Moment { what: Happening::AgentDied(Box::new(death)), ..moment(millis) }
    }

    fn times(inner: &TimelineParts, id: &SessionId) -> Vec<u64> {
        let moments = inner.sessions.get(id).into_iter().flatten();
        moments.map(|(_, moment)| moment.at.as_millis()).collect()
    }

    #[test]
    fn the_oldest_moments_of_a_session_go_first() {
        let (mut inner, id) = (TimelineParts::default(), SessionId::parse("a").unwrap());
        for millis in 0..5 {
            inner.note(&id, moment(millis), within(3, 100));
        }
        assert_eq!(times(&inner, &id), [2, 3, 4]);
    }

    #[test]
    fn the_oldest_moments_of_all_go_first_and_with_the_last_the_session() {
        let (mut inner, [a, b]) =
            (TimelineParts::default(), ["a", "b"].map(|id| SessionId::parse(id).unwrap()));
        for (millis, id) in [(0, &a), (1, &b), (2, &b), (3, &b), (4, &b)] {
            inner.note(id, moment(millis), within(3, 4));
        }
        assert!(!inner.sessions.contains_key(&a));
        assert_eq!(times(&inner, &b), [2, 3, 4]);
        inner.forget(&b);
        for millis in 5..20 {
            inner.note(&a, moment(millis), within(9, 4));
        }
        assert_eq!((times(&inner, &a), inner.order.len()), (vec![16, 17, 18, 19], 4));
    }

    #[test]
    fn the_next_process_knows_what_happened() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|id| SessionId::parse(id).unwrap());
        let back = Return {
            away: Some(Duration::from_millis(21_500)),
            replayed: 3,
            gap: Some(Gap::PositionUnknown),
            lost: 1,
        };
        let died = death(3, 10);
        let resumed = Moment { what: Happening::Resumed(Box::new(back)), ..moment(2) };
        let first = Timeline::open(dir.path());
        assert_eq!(first.since(), None);
        first.note(&a, moment(1));
        first.note(&b, moment(1));
        first.note(&a, resumed.clone());
        first.note(&a, died.clone());
        first.forget(&b);
        let second = Timeline::open(dir.path());
        assert_eq!(second.of(&a), [moment(1), resumed, died]);
        assert_eq!((second.of(&b), second.since()), (vec![], Some(Timestamp::from_millis(1))));
    }

    #[test]
    fn sessions_that_are_forgotten_leave_nothing() {
        let (mut inner, stays) = (TimelineParts::default(), SessionId::parse("stays").unwrap());
        inner.note(&stays, moment(0), within(3, 1_000));
        for number in 0..1_000 {
            let id = SessionId::parse(&format!("goes-{number}")).unwrap();
            for millis in 0..5 {
                inner.note(&id, moment(millis), within(3, 1_000));
            }
            inner.forget(&id);
        }
        inner.note(&stays, moment(1), within(3, 1_000));
        assert_eq!(times(&inner, &stays), [0, 1]);
        assert!(inner.order.len() < 10, "{} are named still", inner.order.len());
        assert_eq!(inner.sessions.len(), 1);
    }

    #[test]
    fn what_dead_agents_wrote_has_a_bound_however_it_goes() {
        let bounds = TimelineBounds { of_a_session: 3, of_all: 1_000, stderr_bytes: 250 };
        let (mut inner, [a, b]) =
            (TimelineParts::default(), ["a", "b"].map(|id| SessionId::parse(id).unwrap()));
        for (millis, id) in [(0, &a), (1, &b), (2, &b)] {
            inner.note(id, death(millis, 100), bounds);
        }
        assert_eq!((times(&inner, &a), times(&inner, &b)), (vec![], vec![1, 2]));
        for millis in 3..8 {
            inner.note(&b, death(millis, 10), bounds);
        }
        assert_eq!((times(&inner, &b), inner.stderr_bytes), (vec![5, 6, 7], 30));
        inner.forget(&b);
        assert_eq!(inner.stderr_bytes, 0);
        inner.note(&a, death(9, 251), bounds);
        assert_eq!((times(&inner, &a), inner.stderr_bytes), (vec![], 0));
    }
}
