//! Who wants to know when a session changes. A store announces each change once readers can see it, so
//! readers need no other wake-up, whoever made the change and whether or not its caller waits for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::SessionId;
use tokio::sync::Notify;

/// Everybody who waits for changes of a store's sessions. For those who write stores.
#[derive(Clone, Default)]
pub struct ChangeBoard(Arc<Board>);

#[derive(Default)]
struct Board {
    sessions: Mutex<Subscribers>,
    has_failed: AtomicBool,
}

type Subscribers = HashMap<SessionId, Vec<Arc<Notify>>>;

/// Is told when a session has changed. What happens between two calls of [`Changes::changed`] is not
/// missed: subscribe, look, then wait.
#[must_use = "it is told of nothing once it is dropped"]
pub struct Changes {
    session: SessionId,
    told: Arc<Notify>,
    board: ChangeBoard,
}

impl ChangeBoard {
    /// Tells of all changes of a session from now on.
    pub fn subscribe(&self, id: &SessionId) -> Changes {
        let told = Arc::new(Notify::new());
        self.lock().entry(id.clone()).or_default().push(Arc::clone(&told));
        Changes { session: id.clone(), told, board: self.clone() }
    }

    /// These sessions have changed, and readers can see it.
    pub fn announce<'a>(&self, sessions: impl IntoIterator<Item = &'a SessionId>) {
        self.announcement(sessions).make();
    }

    /// What there is to announce of these sessions, for stores that know a better place to do it from.
    pub(crate) fn announcement<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
    ) -> Announcement {
        let board = self.lock();
        if board.is_empty() {
            return Announcement::default();
        }
        let told = sessions.into_iter().filter_map(|id| board.get(id)).flatten();
        Announcement(told.cloned().collect())
    }

    /// The store makes no changes any longer: everybody who waits is told.
    pub fn announce_failure(&self) {
        self.0.has_failed.store(true, Ordering::Release);
        self.lock().values().flatten().for_each(|told| told.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who are to be told of changes that readers can see by now.
#[derive(Debug, Default)]
pub(crate) struct Announcement(Vec<Arc<Notify>>);

impl Announcement {
    pub(crate) fn make(self) {
        self.0.iter().for_each(|told| told.notify_one());
    }
}

impl Changes {
    /// Waits until the session has changed since the last call, or since it was subscribed to. One return may
    /// stand for several changes, and for none. Nothing is missed if it is dropped.
    pub async fn changed(&mut self) {
        self.told.notified().await;
    }

    /// Whether the store makes no changes any longer: it has failed, or was closed.
    pub fn are_over(&self) -> bool {
        self.board.0.has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        if let Some(told) = board.get_mut(&self.session) {
            told.retain(|told| !Arc::ptr_eq(told, &self.told));
            if told.is_empty() {
                board.remove(&self.session);
            }
        }
    }
}

impl fmt::Debug for ChangeBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeBoard").finish_non_exhaustive()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Changes").field(&self.session).finish()
    }
}
