//! Agents that do as they are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rejoin::core::worker::Publication;
use rejoin::{Agent, Seat};
use tokio::sync::mpsc;

use super::{event, said, text};

/// Says every message back, and covers it with a state that names it.
pub struct Echo;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, mut seat: Seat) {
        while let Some(entry) = seat.next().await {
            let echo = event(format!("echo {}", text(&entry.body)));
            let state = Some(entry.body);
            let in_seq = Some(entry.in_seq);
            let publication =
                Publication { events: vec![echo], state, in_seq, ..Publication::default() };
            if seat.publish(publication).await.is_err() {
                return;
            }
        }
    }
}

/// Gives its seats to the test, which is the agent then.
pub struct GiveSeats {
    sender: mpsc::UnboundedSender<Seat>,
    /// How many of the first ones panic as soon as they have given their seat away.
    panics: AtomicUsize,
}

impl GiveSeats {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Seat>) {
        let (sender, seats) = mpsc::unbounded_channel();
        (Self { sender, panics: AtomicUsize::new(0) }, seats)
    }

    pub fn panicking_once() -> (Self, mpsc::UnboundedReceiver<Seat>) {
        let (agent, seats) = Self::new();
        agent.panics.store(1, Ordering::SeqCst);
        (agent, seats)
    }
}

#[async_trait]
impl Agent for GiveSeats {
    async fn run(&self, seat: Seat) {
        self.sender.send(seat).unwrap();
        if self.panics.load(Ordering::SeqCst) > 0 {
            self.panics.fetch_sub(1, Ordering::SeqCst);
            panic!("an agent that panics, on purpose");
        }
        std::future::pending().await
    }
}

/// Does the same as [`Echo`], but panics at every message it meets for the first time, having told
/// what it was given and from which state.
pub struct PanicsOnce {
    pub tell: mpsc::UnboundedSender<String>,
    pub poison: &'static str,
    pub panicked: AtomicUsize,
}

#[async_trait]
impl Agent for PanicsOnce {
    async fn run(&self, mut seat: Seat) {
        let state = seat.start().snapshot.as_ref().map_or("nothing".into(), |s| text(&s.body));
        self.tell.send(format!("from {state}")).unwrap();
        while let Some(entry) = seat.next().await {
            let given = text(&entry.body);
            self.tell.send(format!("given {given}")).unwrap();
            if given == self.poison && self.panicked.fetch_add(1, Ordering::SeqCst) == 0 {
                panic!("an agent that panics, on purpose");
            }
            let echo = event(format!("echo {given}"));
            let (state, in_seq) = (Some(entry.body), Some(entry.in_seq));
            let publication =
                Publication { events: vec![echo], state, in_seq, ..Publication::default() };
            seat.publish(publication).await.unwrap();
        }
    }
}

/// Returns at once, and counts how often.
#[derive(Clone, Default)]
pub struct Returns(pub Arc<AtomicUsize>);

#[async_trait]
impl Agent for Returns {
    async fn run(&self, _seat: Seat) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Publishes nothing; covers what it is given, and then goes on for ever with nobody knowing why.
pub struct NeverStops;

#[async_trait]
impl Agent for NeverStops {
    async fn run(&self, mut seat: Seat) {
        if let Some(entry) = seat.next().await {
            let covers = Publication { in_seq: Some(entry.in_seq), ..said() };
            seat.publish(covers).await.unwrap();
        }
        std::future::pending().await
    }
}
