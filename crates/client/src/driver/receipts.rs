//! Who waits to hear what became of a message.

use std::collections::HashMap;

use rejoin_core::InSeq;
use rejoin_core::client::{GivenUp, MessageId};
use tokio::sync::oneshot;

/// What became of a message: its number in the in log, or why it has none.
pub(crate) type Answer = Result<InSeq, GivenUp>;

/// Those who wait. Their number is bounded by the brain's outbox, which gives up what it has no room
/// for, and by those who send the same message again while it waits.
#[derive(Debug, Default)]
pub(super) struct Receipts(HashMap<MessageId, Vec<oneshot::Sender<Answer>>>);

impl Receipts {
    /// Somebody wants to know. Those who do not want to any more are forgotten.
    pub(super) fn expect(&mut self, message_id: MessageId, receipt: oneshot::Sender<Answer>) {
        let waiting = self.0.entry(message_id).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(receipt);
    }

    /// It is known: everybody who waits for it is told.
    pub(super) fn answer(&mut self, message_id: &MessageId, answer: Answer) {
        for receipt in self.0.remove(message_id).unwrap_or_default() {
            let _ = receipt.send(answer);
        }
    }
}
