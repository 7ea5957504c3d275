//! Frames on their way to a client. Several are written before they are flushed, and nothing is lost
//! if writing is interrupted to look at something else.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use axum::extract::ws::{Message, WebSocket};
use futures_util::Sink;
use futures_util::stream::SplitSink;

/// While so many bytes wait, nothing more is read from the client: one that asks without listening
/// waits for its answers.
const ENOUGH_BYTES: usize = 64 * 1024;

/// Frames that wait for the socket.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<Message>,
    bytes: usize,
    /// Whether something was written and not flushed.
    unflushed: bool,
}

impl Outbox {
    pub(super) fn text(&mut self, frame: String) {
        self.bytes += frame.len();
        self.frames.push_back(Message::Text(frame.into()));
    }

    pub(super) fn push(&mut self, message: Message) {
        self.frames.push_back(message);
    }

    /// Whether the socket has taken everything.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && !self.unflushed
    }

    /// Whether there is room for answers to more requests.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < ENOUGH_BYTES
    }

    /// Drops what waits: there is no time to write it.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.bytes = 0;
    }

    /// Writes what waits and flushes once. May be dropped and called again.
    pub(super) async fn write(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
    ) -> Result<(), axum::Error> {
        poll_fn(|context| {
            let mut sink = Pin::new(&mut *sink);
            while !self.frames.is_empty() {
                ready!(sink.as_mut().poll_ready(context))?;
                let Some(frame) = self.frames.pop_front() else { break };
                if let Message::Text(text) = &frame {
                    self.bytes = self.bytes.saturating_sub(text.len());
                }
                self.unflushed = true;
                sink.as_mut().start_send(frame)?;
            }
            ready!(sink.poll_flush(context))?;
            self.unflushed = false;
            self.frames = VecDeque::new(); // it may have been long, and may be idle from now on
            Poll::Ready(Ok(()))
        })
        .await
    }
}
