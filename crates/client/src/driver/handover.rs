//! Between the brain and the application: how far the one may run ahead of the other, and what has to
//! wait until the application has caught up.
//!
//! An item counts as handled when the application asks for the one after it. Only then is the position
//! saved that covers it, and only after that is it acked. So a program that dies while it works on an
//! event gets that event again; and one that is slow does not lose what was read for it.

use std::collections::VecDeque;
use std::time::Duration;

use rejoin_core::Seq;
use rejoin_core::client::{ClientCommand, Saved};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::incoming::Incoming;

/// How far the brain may run ahead of the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    /// How long the server is told that we live while the application takes nothing.
    pub(crate) patience: Duration,
}

/// What may be done once the application has handled everything before it.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) save: Option<Saved>,
    /// An ack, and the connection it is for; on another one it would be nonsense.
    pub(super) ack: Option<(u64, ClientCommand)>,
}

/// The items on their way to the application, and what waits for them.
#[derive(Debug)]
pub(super) struct Handover {
    window: Window,
    /// Not bounded by itself, but by [`has_room`](Self::has_room): the driver reads nothing without.
    items: mpsc::UnboundedSender<Incoming>,
    given: u64,
    handled: u64,
    /// Each item that was given and not handled: its weight, and the event it brings one to.
    unhandled: VecDeque<(usize, Option<Seq>)>,
    /// The weight of all of them.
    bytes: usize,
    /// The last event that was handled and that nothing saved covers, with the number of its item.
    handled_seq: Option<(u64, Seq)>,
    /// What waits, with the number of items that come before it.
    waiting: VecDeque<(u64, Due)>,
    /// When the application last handled something, or had nothing to handle.
    moved_at: Instant,
}

impl Handover {
    pub(super) fn new(window: Window, items: mpsc::UnboundedSender<Incoming>) -> Self {
        Self {
            window,
            items,
            given: 0,
            handled: 0,
            unhandled: VecDeque::new(),
            bytes: 0,
            handled_seq: None,
            waiting: VecDeque::new(),
            moved_at: Instant::now(),
        }
    }

    /// Whether the application is near enough for more to be read.
    pub(super) fn has_room(&self) -> bool {
        self.unhandled.len() < self.window.items && self.bytes < self.window.bytes
    }

    /// Whether the application has handled everything.
    pub(super) fn is_empty(&self) -> bool {
        self.unhandled.is_empty()
    }

    /// Whether the application is slow, but not for so long that the server had better know.
    pub(super) fn is_patient(&self) -> bool {
        self.moved_at.elapsed() < self.window.patience
    }

    /// Gives the application an item.
    pub(super) fn give(&mut self, item: Incoming) {
        if self.is_empty() {
            self.moved_at = Instant::now();
        }
        let (bytes, seq) = (item.bytes(), item.seq());
        if self.items.send(item).is_ok() {
            self.given += 1;
            self.bytes += bytes;
            self.unhandled.push_back((bytes, seq));
        }
    }

    /// The application has handled this many items in all.
    pub(super) fn handled(&mut self, handled: u64) {
        while self.handled < handled {
            self.handled += 1;
            let (bytes, seq) = self.unhandled.pop_front().unwrap_or_default();
            self.bytes -= bytes;
            self.handled_seq = seq.map(|seq| (self.handled, seq)).or(self.handled_seq);
            self.moved_at = Instant::now();
        }
    }

    /// Something to save when its turn has come. Of two that wait for the same item the later counts.
    pub(super) fn save_later(&mut self, saved: Saved) {
        self.last_waiting().save = Some(saved);
    }

    /// An ack to send when its turn has come; true if that is not now.
    pub(super) fn ack_later(&mut self, connection: u64, ack: ClientCommand) -> bool {
        let due = self.last_waiting();
        due.ack = Some((connection, merged(due.ack.take(), connection, ack)));
        !self.is_empty()
    }

    /// The next thing whose turn has come, with the number of items that come before it. What is saved comes before
    /// the ack that follows it.
    pub(super) fn next_due(&mut self) -> Option<(u64, Due)> {
        self.waiting.pop_front_if(|(after, _)| *after <= self.handled)
    }

    /// Something was saved that covers this many items. The application may have handled more by then.
    pub(super) fn saved(&mut self, items: u64) {
        self.handled_seq.take_if(|(item, _)| *item <= items);
    }

    /// The last event that was handled and that nothing saved covers.
    pub(super) fn handled_seq(&self) -> Option<Seq> {
        self.handled_seq.map(|(_, seq)| seq)
    }

    fn last_waiting(&mut self) -> &mut Due {
        if self.waiting.back().is_none_or(|(after, _)| *after != self.given) {
            self.waiting.push_back((self.given, Due::default()));
        }
        let last = self.waiting.len() - 1;
        &mut self.waiting[last].1
    }
}

/// One ack in place of two: it says all that they would have said.
fn merged(
    earlier: Option<(u64, ClientCommand)>,
    connection: u64,
    mut ack: ClientCommand,
) -> ClientCommand {
    if let Some((of, ClientCommand::Ack { received_count: before, gap_detected: gap, .. })) =
        earlier
        && of == connection
        && let ClientCommand::Ack { received_count, gap_detected, .. } = &mut ack
    {
        *received_count = received_count.saturating_add(before);
        *gap_detected |= gap;
    }
    ack
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::Event;
    use rejoin_core::client::{self as core, Status};
    use rejoin_core::{EventBody, SessionId};

    fn handover() -> (Handover, mpsc::UnboundedReceiver<Incoming>) {
        let window = Window { items: 3, bytes: 100, patience: Duration::from_secs(1) };
        let (items, received) = mpsc::unbounded_channel();
        (Handover::new(window, items), received)
    }

    fn item() -> Incoming {
        Incoming::Status(Status::CaughtUp)
    }

    fn event(seq: u64) -> Incoming {
        let body = EventBody::new("said", &"something").unwrap().into_body();
        let event = core::Event { seq: Seq::new(seq), event_id: None, replayed: false, body };
        Incoming::Event(Event::from_core(event))
    }

    fn ack(last_seq: u64, received_count: u64, gap_detected: bool) -> ClientCommand {
        let session_id = SessionId::from_random([1; 16]);
        ClientCommand::Ack {
            session_id,
            last_seq: Seq::new(last_seq),
            received_count,
            gap_detected,
        }
    }

    #[tokio::test]
    async fn what_covers_an_item_waits_until_it_is_handled() {
        let (mut handover, _received) = handover();
        handover.give(item());
        handover.save_later(Saved::default());
        assert!(handover.ack_later(1, ack(1, 1, false)), "it has to wait");
        assert!(handover.next_due().is_none());
        handover.handled(1);
        let (_, due) = handover.next_due().unwrap();
        assert!(due.save.is_some() && due.ack.is_some());
        assert!(handover.next_due().is_none());
    }

    /// The application ran ahead of the driver: what is saved covers less than what was handled.
    #[tokio::test]
    async fn events_handled_beyond_what_is_saved_are_still_to_be_saved() {
        let (mut handover, _received) = handover();
        for number in 1..=3 {
            handover.give(event(number));
            if number == 1 {
                handover.save_later(Saved::default());
            }
        }
        handover.handled(2);
        let (items, due) = handover.next_due().unwrap();
        assert!(due.save.is_some());
        handover.saved(items);
        assert_eq!(handover.handled_seq(), Some(Seq::new(2)), "the second is not covered");
        handover.saved(2);
        assert_eq!(handover.handled_seq(), None);
    }

    #[tokio::test]
    async fn acks_that_wait_for_the_same_item_become_one() {
        let (mut handover, _received) = handover();
        handover.give(item());
        handover.ack_later(1, ack(1, 1, true));
        handover.ack_later(1, ack(2, 1, false));
        handover.handled(1);
        assert_eq!(handover.next_due().unwrap().1.ack, Some((1, ack(2, 2, true))));
        handover.ack_later(1, ack(3, 1, true));
        handover.ack_later(2, ack(4, 0, false));
        assert_eq!(handover.next_due().unwrap().1.ack, Some((2, ack(4, 0, false))));
    }

    #[tokio::test]
    async fn there_is_room_for_as_many_items_as_the_window_has() {
        let (mut handover, _received) = handover();
        for given in 0..3 {
            assert!(handover.has_room(), "{given}");
            handover.give(item());
        }
        assert!(!handover.has_room());
        handover.handled(1);
        assert!(handover.has_room());
    }
}
