//! The stream: what an application reads of a session.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use rejoin_core::client::Status;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::builder::Builder;
use crate::handle::Handle;
use crate::incoming::{Event, Incoming};

/// A session that outlives its connections, as a stream of what happens in it.
///
/// Asking for the next item says that the one before it was handled: only then is the position kept
/// that covers it, and the server told. A program that dies in between gets that item again. So read
/// it in a loop, and do what an event asks for before going on.
///
/// Dropping it, like [`close`](Self::close), leaves the session on the server; to end it there is
/// [`Handle::end`].
#[derive(Debug)]
pub struct Session {
    items: mpsc::UnboundedReceiver<Incoming>,
    handled: watch::Sender<u64>,
    /// Whether an item was handed out that is not counted as handled.
    holds_one: bool,
    handle: Handle,
    driver: JoinHandle<()>,
}

impl Session {
    /// Begins to describe a session at the server with this address: `ws://127.0.0.1:8181/ws`.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url.into())
    }

    pub(crate) fn new(
        items: mpsc::UnboundedReceiver<Incoming>,
        handled: watch::Sender<u64>,
        handle: Handle,
        driver: JoinHandle<()>,
    ) -> Self {
        Self { items, handled, holds_one: false, handle, driver }
    }

    /// The next thing that happens; nothing after the end. The item before this one counts as handled.
    /// Nothing is lost if it is dropped half-way.
    pub async fn next(&mut self) -> Option<Incoming> {
        std::future::poll_fn(|cx| self.poll_item(cx)).await
    }

    /// The next event; everything else is passed over, gaps too.
    pub async fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Incoming::Event(event) = self.next().await? {
                return Some(event);
            }
        }
    }

    /// A sender to this session.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// How things stand now; see [`Handle::status`].
    pub fn status(&self) -> Status {
        self.handle.status()
    }

    /// Goes away, and waits until that is done. The last item counts as handled, what is to be kept is
    /// kept. The session stays on the server.
    pub async fn close(mut self) {
        self.settle();
        self.handle.close();
        let _ = (&mut self.driver).await;
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        self.settle();
        if self.handle.is_closed() {
            return Poll::Ready(None);
        }
        let item = std::task::ready!(self.items.poll_recv(cx));
        self.holds_one = item.is_some();
        Poll::Ready(item)
    }

    /// The item that was handed out is handled.
    fn settle(&mut self) {
        if std::mem::take(&mut self.holds_one) {
            self.handled.send_modify(|handled| *handled += 1);
        }
    }
}

impl Stream for Session {
    type Item = Incoming;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        self.poll_item(cx)
    }
}
