//! Where connections come in, plain or over TLS, for [`axum::serve()`].
//!
//! ```text
//! let listener = Listener::bind(address, tls.acceptor()?, heartbeat_timeout).await?.with_peers();
//! axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
//! ```

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::{Listener as Accept, ListenerExt as _, TapIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes under way at the same time. Beyond that, new connections wait in the kernel.
const MAX_HANDSHAKES: usize = 1024;

/// Takes connections. Dropping it ends the handshakes that are under way.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<Handshakes>,
    patience: Duration,
}

/// Each handshake is a task of its own, so that a slow one holds up nobody; they are bounded in number
/// and in time.
struct Handshakes {
    acceptor: TlsAcceptor,
    under_way: JoinSet<Option<(Stream, SocketAddr)>>,
}

impl Listener {
    /// Listens on `address`; over TLS if there is something to do it with. A peer that takes no bytes for
    /// as long as `patience` is given up, where the system can do that.
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        patience: Duration,
    ) -> io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let tls = tls.map(|acceptor| Handshakes { acceptor, under_way: JoinSet::new() });
        Ok(Self { tcp, tls, patience })
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The same, in the form for which axum knows how to tell handlers the peer's address.
    pub(crate) fn with_peers(self) -> TapIo<Self, fn(&mut Stream)> {
        self.tap_io(|_| {})
    }
}

impl Accept for Listener {
    type Io = Stream;
    type Addr = SocketAddr;

    /// The next connection that is ready for HTTP. It can be cancelled at any moment: what is under way
    /// is kept in `self`.
    async fn accept(&mut self) -> (Stream, SocketAddr) {
        let patience = self.patience;
        let Some(Handshakes { acceptor, under_way }) = &mut self.tls else {
            let (stream, peer) = accept(&mut self.tcp, patience).await;
            return (Stream::Plain(stream), peer);
        };
        loop {
            tokio::select! {
                Some(done) = under_way.join_next() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                (stream, peer) = accept(&mut self.tcp, patience), if under_way.len() < MAX_HANDSHAKES => {
                    under_way.spawn(handshake(acceptor.clone(), stream, peer));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// The next plain connection. Errors are waited out by axum, which knows which of them pass.
async fn accept(tcp: &mut TcpListener, patience: Duration) -> (TcpStream, SocketAddr) {
    let (stream, peer) = Accept::accept(tcp).await;
    // Frames are written whole: waiting for more to send would only make them late, and where the client
    // acknowledges late (40 ms on Linux) each token of an agent would wait for the one before it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, "TCP_NODELAY can't be set: {error}");
    }
    if let Err(error) = give_up_after(&stream, patience) {
        tracing::debug!(%peer, "TCP_USER_TIMEOUT can't be set: {error}");
    }
    (stream, peer)
}

/// Ends a connection whose peer takes no bytes for so long. A stream of events is only ever written, so
/// nothing else would notice: what is written disappears in buffers, keep-alives included.
#[cfg(target_os = "linux")]
fn give_up_after(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis.max(1))?)
}

/// Elsewhere the system's own patience has to do.
#[cfg(not(target_os = "linux"))]
fn give_up_after(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
) -> Option<(Stream, SocketAddr)> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some((Stream::Tls(Box::new(stream)), peer)),
        Ok(Err(error)) => {
            tracing::debug!(%peer, "no TLS handshake: {error}");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "no TLS handshake within {}s", HANDSHAKE.as_secs());
            None
        }
    }
}

/// A connection.
pub(crate) enum Stream {
    /// As it came.
    Plain(TcpStream),
    /// After its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls the same method of whichever stream it is.
macro_rules! forward {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match $stream {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self.get_mut(), poll_read, context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        forward!(self.get_mut(), poll_write, context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self.get_mut(), poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.get_mut(), poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.get_mut(), poll_shutdown, context)
    }
}

#[cfg(test)]
mod tests;
