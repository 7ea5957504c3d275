//! Pushing events to connected clients through the store, beside pushing them without one.
//!
//! One agent a client says events of 300 bytes one by one, as fast as they are taken; each is durable before
//! it is sent. The peer is axum alone: the same bytes in a loop, a flush for each frame. The clients are the
//! same code on both sides, on a thread of their own, and so are the sockets' options: those of the
//! binary, with which a flush sends. What the peer does where the operating system is left to gather what
//! was flushed (Nagle's algorithm) is said beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use axum::Router;
use axum::extract::ws::{Message as Pushed, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use rejoin::core::EventBody;
use rejoin::core::worker::Publication;
use rejoin::{Agent, Seat, Sessions};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use rejoin_bench::report::{Report, Wanted, median};
use rejoin_bench::serving::{self, Sending, Serving};
use rejoin_bench::world::{self, EVENT_BYTES};

const CLIENTS: usize = 100;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(2_000);
const WARM_UP: Duration = Duration::from_millis(500);

/// How far an agent may be ahead of its client, so that nothing is evicted unseen.
const AHEAD: usize = 512;

/// Events that it may go on by at a time: the clients' thread says so, and that is no part of what is measured.
const STRIDE: usize = 32;

/// Events between two acks, as the protocol has it.
const ACK_EVERY: u64 = 100;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let server = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = world::directory()?;
    let rooms: Rooms = (0..CLIENTS).map(|_| Semaphore::new(AHEAD / STRIDE)).collect();
    let store = Arc::new(world::open(directory.path(), 2 * AHEAD)?);
    let agent = Pusher { event: event()?, rooms: Arc::clone(&rooms) };
    let ours = server.block_on(serving::sessions(Sessions::builder(store).agent(agent)))?;
    let bare = server.block_on(peer(Sending::AtOnce))?;
    let gathered = server.block_on(peer(Sending::Together))?;
    let (mut pushed, mut peers, mut gatherers) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        peers.push(rate(bare.address, &rooms)?);
        pushed.push(rate(ours.address, &rooms)?);
        gatherers.push(rate(gathered.address, &rooms)?);
    }
    let (pushed, peers, gathered) = (median(pushed), median(peers), median(gatherers));
    let detail = format!(
        "{pushed:.0} events/s to {CLIENTS} clients, axum alone {peers:.0} with TCP_NODELAY as here, \
         {gathered:.0} ({:.2}) without, where the kernel gathers the frames",
        pushed / gathered
    );
    let name = "push through the store, share of axum without one";
    report.figure(name, pushed / peers, Wanted::AtLeast(0.5), &detail);
    Ok(())
}

/// How many strides further each agent may go.
type Rooms = Arc<[Semaphore]>;

/// An event as agents say them, in the form in which it is stored.
fn event() -> Result<EventBody> {
    let (head, tail) = (r#"{"event":"agent.thinking","content":""#, r#"","metadata":{}}"#);
    let filling = "a step further ".repeat(EVENT_BYTES);
    let text = format!("{head}{}{tail}", &filling[..EVENT_BYTES - head.len() - tail.len()]);
    Ok(EventBody::parse(text.as_bytes())?)
}

/// Says the same event again and again.
struct Pusher {
    event: EventBody,
    rooms: Rooms,
}

#[async_trait]
impl Agent for Pusher {
    async fn run(&self, seat: Seat) {
        let Some(room) = number(&seat).and_then(|number| self.rooms.get(number)) else { return };
        let talk = async {
            let (voice, event) = (seat.voice(), self.event.clone());
            loop {
                room.acquire().await.context("it is never closed")?.forget();
                for _ in 0..STRIDE {
                    let events = vec![event.clone()];
                    voice.say(Publication { events, ..Publication::default() }).await?;
                }
            }
            #[expect(unreachable_code, reason = "it says of what type the errors are")]
            anyhow::Ok(())
        };
        tokio::select! {
            _ = talk => {}
            () = seat.stopped() => {}
        }
    }
}

/// Which client a seat's session belongs to.
fn number(seat: &Seat) -> Option<usize> {
    #[derive(Deserialize)]
    struct About {
        client_id: String,
    }
    let about: About = serde_json::from_str(&seat.start().record.about.client).ok()?;
    about.client_id.parse().ok()
}

/// The peer: whoever connects is sent the event for ever.
async fn peer(sending: Sending) -> Result<Serving> {
    let upgrade = |upgrade: WebSocketUpgrade| async move { upgrade.on_upgrade(push) };
    serving::routes(Router::new().route("/ws", get(upgrade)), sending).await
}

async fn push(socket: WebSocket) {
    let Ok(event) = event() else { return };
    let text = String::from_utf8_lossy(&event).into_owned();
    let event = Pushed::Text(text.into());
    let (mut sink, mut stream) = socket.split();
    let reading = async { while let Some(Ok(_)) = stream.next().await {} };
    let writing = async { while sink.send(event.clone()).await.is_ok() {} };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// Events a second that the clients get.
fn rate(server: SocketAddr, rooms: &Rooms) -> Result<f64> {
    let rooms = Arc::clone(rooms);
    let clients = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(clients(server, rooms))
    });
    clients.join().ok().context("the clients' thread failed")?
}

async fn clients(server: SocketAddr, rooms: Rooms) -> Result<f64> {
    let round = Arc::new(Round { rooms, events: AtomicU64::new(0), over: AtomicBool::new(false) });
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        // What the last round left unread is not to be waited for.
        let missing = (AHEAD / STRIDE).saturating_sub(round.rooms[number].available_permits());
        round.rooms[number].add_permits(missing);
        tasks.spawn(client(server, number, Arc::clone(&round)));
    }
    tokio::time::sleep(WARM_UP).await;
    let (started, before) = (Instant::now(), round.events.load(Ordering::Relaxed));
    tokio::time::sleep(ROUND).await;
    let events = round.events.load(Ordering::Relaxed) - before;
    let rate = events as f64 / started.elapsed().as_secs_f64();
    round.over.store(true, Ordering::Relaxed);
    while let Some(ended) = tokio::time::timeout(ROUND, tasks.join_next()).await? {
        ended??;
    }
    Ok(rate)
}

/// What the clients of a round have in common.
struct Round {
    rooms: Rooms,
    /// Those that they got.
    events: AtomicU64,
    over: AtomicBool,
}

/// A client that counts and acks, and ends its session when the round is over: an agent whose client is
/// gone would go on and take part in the next. The peer knows nothing of sessions, and is told the same.
async fn client(server: SocketAddr, number: usize, round: Arc<Round>) -> Result<()> {
    let (mut socket, _) = connect_async(format!("ws://{server}/ws")).await?;
    let content = serde_json::json!({ "client_id": number.to_string() });
    let create = serde_json::json!({ "event": "user.create_session", "content": content });
    socket.send(Message::text(create.to_string())).await?;
    let (mut session, mut events) = (NO_SESSION.to_owned(), 0);
    loop {
        let message = socket.next().await.context("the server has gone")??;
        let Message::Text(text) = message else { continue };
        if text.starts_with(r#"{"event":"agent.thinking""#) {
            if round.over.load(Ordering::Relaxed) {
                return end(socket, &session).await;
            }
            events += 1;
            round.events.fetch_add(1, Ordering::Relaxed);
            if events % STRIDE as u64 == 0 {
                round.rooms[number].add_permits(1);
            }
            if events % ACK_EVERY == 0 {
                let metadata = serde_json::json!({ "last_seq": events });
                let ack = serde_json::json!({
                    "event": "user.ack", "session_id": session, "metadata": metadata,
                });
                socket.send(Message::text(ack.to_string())).await?;
            }
        } else if text.starts_with(r#"{"event":"agent.session_created""#) {
            let frame: serde_json::Value = serde_json::from_str(&text)?;
            session = frame["session_id"].as_str().unwrap_or_default().to_owned();
        } else {
            anyhow::ensure!(!text.contains(r#""code":"gap""#), "events were evicted unseen");
        }
    }
}

/// What the peer's clients are attached to.
const NO_SESSION: &str = "sess_none";

async fn end(mut socket: WebSocketStream<MaybeTlsStream<TcpStream>>, session: &str) -> Result<()> {
    if session == NO_SESSION {
        return Ok(());
    }
    let end = serde_json::json!({ "event": "user.end_session", "session_id": session });
    socket.send(Message::text(end.to_string())).await?;
    while let Some(message) = socket.next().await {
        if message?.to_text()?.starts_with(r#"{"event":"agent.session_ended""#) {
            return Ok(());
        }
    }
    anyhow::bail!("the server has gone")
}
