//! An application with the client's brain: sends messages, notes what it is given.

use std::collections::{BTreeMap, VecDeque};

use rejoin_core::client::{
    Client, ClientCommand, ClientOptions, Input, Joined, MessageId, Output, Saved, Secret, Status,
};
use rejoin_core::page::Body;
use rejoin_core::{Principal, SessionId, Timestamp};

use crate::judge::{Judge, Seen};

/// What an application wants of the network.
#[derive(Debug)]
pub(crate) enum Wish {
    Connect,
    Send(ClientCommand),
    Close,
}

pub(crate) struct App {
    pub(crate) principal: Principal,
    brain: Client,
    saved: Option<Saved>,
    seen: Seen,
    pub(crate) session: Option<SessionId>,
    pub(crate) stopped: bool,
    /// Messages that were accepted in the present line of sessions.
    accepted: BTreeMap<MessageId, Body>,
    /// Messages that nobody has answered for.
    unanswered: BTreeMap<MessageId, Body>,
    /// Every sealed state it was ever given, for whoever wants to misuse one.
    pub(crate) states: Vec<Secret>,
    wishes: VecDeque<Wish>,
    number: usize,
    messages: u64,
}

impl App {
    pub(crate) fn new(number: usize, principal: Principal) -> Self {
        Self {
            principal,
            brain: Client::new(ClientOptions::default(), None),
            saved: None,
            seen: Seen::default(),
            session: None,
            stopped: false,
            accepted: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            states: Vec::new(),
            wishes: VecDeque::new(),
            number,
            messages: 0,
        }
    }

    pub(crate) fn say_something(&mut self, now: Timestamp, judge: &mut Judge) {
        self.messages += 1;
        let word = format!("m{}-{}", self.number, self.messages);
        let body = Body::from(word.as_bytes());
        let Ok(message_id) = MessageId::parse(&word) else { panic!("{word} is a message id") };
        self.unanswered.insert(message_id.clone(), Body::clone(&body));
        self.happened(Input::Send { message_id, content: body }, now, judge);
    }

    /// The application is closed and opened again: only what was saved is left, or of that only the
    /// snapshot, as after moving to another device.
    pub(crate) fn reload(&mut self, only_snapshot: bool, now: Timestamp, judge: &mut Judge) {
        let position = self.saved.as_ref().and_then(|saved| saved.position.as_ref());
        if position.map(|position| position.seq) != Some(self.seen.last()) {
            return; // it would see events again that it had not saved; that is its own doing
        }
        let mut saved = self.saved.clone().unwrap_or_default();
        if only_snapshot && saved.snapshot.is_some() {
            saved.session_id = None;
            saved.token = None;
        }
        self.brain = Client::new(ClientOptions::default(), Some(saved));
        self.unanswered.clear();
        self.stopped = false;
        self.wishes.clear();
        self.happened(Input::Tick, now, judge);
    }

    pub(crate) fn happened(&mut self, input: Input, now: Timestamp, judge: &mut Judge) {
        self.brain.handle(input, now);
        while let Some(output) = self.brain.poll_output() {
            self.carry_out(output, judge);
        }
    }

    pub(crate) fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.brain.next_deadline()
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Messages that must have been dealt with by the time everything has come to rest.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = &Body> {
        self.accepted.values()
    }

    pub(crate) fn waits_for_answers(&self) -> bool {
        !self.unanswered.is_empty()
    }

    fn carry_out(&mut self, output: Output, judge: &mut Judge) {
        match output {
            Output::Connect => self.wishes.push_back(Wish::Connect),
            Output::Send(command) => self.wishes.push_back(Wish::Send(command)),
            Output::Close => self.wishes.push_back(Wish::Close),
            Output::Deliver(event) => {
                let Some(id) = event.event_id else { panic!("an event came without its id") };
                judge.delivered(&mut self.seen, id, &event.body);
            }
            Output::DeliverGap(gap) => judge.told_gap(&mut self.seen, gap),
            Output::DeliverState { state, .. } => self.states.push(state.signed_state),
            Output::Accepted { message_id, .. } => {
                judge.counts.accepted += 1;
                if let Some(body) = self.unanswered.remove(&message_id) {
                    self.accepted.insert(message_id, body);
                }
            }
            Output::GivenUp { message_id, .. } => {
                self.unanswered.remove(&message_id);
            }
            Output::Refused { .. } => {}
            Output::Status(status) => self.on_status(status, judge),
            Output::Save(saved) => self.saved = Some(saved),
        }
    }

    fn on_status(&mut self, status: Status, judge: &mut Judge) {
        match status {
            Status::Connected { session_id, how } => {
                self.session = Some(session_id);
                match how {
                    Joined::Created => {
                        self.seen = Seen::default();
                        self.accepted.clear();
                    }
                    Joined::Resumed | Joined::Restored => judge.counts.resumed += 1,
                }
            }
            Status::Stopped { .. } => self.stopped = true,
            Status::Connecting
            | Status::CaughtUp
            | Status::Draining
            | Status::ConnectionLost
            | Status::Reconnecting { .. }
            | Status::Restoring
            | Status::Expired { .. } => {}
        }
    }
}
