//! Which answers a client has fetched, of sessions where somebody may ask for the others: whoever goes over to a
//! session with `reconnect_session` is given those.
//!
//! It is known here at once, and written down in the session's next answer: a commit for each would double what a
//! call costs. So what was fetched since the last answer is forgotten when the process is killed, and such a result
//! is given once more.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rejoin_core::{Seq, SessionId};

/// Answers of a session of which it is known here; older ones are mostly gone.
const MOST_FETCHED: usize = 4_096;

/// Those of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Fetched(Mutex<HashMap<SessionId, Answers>>);

/// Those of one session.
#[derive(Debug, Default)]
struct Answers {
    known: BTreeSet<Seq>,
    /// Those of them that no later answer says to be fetched.
    unwritten: BTreeSet<Seq>,
}

impl Fetched {
    /// A client has fetched an answer.
    pub(crate) fn note(&self, session: &SessionId, seq: Seq) {
        let mut sessions = self.lock();
        let answers = sessions.entry(session.clone()).or_default();
        if answers.known.insert(seq) {
            answers.unwritten.insert(seq);
        }
        for answers in [&mut answers.known, &mut answers.unwritten] {
            if answers.len() > MOST_FETCHED {
                answers.pop_first();
            }
        }
    }

    /// Whether a client has fetched an answer from this process.
    pub(crate) fn contains(&self, session: &SessionId, seq: Seq) -> bool {
        self.lock().get(session).is_some_and(|answers| answers.known.contains(&seq))
    }

    /// Those that the session's next answer is to say to be fetched.
    pub(crate) fn take_unwritten(&self, session: &SessionId) -> Vec<Seq> {
        let mut sessions = self.lock();
        let unwritten = sessions.get_mut(session).map(|answers| &mut answers.unwritten);
        unwritten.map(std::mem::take).unwrap_or_default().into_iter().collect()
    }

    /// Forgets a session that is over.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Answers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_is_written_once_and_known_until_its_session_is_over() {
        let (fetched, session) = (Fetched::default(), SessionId::from_random([1; 16]));
        for seq in [2, 1, 2] {
            fetched.note(&session, Seq::new(seq));
        }
        assert_eq!(fetched.take_unwritten(&session), [1, 2].map(Seq::new));
        fetched.note(&session, Seq::new(2));
        assert_eq!(fetched.take_unwritten(&session), []);
        assert!(fetched.contains(&session, Seq::new(2)));
        fetched.forget(&session);
        assert!(!fetched.contains(&session, Seq::new(2)));
    }
}
