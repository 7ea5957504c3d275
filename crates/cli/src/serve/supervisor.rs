//! Tells systemd how far the server is (`Type=notify`): that it listens, that it drains, and, where a watchdog is set,
//! that it still runs. Without `NOTIFY_SOCKET` nothing is told.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::settings::Environment;

/// How long a message may take; a supervisor that reads none must not hold up the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// What closing may take once draining has ended, generously.
const CLOSING: Duration = Duration::from_secs(30);

/// Whoever started the server and wants to know about it.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    socket: Option<SocketAddr>,
    /// How often it wants to hear of the server, if it does.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that the environment names. Not that of the process: what children must not see is gone from there.
    pub(crate) fn named_in(environment: &Environment) -> Self {
        let number = |name| environment.text(name)?.parse::<u64>().ok();
        let socket = environment.text("NOTIFY_SOCKET").and_then(|name| match address(name) {
            Ok(address) => Some(address),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET can't be used");
                None
            }
        });
        let for_us = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| for_us && *micros > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// The server listens.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The server takes nothing new, and ends after this long at the latest.
    pub(crate) fn stopping(&self, drain_timeout: Duration) {
        let longest = drain_timeout.saturating_add(CLOSING).as_micros();
        let longest = u64::try_from(longest).unwrap_or(u64::MAX);
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={longest}"));
    }

    /// Says that the server runs, twice as often as is asked for; without end. A runtime that has come to a stand says
    /// nothing, and the supervisor starts the server again.
    pub(crate) async fn keep_alive(self) {
        let Some(watchdog) = self.watchdog.filter(|_| self.socket.is_some()) else { return };
        let mut ticks = tokio::time::interval((watchdog / 2).max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.socket else { return };
        let told = UnixDatagram::unbound().and_then(|socket| {
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.send_to_addr(state.as_bytes(), address)
        });
        if let Err(error) = told {
            tracing::warn!(%error, state, "the supervisor can't be told");
        }
    }
}

/// The socket of this name: a path, or behind `@` one that is in no directory.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(abstract_name) => abstract_address(abstract_name),
        None if name.starts_with('/') => SocketAddr::from_pathname(name),
        None => Err(io::Error::other("it is neither a path nor an abstract name")),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &str) -> io::Result<SocketAddr> {
    Err(io::Error::other("there are no abstract names here"))
}
