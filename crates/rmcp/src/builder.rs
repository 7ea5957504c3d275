//! What is put together before a manager begins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rejoin::core::record::Record;
use rejoin::mcp::parts::Streams;
use rejoin::store::{Store, Unavailable};
use rejoin::{Cleanup, Clock, ServerSettings, SessionHook, Sessions};
use rmcp::transport::streamable_http_server::session::local::SessionConfig;

use crate::live::Live;
use crate::manager::DurableSessionManager;

/// After how much silence a feed wakes up; what is said to the client meanwhile is rmcp's to say.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What is put together before a manager begins.
pub struct Builder {
    sessions: rejoin::Builder,
    sse_retry: Duration,
    handler_idle_ttl: Option<Duration>,
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            sessions: Sessions::builder(store),
            sse_retry: SessionConfig::DEFAULT_SSE_RETRY,
            handler_idle_ttl: Some(SessionConfig::DEFAULT_KEEP_ALIVE),
        }
    }

    /// Has a say in what becomes of a session whose client has gone: its last stream has ended, and it has no
    /// request under way. `hook` gets the session and the right to clean it up, now, later or on a condition
    /// (see [`Cleanup`]); dropped unused, that falls back to the ttl of the settings, and once the client has
    /// come back it does nothing.
    ///
    /// Without a hook a session is kept for the ttl of the settings.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use rejoin_rmcp::{DurableSessionManager, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rejoin_rmcp::store::Unavailable> {
    /// let manager = DurableSessionManager::builder(Arc::new(MemoryStore::default()))
    ///     .on_session_disconnect(|session, cleanup| async move {
    ///         println!("{} has gone; it has five minutes to come back", session.id());
    ///         let _ = cleanup.after(Duration::from_secs(300)).await;
    ///     })
    ///     .start()?;
    /// # drop(manager);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_session_disconnect<H, F>(self, hook: H) -> Self
    where
        H: Fn(Record, Cleanup) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.hook(OnDisconnect(hook))
    }

    /// The same for whoever wants to hear of more than disconnects.
    #[must_use]
    pub fn hook(mut self, hook: impl SessionHook) -> Self {
        self.sessions = self.sessions.hook(hook);
        self
    }

    /// How sessions are treated: above all how long they are kept without a client (`session.lifetime`).
    #[must_use]
    pub fn settings(mut self, settings: ServerSettings) -> Self {
        self.sessions = self.sessions.settings(settings);
        self
    }

    /// The time line that the store was opened under.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.sessions = self.sessions.clock(clock);
        self
    }

    /// When a client should come back whose stream broke. It must find a server then: clients try twice.
    #[must_use]
    pub fn sse_retry(mut self, retry: Duration) -> Self {
        self.sse_retry = retry;
        self
    }

    /// How long the handler of a session is kept that has no client and nothing to do, five minutes if nobody
    /// says otherwise. The session stays, and gets another handler when its client comes.
    #[must_use]
    pub fn handler_idle_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.handler_idle_ttl = ttl;
        self
    }

    /// Begins. To be called inside a tokio runtime.
    pub fn start(self) -> Result<DurableSessionManager, Unavailable> {
        Ok(DurableSessionManager {
            streams: Streams::of(self.sessions.start()?, LOOK_AGAIN),
            live: Live::default(),
            sse_retry: self.sse_retry,
            handler_idle_ttl: self.handler_idle_ttl,
            may_run_again: Arc::default(),
        })
    }
}

/// A hook that is a function.
struct OnDisconnect<H>(H);

#[async_trait]
impl<H, F> SessionHook for OnDisconnect<H>
where
    H: Fn(Record, Cleanup) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    async fn disconnected(&self, session: Record, cleanup: Cleanup) {
        (self.0)(session, cleanup).await;
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}
