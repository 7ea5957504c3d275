//! What the application wants besides sending. Wishes do not queue: one that is wished twice before it
//! is seen is the same wish, so that wishing never waits and never fails.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

/// Something the application wants. Seen in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The connection dropped.
    Cut,
    /// A wait cut short.
    Wake,
    /// The agent's state.
    State,
    /// The session's end.
    End,
}

const ALL: [Wish; 4] = [Wish::Cut, Wish::Wake, Wish::State, Wish::End];

/// Wishes that were not seen yet.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pending: AtomicU8,
    closed: AtomicBool,
    news: Notify,
}

impl Wishes {
    pub(crate) fn wish(&self, wish: Wish) {
        self.pending.fetch_or(wish.bit(), Ordering::AcqRel);
        self.news.notify_one();
    }

    /// The last wish: that the driver goes.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.news.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until there may be a new one.
    pub(super) async fn changed(&self) {
        self.news.notified().await;
    }

    pub(super) fn take(&self) -> impl Iterator<Item = Wish> + use<> {
        let pending = self.pending.swap(0, Ordering::AcqRel);
        ALL.into_iter().filter(move |wish| pending & wish.bit() != 0)
    }
}

impl Wish {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}
