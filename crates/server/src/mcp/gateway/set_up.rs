//! What a client sets up at the server behind: the handshake, the log level, subscriptions. A gateway keeps
//! their parameters to set up another server, so here is how much of them it keeps.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::book::Book;
use super::client_side::INITIALIZE;
use super::desk::Desk;
use super::pending::Pending;
use crate::limits;
use crate::mcp::own_words::{RpcError, code};
use rejoin_core::InSeq;

/// A client wants to be told of changes to a resource.
pub(super) const SUBSCRIBE: &str = "resources/subscribe";

/// A client no longer wants to be.
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// A client sets how much the server logs.
const SET_LEVEL: &str = "logging/setLevel";

/// Why the handshake is not taken.
pub(crate) fn handshake_too_large() -> String {
    format!("the parameters of `initialize` have more than {} bytes", limits::HANDSHAKE_BYTES)
}

#[derive(Default, Deserialize)]
struct Resource {
    uri: String,
}

impl Desk<'_> {
    /// Why a request is refused that would make the gateway keep too much.
    pub(super) fn check_set_up(&self, in_seq: InSeq) -> Option<RpcError> {
        let pending = self.requests.get(in_seq)?;
        let bytes = params_bytes(pending);
        let too_large = |sentence: String| Some(RpcError::new(code::INVALID_PARAMS, sentence));
        match pending.method() {
            INITIALIZE if bytes > limits::HANDSHAKE_BYTES => too_large(handshake_too_large()),
            SET_LEVEL if bytes > limits::LEVEL_BYTES => too_large(format!(
                "the parameters of `logging/setLevel` have more than {} bytes",
                limits::LEVEL_BYTES
            )),
            SUBSCRIBE => self.check_subscription(pending),
            _ => None,
        }
    }

    /// Counts what is subscribed to, and what is about to be.
    fn check_subscription(&self, pending: &Pending) -> Option<RpcError> {
        let kept = self.keeping.book().subscribed();
        let (count, bytes) = self
            .requests
            .all()
            .filter(|one| one.method() == SUBSCRIBE)
            .fold(kept, |(count, bytes), one| (count + 1, bytes + subscription_bytes(one)));
        let again = self.keeping.book().subscriptions.get(&uri(pending));
        let again = again
            .is_some_and(|known| Some(known.get()) == pending.message.params().map(RawValue::get));
        let fits = count <= limits::SUBSCRIPTIONS && bytes <= limits::SUBSCRIPTION_BYTES;
        (!fits && !again).then(|| {
            let sentence = format!(
                "a session may have {} subscriptions, with parameters of {} bytes in all",
                limits::SUBSCRIPTIONS,
                limits::SUBSCRIPTION_BYTES
            );
            RpcError::new(code::UNAVAILABLE, sentence).because("too_many_subscriptions")
        })
    }

    /// Notes what a request that succeeded has set up.
    pub(super) fn note_set_up(&mut self, pending: &Pending) {
        let params = pending.message.params().map(ToOwned::to_owned);
        match pending.method() {
            SET_LEVEL => self.keeping.change().level = params,
            SUBSCRIBE => {
                let known = self.keeping.book().subscriptions.get(&uri(pending));
                if known.map(|known| known.get()) != params.as_ref().map(|params| params.get())
                    && let Some(params) = params
                {
                    self.keeping.change().subscriptions.insert(uri(pending), params);
                }
            }
            UNSUBSCRIBE if self.keeping.book().subscriptions.contains_key(&uri(pending)) => {
                self.keeping.change().subscriptions.remove(&uri(pending));
            }
            _ => {}
        }
    }
}

impl Book {
    /// How many subscriptions there are, and the bytes that are kept of them.
    fn subscribed(&self) -> (usize, usize) {
        let bytes = self.subscriptions.iter().map(|(uri, params)| uri.len() + params.get().len());
        (self.subscriptions.len(), bytes.sum())
    }
}

fn uri(pending: &Pending) -> String {
    pending.message.read_params::<Resource>().uri
}

fn params_bytes(pending: &Pending) -> usize {
    pending.message.params().map_or(0, |params| params.get().len())
}

fn subscription_bytes(pending: &Pending) -> usize {
    params_bytes(pending) + uri(pending).len()
}
