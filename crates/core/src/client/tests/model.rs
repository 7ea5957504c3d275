//! Against a model of the server, with every fault in any order: cuts, lost and repeated frames,
//! eviction, a lost log, a lost session, a restart of the client. The application must get every event
//! in order, once, with no hole except at announced gaps; each message must be entered once and in
//! order, or be answered for; and when the faults stop, everything must arrive.

use proptest::prelude::*;

use super::model_server::{Line, Server, Session, Wire};
use super::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Open,
    FailToConnect,
    Append(u64),
    Evict(u64),
    WriteEvents(usize),
    DeliverFrames(usize),
    ReadCommands(usize),
    LoseEvent(usize),
    RepeatEvent(usize),
    Heartbeat,
    Export,
    Cut,
    LoseLog,
    LoseSession { with_log: bool },
    Busy,
    Send,
    Pass(u64),
    Wake,
    RestartClient,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => Just(Step::Open),
        1 => Just(Step::FailToConnect),
        20 => (1..6u64).prop_map(Step::Append),
        2 => (1..8u64).prop_map(Step::Evict),
        30 => (1..9usize).prop_map(Step::WriteEvents),
        30 => (1..12usize).prop_map(Step::DeliverFrames),
        30 => (1..5usize).prop_map(Step::ReadCommands),
        5 => (0..9usize).prop_map(Step::LoseEvent),
        5 => (0..9usize).prop_map(Step::RepeatEvent),
        5 => Just(Step::Heartbeat),
        5 => Just(Step::Export),
        4 => Just(Step::Cut),
        1 => Just(Step::LoseLog),
        1 => any::<bool>().prop_map(|with_log| Step::LoseSession { with_log }),
        1 => Just(Step::Busy),
        8 => Just(Step::Send),
        10 => (1..3_000u64).prop_map(Step::Pass),
        2 => Just(Step::Wake),
        1 => Just(Step::RestartClient),
    ]
}

/// The application: what it has of the out log, and its messages.
#[derive(Clone, Default)]
struct Application {
    /// The line and seq of the last event; no line before the first event of a new numbering.
    line: Option<Line>,
    last: u64,
    /// It was told that the numbering may have changed.
    anything_goes: bool,
    unanswered: Vec<MessageId>,
}

impl Application {
    fn event(&mut self, event: &Event) {
        let text = String::from_utf8(event.body.to_vec()).unwrap();
        let (line, seq) = text.split_once(' ').unwrap();
        let (line, seq): (Line, u64) = (line.parse().unwrap(), seq.parse().unwrap());
        if !self.anything_goes {
            assert_eq!(self.line.unwrap_or(line), line, "another line, and nobody said so");
            assert_eq!(seq, self.last + 1, "out of order, twice, or after a silent gap");
        }
        (self.line, self.last, self.anything_goes) = (Some(line), seq, false);
    }

    fn gap(&mut self, gap: Gap) {
        match gap {
            Gap::PositionUnknown => self.anything_goes = true,
            Gap::Evicted { missing, .. } if self.anything_goes => self.last = missing.to.get(),
            Gap::Evicted { missing, .. } => {
                assert_eq!(missing.from.get(), self.last + 1, "a gap that is none");
                self.last = missing.to.get();
            }
        }
    }
}

struct World {
    client: Client,
    now: Timestamp,
    server: Server,
    wire: Option<Wire>,
    connecting: bool,
    application: Application,
    saved: Saved,
    /// The application as of what was saved.
    saved_application: Application,
    messages: u64,
    stopped: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            client: Client::new(ClientOptions::default(), None),
            now: Timestamp::from_millis(1_000_000),
            server: Server::default(),
            wire: None,
            connecting: false,
            application: Application::default(),
            saved: Saved::default(),
            saved_application: Application::default(),
            messages: 0,
            stopped: false,
        };
        world.carry_out();
        world
    }

    fn input(&mut self, input: Input) {
        self.client.handle(input, self.now);
        let overdue = self.client.next_deadline().filter(|due| *due <= self.now);
        assert_eq!(overdue, None, "what is due is done");
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::Connect => {
                    assert!(self.wire.is_none(), "one socket at a time");
                    self.connecting = true;
                }
                Output::Send(command) => self.sent(command),
                Output::Close => self.cut(),
                Output::Deliver(event) => self.application.event(&event),
                Output::DeliverGap(gap) => self.application.gap(gap),
                Output::Accepted { message_id, .. } | Output::GivenUp { message_id, .. } => {
                    let unanswered = &mut self.application.unanswered;
                    let at = unanswered.iter().position(|waiting| *waiting == message_id);
                    unanswered.remove(at.expect("answered once"));
                }
                Output::Status(Status::Connected { how: Joined::Created, .. }) => {
                    let unanswered = std::mem::take(&mut self.application.unanswered);
                    self.application = Application { unanswered, ..Application::default() };
                }
                Output::Status(Status::Stopped { .. }) => self.stopped = true,
                Output::Status(_) | Output::DeliverState { .. } | Output::Refused { .. } => {}
                Output::Save(saved) => {
                    self.saved = saved;
                    self.saved_application = self.application.clone();
                }
            }
        }
    }

    fn sent(&mut self, command: ClientCommand) {
        if let ClientCommand::Ack { last_seq, .. } = &command
            && !self.application.anything_goes
        {
            assert!(last_seq.get() <= self.application.last, "ack of what was not delivered");
            let saved = self.saved.position.as_ref().unwrap();
            assert!(*last_seq <= saved.seq, "ack of what was not saved");
        }
        let wire = self.wire.as_mut().expect("frames are sent on an open socket");
        wire.to_server.push_back(command);
    }

    /// The socket is gone, with everything on it.
    fn cut(&mut self) {
        if self.wire.take().is_some() {
            self.client.handle(
                Input::Closed { code: Some(1006), retry_after: None, random: HALF },
                self.now,
            );
        }
    }

    fn open(&mut self) {
        if !std::mem::take(&mut self.connecting) {
            return;
        }
        let (backoff, max_attempts) = (vec![seconds(1), seconds(3)], 5);
        let heartbeat_interval = seconds(30);
        let hello = ServerEvent::Connected { backoff, max_attempts, heartbeat_interval };
        self.wire = Some(Wire { to_client: [hello].into(), ..Wire::default() });
        self.input(Input::Opened);
    }

    fn deliver_frames(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.wire.as_mut().and_then(|wire| wire.to_client.pop_front());
            let Some(frame) = next else { return };
            self.input(Input::Received(frame));
        }
    }

    fn read_commands(&mut self, count: usize) {
        let Some(wire) = self.wire.as_mut() else { return };
        for _ in 0..count {
            let Some(command) = wire.to_server.pop_front() else { return };
            self.server.read(command, wire);
        }
    }

    /// The place on the wire of the event `skip` events behind the first.
    fn event_on_wire(&mut self, skip: usize) -> Option<(&mut Wire, usize)> {
        let wire = self.wire.as_mut()?;
        let events = wire.to_client.iter().enumerate();
        let is_event = |(_, frame): &(usize, &ServerEvent)| matches!(frame, ServerEvent::Event(_));
        let at = events.filter(is_event).nth(skip)?.0;
        Some((wire, at))
    }

    /// The session that lives; there is one at most.
    fn living(&mut self) -> Option<&mut Session> {
        self.server.sessions.iter_mut().rev().find(|session| session.alive)
    }

    fn attached(&self) -> Option<usize> {
        self.wire.as_ref()?.attached.map(|(number, _)| number)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open => self.open(),
            Step::FailToConnect => {
                if std::mem::take(&mut self.connecting) {
                    self.input(Input::ConnectFailed { random: HALF });
                }
            }
            Step::Append(count) => {
                if let Some(session) = self.living() {
                    session.head += count;
                }
            }
            Step::Evict(count) => {
                if let Some(session) = self.living() {
                    session.oldest = (session.oldest + count).min(session.head + 1);
                }
            }
            Step::WriteEvents(count) => {
                if let Some(wire) = self.wire.as_mut() {
                    self.server.write(count, wire);
                }
            }
            Step::DeliverFrames(count) => self.deliver_frames(count),
            Step::ReadCommands(count) => self.read_commands(count),
            Step::LoseEvent(skip) => {
                if let Some((wire, at)) = self.event_on_wire(skip) {
                    wire.to_client.remove(at);
                }
            }
            Step::RepeatEvent(skip) => {
                if let Some((wire, at)) = self.event_on_wire(skip) {
                    let again = wire.to_client[at].clone();
                    wire.to_client.push_back(again);
                }
            }
            Step::Heartbeat => self.heartbeat(),
            Step::Export => self.export(),
            Step::Cut => {
                self.cut();
                self.carry_out();
            }
            Step::LoseLog => self.lose_log(),
            Step::LoseSession { with_log } => self.lose_session(with_log),
            Step::Busy => self.server.busy = true,
            Step::Send => {
                self.messages += 1;
                self.send(id(self.messages));
            }
            Step::Pass(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.input(Input::Tick);
            }
            Step::Wake => self.input(Input::Wake),
            Step::RestartClient => self.restart_client(),
        }
    }

    fn heartbeat(&mut self) {
        if let Some(number) = self.attached() {
            let frame = heartbeat(self.server.sessions[number].head);
            self.wire.as_mut().unwrap().to_client.push_back(frame);
        }
    }

    fn export(&mut self) {
        if let Some(number) = self.attached() {
            let Session { epoch, head, .. } = &self.server.sessions[number];
            let signed_state = Secret::new(&format!("{number} {epoch} {head}"));
            let (seq, state) = (Seq::new(*head), content(0));
            let frame = ServerEvent::StateExported(ExportedState { signed_state, seq, state });
            self.wire.as_mut().unwrap().to_client.push_back(frame);
        }
    }

    /// The server crashes and comes back without its log: another epoch, numbering from 1.
    fn lose_log(&mut self) {
        let (epoch, line) = (self.server.new_epoch(), self.server.lines + 1);
        self.server.lines = line;
        if let Some(session) = self.living() {
            (session.epoch, session.line) = (epoch, line);
            (session.oldest, session.head) = (1, 0);
            session.earlier.clear();
        }
        self.cut();
        self.carry_out();
    }

    fn lose_session(&mut self, with_log: bool) {
        if let Some(session) = self.living() {
            session.alive = false;
            if !with_log {
                session.oldest = session.head + 1;
            }
        }
        self.cut();
        self.carry_out();
    }

    fn send(&mut self, message_id: MessageId) {
        self.application.unanswered.push(message_id.clone());
        self.input(Input::Send { message_id, content: content(0) });
    }

    /// The client's process dies; the next one goes on from what was saved.
    fn restart_client(&mut self) {
        self.wire = None;
        self.connecting = false;
        let unanswered = Vec::new(); // they died with it
        self.application = Application { unanswered, ..self.saved_application.clone() };
        self.client = Client::new(ClientOptions::default(), Some(self.saved.clone()));
        self.carry_out();
    }

    fn is_content(&self) -> bool {
        let Some(number) = self.attached() else { return false };
        let (session, wire) = (&self.server.sessions[number], self.wire.as_ref().unwrap());
        let nothing_new = session.head < session.oldest && self.application.anything_goes;
        wire.to_client.is_empty()
            && wire.to_server.is_empty()
            && self.application.unanswered.is_empty()
            && (nothing_new || self.application.last == session.head)
    }

    /// No more faults: everything must arrive.
    fn settle(&mut self) {
        for _ in 0..60 {
            self.open();
            self.read_commands(1_000);
            self.step(Step::WriteEvents(1_000));
            self.deliver_frames(10_000);
            if self.is_content() {
                return;
            }
            self.heartbeat();
            self.deliver_frames(10_000);
            if let Some(due) = self.client.next_deadline() {
                self.now = self.now.max(due.min(self.now + seconds(5)));
                self.input(Input::Tick);
            }
        }
        panic!("the faults have stopped, and the client does not catch up");
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_application_gets_everything_in_order_and_once(
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.settle();
        prop_assert!(!world.stopped);
        let number = |id: &MessageId| id.as_str()[1..].parse::<u64>().unwrap();
        let entered: Vec<_> = world.server.entered.iter().map(number).collect();
        prop_assert!(entered.is_sorted_by(|a, b| a < b), "in order and once: {entered:?}");
    }
}
