//! A stream of a session, in the form that rmcp sends.

use std::collections::VecDeque;

use futures_util::Stream;
use futures_util::stream::unfold;
use rejoin::mcp::parts::{Feed, Next};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use sync_wrapper::SyncStream;

use crate::limits::STAY_AWAY;
use crate::words;

/// What rmcp sends of a feed, from whose beginning `first` was taken. A stream may begin with an empty event.
pub(crate) fn events_of(
    feed: Feed,
    priming: Option<ServerSseMessage>,
    first: Option<Next>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    let mut sending = Sending { feed, ready: priming.into_iter().collect(), more: true };
    if let Some(first) = first {
        sending.take(first);
    }
    SyncStream::new(unfold(sending, Sending::next))
}

struct Sending {
    feed: Feed,
    /// What was read and not yet taken.
    ready: VecDeque<ServerSseMessage>,
    more: bool,
}

impl Sending {
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((event, self));
            }
            if !self.more {
                return None;
            }
            let next = self.feed.next().await;
            self.take(next);
        }
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Messages(messages) => self.ready.extend(messages.iter().filter_map(as_event)),
            Next::Quiet => {} // rmcp says something by itself
            Next::Replaced => {
                self.more = false;
                self.ready.push_back(ServerSseMessage::retry(STAY_AWAY));
            }
            Next::End => self.more = false,
        }
    }
}

fn as_event((id, text): &(String, String)) -> Option<ServerSseMessage> {
    let message = words::server_message(text);
    debug_assert!(message.is_some(), "what is stored is a message");
    Some(ServerSseMessage::new(id.clone(), message?))
}
