//! The client against a server that is played by the test. Files are named for a behaviour; the
//! helpers here speak its language.

mod acking;
mod delivering;
mod ending;
mod model;
mod model_server;
mod reconnecting;
mod sending;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::codes::ErrorCode;
use crate::position::{Epoch, InSeq, Position, Seq, SeqRange};
use crate::resume::Gap;

/// Half of whatever the jitter is taken of.
const HALF: u32 = 1 << 31;

fn session(n: u8) -> SessionId {
    SessionId::from_random([n; 16])
}

fn epoch(n: u64) -> Epoch {
    Epoch::from_text(&format!("e{n}"))
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn id(n: u64) -> MessageId {
    MessageId::parse(&format!("m{n}")).unwrap()
}

fn content(n: u64) -> Arc<[u8]> {
    n.to_string().into_bytes().into()
}

fn range(from: u64, to: u64) -> SeqRange {
    SeqRange::new(Seq::new(from), Seq::new(to)).unwrap()
}

fn evicted(from: u64, to: u64) -> Gap {
    Gap::Evicted { missing: range(from, to), lost: None }
}

fn event(seq: u64) -> ServerEvent {
    let body = seq.to_string().into_bytes().into();
    ServerEvent::Event(Event { seq: Seq::new(seq), event_id: None, replayed: false, body })
}

fn state(seq: u64) -> ServerEvent {
    ServerEvent::StateExported(ExportedState {
        signed_state: Secret::new(&format!("sealed-{seq}")),
        seq: Seq::new(seq),
        state: content(seq),
    })
}

fn snapshot(seq: u64) -> Snapshot {
    Snapshot { signed_state: Secret::new(&format!("sealed-{seq}")), seq: Seq::new(seq) }
}

fn heartbeat(head: u64) -> ServerEvent {
    ServerEvent::Heartbeat { head: Seq::new(head), token: None }
}

fn created(session_id: SessionId, epoch: Epoch) -> ServerEvent {
    ServerEvent::SessionCreated {
        session_id,
        resumed: false,
        epoch,
        replay_from: Seq::new(1),
        gap: None,
        token: Some(Secret::new("token-1")),
    }
}

fn resumed(epoch: Epoch, replay_from: u64, gap: Option<SeqRange>) -> ServerEvent {
    let gap = gap.map(confirmed);
    ServerEvent::SessionCreated {
        session_id: session(1),
        resumed: true,
        epoch,
        replay_from: Seq::new(replay_from),
        gap,
        token: Some(Secret::new("token-2")),
    }
}

/// A gap as a confirmation tells it: what the state makes up for is not known yet.
fn confirmed(missing: SeqRange) -> Gap {
    Gap::Evicted { missing, lost: Some(missing) }
}

fn restored(gap: Option<SeqRange>) -> ServerEvent {
    let gap = gap.map(confirmed);
    let token = Some(Secret::new("token-3"));
    ServerEvent::StateRestored { new_session_id: session(2), epoch: epoch(2), gap, token }
}

fn refused(code: ErrorCode) -> ServerEvent {
    ServerEvent::Refused { code, retry_after: None, message_id: None }
}

fn refused_message(code: ErrorCode, n: u64, retry_after: Option<Duration>) -> ServerEvent {
    ServerEvent::Refused { code, retry_after, message_id: Some(id(n)) }
}

fn accepted(n: u64) -> ServerEvent {
    ServerEvent::Accepted { message_id: id(n), in_seq: InSeq::new(n), duplicate: false }
}

fn reconnect(last_seq: u64, token: Option<&str>) -> ClientCommand {
    ClientCommand::Reconnect {
        session_id: session(1),
        last_seq: Seq::new(last_seq),
        epoch: Some(epoch(1)),
        token: token.map(Secret::new),
    }
}

fn restore(snapshot_seq: u64, last_seq: u64) -> ClientCommand {
    ClientCommand::RestoreState {
        signed_state: snapshot(snapshot_seq).signed_state,
        last_seq: Seq::new(last_seq),
        epoch: Some(epoch(1)),
    }
}

fn ack(last_seq: u64, received_count: u64, gap_detected: bool) -> ClientCommand {
    let last_seq = Seq::new(last_seq);
    ClientCommand::Ack { session_id: session(1), last_seq, received_count, gap_detected }
}

fn message(n: u64) -> ClientCommand {
    ClientCommand::Message { session_id: session(1), message_id: id(n), content: content(n) }
}

/// What was saved by a client at `last_seq` of session 1.
fn saved(last_seq: u64, snapshot: Option<Snapshot>) -> Saved {
    Saved {
        session_id: Some(session(1)),
        position: Some(Position { epoch: epoch(1), seq: Seq::new(last_seq) }),
        token: Some(Secret::new("token-1")),
        snapshot,
    }
}

/// A client, the time, and what the client has wanted since it was last looked at.
struct Scene {
    client: Client,
    now: Timestamp,
    outputs: Vec<Output>,
}

impl Scene {
    fn new(options: ClientOptions, saved: Option<Saved>) -> Self {
        let client = Client::new(options, saved);
        let mut scene =
            Self { client, now: Timestamp::from_millis(1_000_000), outputs: Vec::new() };
        scene.collect();
        scene
    }

    /// A client with nothing saved whose socket is open.
    fn opened() -> Self {
        Self::from_saved(None)
    }

    /// A client with this saved whose socket is open.
    fn from_saved(saved: Option<Saved>) -> Self {
        let mut scene = Self::new(ClientOptions::default(), saved);
        scene.input(Input::Opened);
        scene
    }

    /// Attached to session 1, new, in epoch 1. What led there is forgotten.
    fn attached() -> Self {
        Self::attached_with(ClientOptions::default())
    }

    fn attached_with(options: ClientOptions) -> Self {
        let mut scene = Self::new(options, None);
        scene.input(Input::Opened);
        scene.receive(created(session(1), epoch(1)));
        scene.outputs.clear();
        scene
    }

    /// Attached, with events up to `last` delivered and acked.
    fn attached_at(last: u64) -> Self {
        let mut scene = Self::attached();
        for seq in 1..=last {
            scene.receive(event(seq));
        }
        scene.receive(heartbeat(last));
        scene.outputs.clear();
        scene
    }

    fn input(&mut self, input: Input) {
        self.client.handle(input, self.now);
        let overdue = self.client.next_deadline().filter(|due| *due <= self.now);
        assert_eq!(overdue, None, "what is due is done");
        self.collect();
    }

    fn receive(&mut self, event: ServerEvent) {
        self.input(Input::Received(event));
    }

    fn send(&mut self, n: u64) {
        self.input(Input::Send { message_id: id(n), content: content(n) });
    }

    fn close(&mut self, code: Option<u16>) {
        self.input(Input::Closed { code, retry_after: None, random: HALF });
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.input(Input::Tick);
    }

    /// Waits for the next deadline, and says how long that took.
    fn wait(&mut self) -> Duration {
        let due = self.client.next_deadline().expect("something is due");
        let waited = due.since(self.now);
        self.pass(waited);
        waited
    }

    /// The connection breaks and a socket is open again.
    fn reopen(&mut self) {
        self.close(None);
        self.wait();
        self.input(Input::Opened);
    }

    fn collect(&mut self) {
        while let Some(output) = self.client.poll_output() {
            self.outputs.push(output);
        }
    }

    /// Everything wanted since this was last asked.
    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Of that, the frames.
    fn sent(&mut self) -> Vec<ClientCommand> {
        let frame = |output| if let Output::Send(command) = output { Some(command) } else { None };
        self.take().into_iter().filter_map(frame).collect()
    }

    /// Of that, the statuses.
    fn statuses(&mut self) -> Vec<Status> {
        let status = |output| if let Output::Status(status) = output { Some(status) } else { None };
        self.take().into_iter().filter_map(status).collect()
    }

    /// Of that, what the application is told of the out log: events by seq, gaps and states in words.
    fn told(&mut self) -> Vec<String> {
        self.take().into_iter().filter_map(|output| told(&output)).collect()
    }

    /// The last thing saved.
    fn last_saved(&mut self) -> Option<Saved> {
        let saved = |output| if let Output::Save(saved) = output { Some(saved) } else { None };
        self.take().into_iter().filter_map(saved).last()
    }
}

fn told(output: &Output) -> Option<String> {
    if let Output::Deliver(event) = output {
        Some(event.seq.to_string())
    } else if let Output::DeliverGap(gap) = output {
        Some(match gap {
            Gap::Evicted { missing, lost: None } => format!("gap {missing}"),
            Gap::Evicted { missing, lost: Some(lost) } => format!("gap {missing} lost {lost}"),
            Gap::PositionUnknown => "gap unknown".into(),
        })
    } else if let Output::DeliverState { state, fills_gap } = output {
        Some(format!("state {}{}", state.seq, if *fills_gap { " for the gap" } else { "" }))
    } else {
        None
    }
}
