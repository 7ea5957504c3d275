//! Where connections come in, plain or over TLS. Each has a place ([`Admission`]) for as long as it is
//! open, and an [`Intake`] that says how much is read from it. What is served over them is for
//! [`connections`](crate::serve::connections).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rejoin::web::Intake;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::{Admission, ConnectionBounds, Place};
use crate::limits::{BACKLOG, HANDSHAKE};

/// Takes connections.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    patience: Duration,
    admission: Arc<Admission>,
}

/// A connection that has a place, before its TLS handshake.
pub(crate) struct Accepted {
    tcp: TcpStream,
    pub(crate) peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    place: Place,
}

impl Listener {
    /// Listens on `address`; over TLS if there is something to do it with. A peer that takes no bytes for
    /// as long as `patience` is given up, where the system can do that.
    pub(crate) fn bind(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        patience: Duration,
        bounds: ConnectionBounds,
    ) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?; // else a restart waits for connections of the last process
        socket.bind(address)?;
        let tcp = socket.listen(BACKLOG)?;
        Ok(Self { tcp, tls, patience, admission: Admission::new(bounds) })
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The next connection that there is a place for; others are closed. Errors of the system, such as too
    /// many open files, are logged and waited out. It can be cancelled at any moment.
    pub(crate) async fn accept(&mut self) -> Accepted {
        loop {
            // axum's own, which knows which errors pass.
            let (tcp, peer) = axum::serve::Listener::accept(&mut self.tcp).await;
            if let Some(place) = self.admission.admit(peer.ip()) {
                prepare(&tcp, peer, self.patience);
                return Accepted { tcp, peer, tls: self.tls.clone(), place };
            }
        }
    }
}

fn prepare(tcp: &TcpStream, peer: SocketAddr, patience: Duration) {
    // Frames are written whole: waiting for more to send would only make them late, and where the client
    // acknowledges late (40 ms on Linux) each token of an agent would wait for the one before it.
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%peer, "TCP_NODELAY can't be set: {error}");
    }
    if let Err(error) = give_up_after(tcp, patience) {
        tracing::debug!(%peer, "TCP_USER_TIMEOUT can't be set: {error}");
    }
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

impl Accepted {
    /// The connection once it is ready for HTTP; nothing if its handshake fails or takes too long.
    pub(crate) async fn ready(self) -> Option<Stream> {
        let Self { tcp, peer, tls, place } = self;
        let socket = match tls {
            None => Socket::Plain(tcp),
            Some(acceptor) => Socket::Tls(Box::new(handshake(&acceptor, tcp, peer).await?)),
        };
        Some(Stream { socket, intake: Intake::default(), _place: place })
    }
}

async fn handshake(
    acceptor: &TlsAcceptor,
    tcp: TcpStream,
    peer: SocketAddr,
) -> Option<TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => Some(stream),
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

/// A connection, of which no more is read than its intake says.
pub(crate) struct Stream {
    socket: Socket,
    intake: Intake,
    _place: Place,
}

impl Stream {
    pub(crate) fn intake(&self) -> Intake {
        self.intake.clone()
    }
}

enum Socket {
    /// As it came.
    Plain(TcpStream),
    /// After its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls the same method of whichever socket it is.
macro_rules! forward {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match &mut $stream.get_mut().socket {
            Socket::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Socket::Tls(socket) => Pin::new(socket).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, intake) = (buffer.filled().len(), self.intake.clone());
        if let Some(why) = intake.refusal() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let read = forward!(self, poll_read, context, buffer);
        intake.took(buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_shutdown, context)
    }
}

#[cfg(test)]
mod tests;
