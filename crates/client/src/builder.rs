//! How a session is described before it is started.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::client::{Client, ClientOptions, Saved, Secret, Status};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::http::{HeaderMap, Uri};

use crate::driver::{Channels, Driver, Equipment, Keeper, Window, Wishes};
use crate::frames::About;
use crate::handle::Handle;
use crate::keep::{Keep, MemoryKeep};
use crate::limits;
use crate::session::Session;
use crate::socket::Dial;

/// The smallest window: one connection says this much about itself.
const SMALLEST_WINDOW: usize = 8;

/// Describes a session. Everything but the address has a default.
#[must_use = "a session begins with `start`"]
pub struct Builder {
    url: String,
    headers: Vec<(String, Secret)>,
    token: Option<Secret>,
    about: About,
    keep: Box<dyn Keep>,
    options: ClientOptions,
    window: Window,
    connect_timeout: Duration,
    max_frame_bytes: usize,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Builder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            headers: Vec::new(),
            token: None,
            about: About::default(),
            keep: Box::new(MemoryKeep::new()),
            options: ClientOptions::default(),
            window: Window {
                items: limits::WINDOW_ITEMS,
                bytes: limits::WINDOW_BYTES,
                patience: limits::PATIENCE,
            },
            connect_timeout: limits::CONNECT_TIMEOUT,
            max_frame_bytes: limits::MAX_FRAME_BYTES,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Says who is calling, by an API key or a token in the header `Authorization: Bearer`.
    pub fn bearer(self, token: &str) -> Self {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {token}"))
    }

    /// Says who is calling by the first frame, `user.authenticate`: for where a proxy eats the header.
    pub fn authenticate_by_frame(mut self, token: &str) -> Self {
        self.token = Some(Secret::new(token));
        self
    }

    /// Adds a header to every opening of a connection. It is treated as a secret.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), Secret::new(value)));
        self
    }

    /// Names the client to the server when it asks for a new session.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.about.client_id = Some(client_id.into());
        self
    }

    /// Names the application's version to the server when it asks for a new session.
    pub fn app_version(mut self, app_version: impl Into<String>) -> Self {
        self.about.app_version = Some(app_version.into());
        self
    }

    /// Where to keep what is needed to come back; in memory if nothing is said.
    pub fn keep(mut self, keep: impl Keep) -> Self {
        self.keep = Box::new(keep);
        self
    }

    /// Begins with this, in place of a [`keep`](Self::keep): a session by its id alone is shown from
    /// the oldest event that the server still holds.
    pub fn resume(self, saved: Saved) -> Self {
        self.keep(MemoryKeep::holding(saved))
    }

    /// Whether a new session is created when the old one is gone and can't be restored. Yes, if nothing
    /// is said.
    pub fn create_when_lost(mut self, create: bool) -> Self {
        self.options.create_when_lost = create;
        self
    }

    /// The brain's own settings: how many messages may be on their way, how many may wait.
    pub fn options(mut self, options: ClientOptions) -> Self {
        self.options = options;
        self
    }

    /// How far the client reads ahead of a slow application: so many items (at least 8) or bytes,
    /// whichever is reached first. Beyond that it stops reading, and the server waits. 256 items and
    /// 1 MiB if nothing is said.
    pub fn window(mut self, items: usize, bytes: usize) -> Self {
        self.window.items = items.max(SMALLEST_WINDOW);
        self.window.bytes = bytes.max(1);
        self
    }

    /// How long the server is told that the client lives while its application handles nothing. After
    /// that the server may park the session; the client comes back when the application does. Ten
    /// minutes if nothing is said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.window.patience = patience;
        self
    }

    /// How long opening a connection may take. Ten seconds if nothing is said.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The largest frame that is read; a larger one ends the connection. 16 MiB if nothing is said.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }

    /// Opens `wss://` with this, in place of the certificate authorities of the web: for a server whose
    /// certificate is of an authority of one's own.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Starts the session: loads what was kept, and connects in the background. Whether that works is
    /// told in the stream. Must be called inside a tokio runtime, where a task is spawned that ends with
    /// the session.
    pub async fn start(self) -> Result<Session, StartError> {
        let dial = self.dial()?;
        let Self { about, keep, options, window, .. } = self;
        let (keeper, saved) = Keeper::load(keep).await.map_err(StartError::Keep)?;
        let (items, items_end) = mpsc::unbounded_channel();
        let (handled, handled_end) = watch::channel(0);
        let (commands, commands_end) = mpsc::channel(limits::COMMANDS);
        let (status, status_end) = watch::channel(Status::Connecting);
        let wishes = Arc::new(Wishes::default());
        let channels = Channels {
            items,
            handled: handled_end,
            commands: commands_end,
            wishes: wishes.clone(),
            status,
        };
        let equipment = Equipment { dial, about, keeper, window };
        let driver = Driver::new(Client::new(options, saved), equipment, channels);
        let driver = tokio::spawn(driver.run());
        let handle = Handle::new(commands, wishes, status_end);
        Ok(Session::new(items_end, handled, handle, driver))
    }

    fn dial(&self) -> Result<Dial, StartError> {
        let url: Uri = self.url.parse().map_err(|_| StartError::Url)?;
        match url.scheme_str() {
            Some("ws") => {}
            Some("wss") if cfg!(feature = "tls") => {}
            Some("wss") => return Err(StartError::NoTls),
            Some(_) | None => return Err(StartError::Url),
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = || StartError::Header { name: name.clone() };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(key, value);
        }
        Ok(Dial {
            url,
            headers,
            token: self.token.clone(),
            timeout: self.connect_timeout,
            max_frame_bytes: self.max_frame_bytes,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }
}

/// Without the address, which may have a secret in it, and without the headers.
impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("about", &self.about)
            .field("options", &self.options)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// Why a session could not be started. What goes wrong later is told in its stream.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is none.
    #[error("the address must look like ws://host:port/ws")]
    Url,
    /// The address is `wss://`, and this program was built without the feature `tls`.
    #[error("wss:// needs the feature `tls` of rejoin-client")]
    NoTls,
    /// A header that can't be sent. Its value is not told, as it may be a secret.
    #[error("the header {name:?} has a name or a value that can't be sent")]
    Header {
        /// Its name.
        name: String,
    },
    /// What was kept can't be loaded.
    #[error("what was kept of the session can't be loaded: {0}")]
    Keep(#[source] io::Error),
}
