//! One WebSocket: opened, written to without waiting, read when there is room, and closed.
//!
//! Writing never waits, for a client that waits to write while its server waits to write reads nothing,
//! and both wait for ever. What is written is bounded by the brain: the messages on their way, acks.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{FutureExt, SinkExt, StreamExt};
use rejoin_core::client::Secret;
use rejoin_core::codes::CloseCode;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderMap, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::frames::{self, Frame};
use crate::limits;

/// Where a socket leads and how it is opened. It has no `Debug`: all of it may be secret.
#[derive(Clone)]
pub(crate) struct Dial {
    pub(crate) url: http::Uri,
    pub(crate) headers: HeaderMap,
    /// The token for `user.authenticate`, where the headers say nothing.
    pub(crate) token: Option<Secret>,
    pub(crate) timeout: Duration,
    pub(crate) max_frame_bytes: usize,
    /// How `wss://` is opened, if not with the certificate authorities of the web.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<std::sync::Arc<rustls::ClientConfig>>,
}

/// What came out of a socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A text frame.
    Text(Utf8Bytes),
    /// A binary frame, of which the protocol has none.
    Binary,
    /// A ping or a pong.
    Life,
    /// The end.
    Ended(Ending),
}

/// How a socket ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
}

/// Why there is no socket.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server answered, with no.
    Refused(Ending),
    /// Nobody answered, or not in words that we know.
    Failed(String),
}

/// An open WebSocket.
pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// What was read while it was opened, in order.
    ahead: VecDeque<Heard>,
    /// Since when something waits to be written.
    unflushed_since: Option<Instant>,
}

impl Socket {
    /// Opens a socket and, where that is done by frame, authenticates.
    pub(crate) async fn open(dial: Dial) -> Result<Box<Self>, OpenError> {
        let opened = tokio::time::timeout(dial.timeout, Self::open_patiently(&dial)).await;
        opened.unwrap_or_else(|_| Err(OpenError::Failed("it took too long".to_owned())))
    }

    async fn open_patiently(dial: &Dial) -> Result<Box<Self>, OpenError> {
        let mut request = dial.url.clone().into_client_request().map_err(open_error)?;
        request.headers_mut().extend(dial.headers.clone());
        let config = WebSocketConfig::default()
            .read_buffer_size(limits::SOCKET_BUFFER_BYTES)
            .write_buffer_size(limits::SOCKET_BUFFER_BYTES)
            .max_message_size(Some(dial.max_frame_bytes))
            .max_frame_size(Some(dial.max_frame_bytes));
        #[cfg(not(feature = "tls"))]
        let opening = tokio_tungstenite::connect_async_with_config(request, Some(config), true);
        #[cfg(feature = "tls")]
        let opening = tokio_tungstenite::connect_async_tls_with_config(
            request,
            Some(config),
            true,
            dial.tls.clone().map(tokio_tungstenite::Connector::Rustls),
        );
        let (stream, _) = opening.await.map_err(open_error)?;
        let mut socket = Box::new(Self { stream, ahead: VecDeque::new(), unflushed_since: None });
        if let Some(token) = &dial.token {
            socket.write(frames::authenticate(token));
            socket.await_authenticated().await?;
        }
        Ok(socket)
    }

    /// What else comes in is kept for later; also the end, which says why.
    async fn await_authenticated(&mut self) -> Result<(), OpenError> {
        let mut ahead = VecDeque::new();
        while ahead.len() < limits::FRAMES_BEFORE_AUTHENTICATED {
            let heard = self.turn(true).await;
            let authenticated = matches!(&heard, Heard::Text(text)
                if frames::read(text) == Ok(Frame::Authenticated));
            let ended = matches!(heard, Heard::Ended(_));
            ahead.push_back(heard);
            if authenticated || ended {
                self.ahead = ahead;
                return Ok(());
            }
        }
        Err(OpenError::Failed("the server did not say that it knows us".to_owned()))
    }

    /// Writes a frame; it leaves during the next [`turn`](Self::turn). Errors show there too.
    pub(crate) fn write(&mut self, text: String) {
        self.write_message(Message::text(text));
    }

    /// Shows the server that this side lives, where there is nothing to say.
    pub(crate) fn write_pong(&mut self) {
        self.write_message(Message::Pong(Bytes::new()));
    }

    fn write_message(&mut self, message: Message) {
        if let Err(error) = self.stream.start_send_unpin(message) {
            tracing::debug!(%error, "a frame could not be written");
        }
        self.unflushed_since.get_or_insert_with(Instant::now);
    }

    /// Writes what waits to be written and, if `read`, waits for the next thing to come in. Nothing is
    /// lost if it is dropped half-way.
    pub(crate) async fn turn(&mut self, read: bool) -> Heard {
        loop {
            let since = self.unflushed_since;
            let stuck = async {
                match since {
                    Some(since) => tokio::time::sleep_until(since + limits::WRITE_TIMEOUT).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                heard = poll_fn(|cx| self.poll_turn(cx, read)) => return heard,
                () = stuck => {
                    if self.unflushed_since == since {
                        tracing::debug!("the socket takes nothing any more");
                        return Heard::Ended(Ending::default());
                    }
                }
            }
        }
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, read: bool) -> Poll<Heard> {
        if self.unflushed_since.is_some() {
            match self.stream.poll_flush_unpin(cx) {
                Poll::Ready(Ok(())) => self.unflushed_since = None,
                // What the server said before it went away is still to be read.
                Poll::Ready(Err(_)) if read => self.unflushed_since = None,
                Poll::Ready(Err(_)) => return Poll::Ready(Heard::Ended(Ending::default())),
                Poll::Pending => {}
            }
        }
        if !read {
            return Poll::Pending;
        }
        if let Some(heard) = self.ahead.pop_front() {
            return Poll::Ready(heard);
        }
        let heard = match ready!(self.stream.poll_next_unpin(cx)) {
            Some(Ok(Message::Text(text))) => Heard::Text(text),
            Some(Ok(Message::Binary(_))) => Heard::Binary,
            Some(Ok(Message::Ping(_))) => {
                self.unflushed_since.get_or_insert_with(Instant::now); // the library's pong
                Heard::Life
            }
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Heard::Life,
            Some(Ok(Message::Close(frame))) => Heard::Ended(ending(frame.as_ref())),
            Some(Err(error)) => {
                tracing::debug!(%error, "the socket broke");
                Heard::Ended(Ending::default())
            }
            None => Heard::Ended(Ending::default()),
        };
        Poll::Ready(heard)
    }

    /// Lets it go without waiting for the server, which is told if its side takes a frame at once.
    pub(crate) fn drop_now(mut self) {
        let _ = self.stream.close(None).now_or_never();
    }

    /// Lets it go after what was written has left, within a bound.
    pub(crate) async fn farewell(mut self) {
        let goodbye = async {
            self.stream.flush().await?;
            self.stream.close(None).await
        };
        let _ = tokio::time::timeout(limits::FAREWELL, goodbye).await;
    }
}

fn ending(frame: Option<&CloseFrame>) -> Ending {
    let code = frame.map(|frame| frame.code.into());
    Ending { code, retry_after: frame.and_then(|frame| frames::retry_after_in(&frame.reason)) }
}

/// A server that does not know us says so before there is a socket to close with a code.
fn open_error(error: Error) -> OpenError {
    let Error::Http(response) = &error else { return OpenError::Failed(error.to_string()) };
    let seconds = response.headers().get(header::RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    let retry_after =
        seconds.map(|seconds| Duration::from_secs(seconds).min(limits::MAX_RETRY_AFTER));
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let code = Some(CloseCode::NotAuthorised.code());
            OpenError::Refused(Ending { code, retry_after })
        }
        _ if retry_after.is_some() => OpenError::Refused(Ending { code: None, retry_after }),
        status => OpenError::Failed(format!("the server answered {status}")),
    }
}
