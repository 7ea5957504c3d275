//! An application with one session: it sends, it reads, and it writes down what its callback got. Now
//! and then its program ends in an orderly way and is started again on what was kept.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use rejoin_client::{
    Accepted, ClientOptions, Event, Incoming, Joined, MemoryKeep, MessageId, Saved, SendError,
    Session, SessionId, Status,
};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::random::Random;

/// An event as the application got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) seq: u64,
    pub(crate) event_id: String,
    pub(crate) name: String,
    pub(crate) content: String,
}

impl Seen {
    fn of(event: &Event) -> Self {
        Self {
            seq: event.seq.get(),
            event_id: event.event_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            name: event.name().to_owned(),
            content: event.content_json().to_owned(),
        }
    }

    fn is_last(&self) -> bool {
        #[derive(Deserialize)]
        struct Answer {
            last: bool,
        }
        let answer = serde_json::from_str::<Answer>(&self.content);
        self.name == "agent.answer" && answer.is_ok_and(|answer| answer.last)
    }
}

/// What one application can testify to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) events: Vec<Seen>,
    /// What should not have happened: gaps, lost sessions, messages given up.
    pub(crate) surprises: Vec<String>,
    /// Messages that were accepted, in the order in which they were sent.
    pub(crate) accepted: Vec<(String, u64)>,
    pub(crate) session: Option<SessionId>,
    /// How often it was attached.
    pub(crate) attached: u64,
}

/// A mistake of the callback, made once, to see whether the judge notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// The event with this seq is dropped.
    Dropped(u64),
    /// It is delivered twice.
    Twice(u64),
    /// It comes after the next one.
    Late(u64),
}

/// The application's callback.
struct Callback {
    testimony: Testimony,
    planted: Planted,
    held_back: Option<Seen>,
}

impl Callback {
    fn on_event(&mut self, event: &Event) -> bool {
        let (seen, events) = (Seen::of(event), &mut self.testimony.events);
        let (seq, last) = (seen.seq, seen.is_last());
        match self.planted {
            Planted::Dropped(planted) if planted == seq => {}
            Planted::Twice(planted) if planted == seq => events.extend([seen.clone(), seen]),
            Planted::Late(planted) if planted == seq => self.held_back = Some(seen),
            Planted::Nothing | Planted::Dropped(_) | Planted::Twice(_) | Planted::Late(_) => {
                events.push(seen);
                events.extend(self.held_back.take());
            }
        }
        last
    }

    fn on_status(&mut self, status: Status) {
        let testimony = &mut self.testimony;
        match status {
            Status::Connected { session_id, how } => {
                testimony.attached += 1;
                let known = testimony.session.replace(session_id.clone());
                let expected = match how {
                    Joined::Created => known.is_none(),
                    Joined::Resumed => known == Some(session_id),
                    Joined::Restored => false,
                };
                if !expected {
                    testimony.surprises.push(format!("attached to another session: {how:?}"));
                }
            }
            Status::Restoring | Status::Expired { .. } | Status::Stopped { .. } => {
                testimony.surprises.push(format!("{status:?}"));
            }
            Status::Connecting
            | Status::CaughtUp
            | Status::Draining
            | Status::ConnectionLost
            | Status::Reconnecting { .. } => {}
        }
    }
}

/// An application that talks until it is told to finish.
pub(crate) struct Visitor {
    pub(crate) proxy: SocketAddr,
    pub(crate) random: Random,
    pub(crate) planted: Planted,
    /// How long it waits between messages at most.
    pub(crate) pause: Duration,
    /// Whether its program ends and starts again now and then.
    pub(crate) restarts: bool,
    /// Turns true when it is to send its last message.
    pub(crate) finish: watch::Receiver<bool>,
}

type Sending = Pin<Box<dyn Future<Output = Result<Accepted, SendError>> + Send>>;

impl Visitor {
    /// Lives until the answer to the last message is here, and says what it saw.
    pub(crate) async fn run(mut self) -> Testimony {
        let keep = MemoryKeep::new();
        let testimony = Testimony::default();
        let mut callback = Callback { testimony, planted: self.planted, held_back: None };
        // The message that is not accepted yet: a program that starts again sends it again.
        let mut unsent: Option<(MessageId, serde_json::Value)> = None;
        let mut sent_last = false;
        loop {
            let mut session = connect(self.proxy, keep.clone()).await;
            let handle = session.handle();
            let mut sending: Option<Sending> = None;
            let program_ends = match self.restarts {
                true => Instant::now() + Duration::from_millis(self.random.between(500, 15_000)),
                false => Instant::now() + Duration::from_secs(3_600),
            };
            let mut next_message = Instant::now() + self.pause();
            let done = loop {
                let finishing = *self.finish.borrow();
                if let (None, Some((id, content))) = (&sending, &unsent) {
                    let (handle, id, content) = (handle.clone(), id.clone(), content.clone());
                    sending = Some(Box::pin(async move { handle.send_with_id(id, content).await }));
                }
                let idle = unsent.is_none() && !sent_last;
                tokio::select! {
                    item = session.next() => match item {
                        Some(Incoming::Event(event)) => {
                            if callback.on_event(&event) && unsent.is_none() {
                                break true;
                            }
                        }
                        Some(Incoming::Status(status)) => callback.on_status(status),
                        Some(Incoming::State(_)) => {}
                        Some(surprise) => {
                            callback.testimony.surprises.push(format!("{surprise:?}"));
                        }
                        None => break true,
                    },
                    answer = answered(&mut sending) => {
                        sending = None;
                        unsent = None;
                        match answer {
                            Ok(accepted) => {
                                let id = accepted.message_id.to_string();
                                let accepted = (id, accepted.in_seq.get());
                                callback.testimony.accepted.push(accepted);
                            }
                            Err(error) => callback.testimony.surprises.push(error.to_string()),
                        }
                        if callback.testimony.events.last().is_some_and(Seen::is_last) {
                            break true;
                        }
                    }
                    () = sleep_until(next_message), if idle && !finishing => {
                        next_message = Instant::now() + self.pause();
                        unsent = Some(self.message(false));
                    }
                    () = told(&mut self.finish), if idle => {
                        unsent = Some(self.message(true));
                        sent_last = true;
                    }
                    () = sleep_until(program_ends), if !finishing => break false,
                }
            };
            session.close().await;
            if done {
                return callback.testimony;
            }
        }
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.between(1, self.pause.as_millis() as u64))
    }

    fn message(&mut self, last: bool) -> (MessageId, serde_json::Value) {
        let id = MessageId::parse(&format!("m{:016x}", self.random.next())).expect("it is an id");
        let burst = self.random.between(3, 8);
        (id, serde_json::json!({ "burst": burst, "last": last }))
    }
}

async fn told(finish: &mut watch::Receiver<bool>) {
    let _ = finish.wait_for(|finish| *finish).await;
}

async fn answered(sending: &mut Option<Sending>) -> Result<Accepted, SendError> {
    match sending {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

async fn connect(address: SocketAddr, keep: MemoryKeep) -> Session {
    let builder = Session::builder(format!("ws://{address}/ws")).keep(keep);
    let options = ClientOptions { messages_in_flight: 4, ..ClientOptions::default() };
    let builder = builder.options(options).connect_timeout(Duration::from_secs(4));
    builder.start().await.expect("the address is one")
}

/// The out log of a session as the server holds it, read anew from the first event.
pub(crate) async fn record(server: SocketAddr, session: SessionId) -> Vec<Seen> {
    let saved = Saved { session_id: Some(session), ..Saved::default() };
    let mut session = connect(server, MemoryKeep::holding(saved)).await;
    let mut events = Vec::new();
    let read = async {
        while let Some(item) = session.next().await {
            match &item {
                Incoming::Event(event) => events.push(Seen::of(event)),
                Incoming::Status(Status::CaughtUp) => return,
                Incoming::Status(_) | Incoming::State(_) => {}
                Incoming::Gap(_) | Incoming::Refused(_) | Incoming::KeepFailed(_) => {
                    panic!("the server does not have its record: {item:?}")
                }
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = sleep(Duration::from_secs(30)) => panic!("the server's record can't be read"),
    }
    session.close().await;
    events
}
