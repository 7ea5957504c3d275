//! Waiting for a session's next events without being attached to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::SessionId;
use tokio::sync::watch;

/// Everybody who waits, by session.
#[derive(Clone, Default)]
pub(crate) struct Watches(Arc<Mutex<HashMap<SessionId, watch::Sender<()>>>>);

/// Is told when a session has something new. What happens between two calls of [`Watch::stirred`] is
/// not missed: look first, then wait.
pub struct Watch {
    session: SessionId,
    news: Option<watch::Receiver<()>>,
    watches: Watches,
}

impl Watch {
    /// Waits until something has happened since the last call, or since it was made.
    pub async fn stirred(&mut self) {
        if let Some(news) = &mut self.news
            && news.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await; // the server is gone
    }
}

impl Watches {
    pub(crate) fn watch(&self, id: &SessionId) -> Watch {
        let mut sessions = self.lock();
        let sender = sessions.entry(id.clone()).or_insert_with(|| watch::Sender::new(()));
        let news = Some(sender.subscribe());
        Watch { session: id.clone(), news, watches: self.clone() }
    }

    /// Something is new in a session.
    pub(crate) fn stir(&self, id: &SessionId) {
        if let Some(sender) = self.lock().get(id) {
            sender.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last one who watches takes the entry away.
impl Drop for Watch {
    fn drop(&mut self) {
        let mut sessions = self.watches.lock();
        self.news = None;
        if sessions.get(&self.session).is_some_and(|sender| sender.receiver_count() == 0) {
            sessions.remove(&self.session);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.session).finish()
    }
}
