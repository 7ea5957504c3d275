//! The one socket that a driver has at a time, from the wish for it to its end.

use std::future::pending;
use std::pin::Pin;

use crate::socket::{Heard, OpenError, Socket};

/// How far the socket is.
pub(super) enum Link {
    /// There is none and none is wanted.
    None,
    /// One is wanted, as soon as there is room for what it will bring.
    Wanted,
    /// One is being opened.
    Opening(Pin<Box<dyn Future<Output = Result<Box<Socket>, OpenError>> + Send>>),
    /// It is open.
    Open(Box<Socket>),
}

/// Something happened to the socket.
pub(super) enum LinkNews {
    Opened(Result<Box<Socket>, OpenError>),
    Heard(Heard),
}

impl Link {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Waits for what happens next. Without `read` the socket is only written to. Nothing is lost if it
    /// is dropped half-way.
    pub(super) async fn news(&mut self, read: bool) -> LinkNews {
        match self {
            Self::None | Self::Wanted => pending().await,
            Self::Opening(opening) => {
                let opened = opening.await;
                *self = Self::None; // what has answered must not be asked again
                LinkNews::Opened(opened)
            }
            Self::Open(socket) => LinkNews::Heard(socket.turn(read).await),
        }
    }
}
