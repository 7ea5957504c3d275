//! What the server behind has no room for yet. A server that speaks without listening, to a client that does the
//! same, must be heard out all the time: if its gateway waited for it to listen, both would wait for ever. So
//! nothing here waits. What can't be sent is put aside, and while something is no further entry is taken; then
//! the in log fills, and the client is told to wait.

use std::collections::VecDeque;

use rejoin_core::InSeq;
use tokio::sync::mpsc::error::TrySendError;

use super::desk::Desk;
use crate::mcp::upstream::{Heard, Link};

/// A message for the server.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) text: String,
    /// The request that it hands over for the first time, if it does.
    pub(super) hands: Option<InSeq>,
}

impl Desk<'_> {
    /// Says something to the server behind that hands no request over.
    pub(super) fn tell_server(&mut self, text: String) {
        self.send(Unsent { text, hands: None });
    }

    /// Writes to the server behind, if it is there. If it has gone that is noticed where it is listened to.
    pub(super) fn send(&mut self, message: Unsent) {
        let Unsent { text, hands } = message;
        let Some(link) = self.link.as_ref().filter(|_| self.unsent.is_empty()) else {
            return match self.link {
                Some(_) => self.unsent.push_back(Unsent { text, hands }),
                None => self.not_handed(hands),
            };
        };
        match link.to.try_send(text) {
            Ok(()) => {}
            Err(TrySendError::Full(text)) => self.unsent.push_back(Unsent { text, hands }),
            Err(TrySendError::Closed(_)) => self.not_handed(hands),
        }
    }

    /// The server has gone, and what was put aside never reached it.
    pub(super) fn take_back_unsent(&mut self) {
        for Unsent { hands, .. } in std::mem::take(&mut self.unsent) {
            self.not_handed(hands);
        }
    }

    fn not_handed(&self, hands: Option<InSeq>) {
        if let Some(in_seq) = hands {
            self.shared.hubs.not_handed(&self.session, in_seq);
        }
    }
}

/// What comes of a server.
#[derive(Debug)]
pub(super) enum Exchange {
    /// It said something.
    Heard(Heard),
    /// It has taken everything that was put aside.
    Sent,
    /// It has gone.
    Gone,
}

/// Hears what the server says next, and sends what was put aside meanwhile. Nothing is lost if it is dropped
/// while it waits.
pub(super) async fn exchange(link: &mut Option<Link>, unsent: &mut VecDeque<Unsent>) -> Exchange {
    let Some(link) = link else { return std::future::pending().await };
    loop {
        tokio::select! {
            heard = link.from.recv() => return heard.map_or(Exchange::Gone, Exchange::Heard),
            Ok(room) = link.to.reserve(), if !unsent.is_empty() => {
                if let Some(Unsent { text, .. }) = unsent.pop_front() {
                    room.send(text);
                }
                if unsent.is_empty() {
                    return Exchange::Sent;
                }
            }
        }
    }
}
