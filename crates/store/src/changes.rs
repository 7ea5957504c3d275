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

type Subscribers = HashMap<SessionId, Vec<Arc<Subscriber>>>;

#[derive(Debug)]
struct Subscriber {
    told: Notify,
    /// Whether it is told of messages too.
    of_messages: AtomicBool,
}

/// How much of a session has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// Messages were entered: only their readers need to look.
    Messages,
    /// Anything.
    Anything,
}

/// Is told when a session has changed. What happens between two calls of [`Changes::changed`] is not
/// missed: subscribe, look, then wait.
#[must_use = "it is told of nothing once it is dropped"]
pub struct Changes {
    session: SessionId,
    subscriber: Arc<Subscriber>,
    board: ChangeBoard,
}

impl ChangeBoard {
    /// Tells of all changes of a session from now on.
    pub fn subscribe(&self, id: &SessionId) -> Changes {
        let of_messages = AtomicBool::new(false);
        let subscriber = Arc::new(Subscriber { told: Notify::new(), of_messages });
        self.lock().entry(id.clone()).or_default().push(Arc::clone(&subscriber));
        Changes { session: id.clone(), subscriber, board: self.clone() }
    }

    /// A session has changed, and readers can see it.
    pub fn announce(&self, session: &SessionId, news: News) {
        self.announcement([(session, news)]).make();
    }

    /// What there is to announce of these sessions, for stores that know a better place to do it from.
    pub(crate) fn announcement<'a>(
        &self,
        sessions: impl IntoIterator<Item = (&'a SessionId, News)>,
    ) -> Announcement {
        let board = self.lock();
        if board.is_empty() {
            return Announcement::default();
        }
        let concerned = sessions.into_iter().flat_map(|(id, news)| {
            let subscribers = board.get(id).into_iter().flatten();
            subscribers.filter(move |subscriber| subscriber.wants(news))
        });
        Announcement(concerned.cloned().collect())
    }

    /// The store makes no changes any longer: everybody who waits is told.
    pub fn announce_failure(&self) {
        self.0.has_failed.store(true, Ordering::Release);
        self.lock().values().flatten().for_each(|subscriber| subscriber.told.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber {
    fn wants(&self, news: News) -> bool {
        match news {
            News::Messages => self.of_messages.load(Ordering::Relaxed),
            News::Anything => true,
        }
    }
}

/// Those who are to be told of changes that readers can see by now.
#[derive(Debug, Default)]
pub(crate) struct Announcement(Vec<Arc<Subscriber>>);

impl Announcement {
    pub(crate) fn make(self) {
        self.0.iter().for_each(|subscriber| subscriber.told.notify_one());
    }
}

impl Changes {
    /// The same, and from now on also told when messages were entered.
    pub fn and_messages(self) -> Self {
        self.subscriber.of_messages.store(true, Ordering::Relaxed);
        self
    }

    /// Waits until the session has changed since the last call, or since it was subscribed to. One return may
    /// stand for several changes, and for none. Nothing is missed if it is dropped.
    pub async fn changed(&mut self) {
        self.subscriber.told.notified().await;
    }

    /// Whether the store makes no changes any longer: it has failed, or was closed.
    pub fn are_over(&self) -> bool {
        self.board.0.has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        if let Some(subscribers) = board.get_mut(&self.session) {
            subscribers.retain(|other| !Arc::ptr_eq(other, &self.subscriber));
            if subscribers.is_empty() {
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
