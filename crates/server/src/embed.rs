//! The short way to build an agent into an axum program: sessions in a directory, and their routes.
//!
//! Settings are the defaults, and there is no authentication, so it serves loopback addresses only. Programs with other
//! wishes put [`Sessions`], [`Service`] and [`web::router`] together themselves.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use rejoin::{agents::Example, embed};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let sessions = embed::open(Path::new("sessions"), Example::default()).await?;
//! let routes = axum::Router::new().merge(sessions.router()); // and routes of your own
//! sessions.serve(tokio::net::TcpListener::bind("127.0.0.1:8181").await?, routes).await?;
//! # Ok(())
//! # }
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt as _;
use rejoin_core::keys::{KeyError, KeyRing, SecretKey};
use rejoin_core::limits::LogBounds;
use rejoin_core::state::Recovery;
use rejoin_store::Unavailable;
use rejoin_store::embedded::{Damage, EmbeddedStore, OpenError, Options};
use tokio::net::TcpListener;

use crate::access::Open;
use crate::agent::Agent;
use crate::clock::Clock;
use crate::limits::embed as limits;
use crate::random;
use crate::service::{Service, ServiceSettings};
use crate::sessions::Sessions;
use crate::web::{self, WebSettings};

/// Where [`serve`] listens, as the binary does.
const ADDRESS: &str = "127.0.0.1:8181";

/// The file with the secret that signs reconnect tokens and seals states.
const KEY_FILE: &str = "signing.key";

/// Why sessions can't be opened or served.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store does not work.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The signing key can't be read or made.
    #[error("the signing key {path} can't be used: {source}")]
    Key {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The signing key is damaged.
    #[error(transparent)]
    BadKey(#[from] KeyError),
    /// Everybody on the network could use every session.
    #[error("{0} is no loopback address; serve `web::router` with authentication there")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Listener(#[from] io::Error),
}

/// Sessions of one agent, kept in a directory.
#[derive(Clone, Debug)]
pub struct Embedded {
    service: Service,
}

/// Opens the sessions in `directory`, which is made if need be, and starts `agent` where it was at work. Blocks while
/// it reads what is there.
pub async fn open(directory: &Path, agent: impl Agent) -> Result<Embedded, EmbedError> {
    let clock = Clock::start();
    let store = Arc::new(open_store(directory, clock)?);
    let keys = Arc::new(KeyRing::new(signing_key(&directory.join(KEY_FILE))?, Vec::new()));
    let sessions = Sessions::builder(store).agent(agent).clock(clock).start()?;
    let keys = Arc::new(move || Arc::clone(&keys));
    let service = Service::new(sessions, keys, ServiceSettings::default());
    service.sessions().resume_work().await?;
    Ok(Embedded { service })
}

/// Serves `agent` on 127.0.0.1:8181 with its sessions in `directory`, until Ctrl-C.
pub async fn serve(directory: &Path, agent: impl Agent) -> Result<(), EmbedError> {
    let embedded = open(directory, agent).await?;
    let listener = TcpListener::bind(ADDRESS).await?;
    let routes = embedded.router();
    embedded.serve(listener, routes).await
}

impl Embedded {
    /// `/ws`, `/api` and `/metrics`, to be merged into a router. Callers are told apart by their sessions' ids only, and only
    /// pages and hosts with loopback names are served.
    pub fn router(&self) -> Router {
        web::router(self.service.clone(), Arc::new(Open), WebSettings::default())
    }

    /// Serves these routes until Ctrl-C, then parks every session.
    pub async fn serve(self, listener: TcpListener, routes: Router) -> Result<(), EmbedError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(EmbedError::NotLoopback(address));
        }
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true); // or each event waits for the acknowledgement of the last
        });
        let routes = routes.into_make_service_with_connect_info::<SocketAddr>();
        tokio::select! {
            served = axum::serve(listener, routes) => served?,
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(self.service.close().await?)
    }

    /// What transports ask for on behalf of callers, for everything else.
    pub fn service(&self) -> &Service {
        &self.service
    }
}

/// A store in a directory, with default bounds. What was lost, if the files were damaged, is logged, and told to clients.
pub fn open_store(directory: &Path, clock: Clock) -> Result<EmbeddedStore, OpenError> {
    let options = Options {
        directory: directory.to_owned(),
        bounds: LogBounds::default(),
        max_buffered_bytes: limits::MAX_BUFFERED_BYTES,
        max_bytes_per_principal: limits::MAX_BUFFERED_BYTES,
        audit_max: limits::AUDIT_MAX,
        memory_bytes: limits::MEMORY_BYTES,
        disk_reserve: limits::DISK_RESERVE,
        notice_copies: true,
        accept_data_loss: false,
        recovery: Recovery {
            now: clock.now(),
            keep_for: limits::KEEP_FOR,
            longest: limits::KEEP_FOR,
        },
        random: Box::new(fill),
    };
    let (store, report) = EmbeddedStore::open(options)?;
    for damage in &report.damage {
        if *damage == Damage::PutBack {
            tracing::warn!("a backup was restored; sessions begin a new epoch");
        } else {
            tracing::error!(%damage, "the store was damaged");
        }
    }
    Ok(store)
}

/// A new epoch's name. Without randomness it is not random, but still another one than before.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = nanos.unwrap_or_default().as_nanos().to_le_bytes();
        bytes.iter_mut().zip(nanos).for_each(|(byte, now)| *byte = now);
    }
}

/// The key in the file, which is made with a random one if there is none.
fn signing_key(path: &Path) -> Result<SecretKey, EmbedError> {
    let failed = |source| EmbedError::Key { path: path.display().to_string(), source };
    match fs::read(path) {
        Ok(secret) => Ok(SecretKey::new(&secret)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret: [u8; 32] = random::bytes()?;
            write_key(path, &secret).map_err(failed)?;
            Ok(SecretKey::new(&secret)?)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
fn write_key(path: &Path, secret: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(secret)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::agents::Example;

    #[tokio::test]
    async fn address_beyond_loopback_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = open(directory.path(), Example::default()).await.unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let routes = embedded.router();
        let refused = embedded.serve(listener, routes).await;
        assert!(matches!(refused, Err(EmbedError::NotLoopback(_))), "{refused:?}");
    }

    #[test]
    fn signing_key_is_made_once_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(KEY_FILE);
        let made = signing_key(&path).unwrap();
        assert_eq!(signing_key(&path).unwrap().id(), made.id());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "short").unwrap();
        assert!(matches!(signing_key(&path), Err(EmbedError::BadKey(_))));
    }
}
