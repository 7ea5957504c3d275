//! What lies between a client and the gateway: it can reset every connection, and stay away for a while. It
//! also knows how far an exchange has come, so that a test can break it in the middle.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// However slow the machine, an answer does not take this long to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A network that breaks when told to. It is gone when this is dropped.
pub(crate) struct Network {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    talks: Arc<watch::Sender<Talks>>,
    _task: JoinSet<()>,
}

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Connections of an earlier age are reset.
    age: u64,
    /// New ones pass.
    up: bool,
}

/// The last exchange on each connection.
type Talks = HashMap<u64, Talk>;

#[derive(Debug, Default)]
struct Talk {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Network {
    /// A network that leads to `server`.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(watch::Sender::new(State { age: 0, up: true }));
        let talks = Arc::new(watch::Sender::new(Talks::new()));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, server, Arc::clone(&state), Arc::clone(&talks)));
        Self { address, state, talks, _task: task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Both ends of every connection get a TCP reset; new ones pass.
    pub(crate) fn reset(&self) {
        self.state.send_modify(|state| state.age += 1);
    }

    /// The same, and new ones are reset as well until it comes up.
    pub(crate) fn go_down(&self) {
        self.state.send_modify(|state| *state = State { age: state.age + 1, up: false });
    }

    pub(crate) fn come_up(&self) {
        self.state.send_modify(|state| state.up = true);
    }

    /// Waits until the client has the id of an event of the answer to the request with `word` in it. Before
    /// that no client can resume, whatever the server does.
    pub(crate) async fn can_resume(&self, word: &str) {
        self.has_replied(word, "id:").await;
    }

    /// Waits until the client has these words of the answer to the request with `word` in it.
    pub(crate) async fn has_replied(&self, word: &str, words: &str) {
        let has =
            |text: &[u8], part: &str| text.windows(part.len()).any(|at| at == part.as_bytes());
        let mut talks = self.talks.subscribe();
        let waiting = talks.wait_for(|talks| {
            talks.values().any(|talk| has(&talk.request, word) && has(&talk.reply, words))
        });
        let seen = timeout(PATIENCE, waiting).await.map(|_| ());
        seen.unwrap_or_else(|_| panic!("the stream of {word} never began with an event id"));
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    state: Arc<watch::Sender<State>>,
    talks: Arc<watch::Sender<Talks>>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let Ok((client, _)) = listener.accept().await else { return };
        connections.spawn(carry(client, server, state.subscribe(), number, Arc::clone(&talks)));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    mut state: watch::Receiver<State>,
    number: u64,
    talks: Arc<watch::Sender<Talks>>,
) {
    let State { age, up } = *state.borrow_and_update();
    let connected = if up { TcpStream::connect(server).await.ok() } else { None };
    let Some(server) = connected else { return reset(&client) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client, mut server) = (client.into_split(), server.into_split());
    let note = |change: &dyn Fn(&mut Talk)| {
        talks.send_modify(|talks| change(talks.entry(number).or_default()));
    };
    let asked = |bytes: &[u8]| {
        note(&|talk: &mut Talk| {
            talk.request.extend_from_slice(bytes);
            talk.reply.clear();
        });
    };
    let answered = |bytes: &[u8]| note(&|talk: &mut Talk| talk.reply.extend_from_slice(bytes));
    tokio::select! {
        _ = forward(&mut client.0, &mut server.1, asked) => {}
        _ = forward(&mut server.0, &mut client.1, answered) => {}
        _ = state.wait_for(|now| now.age != age) => {
            reset(client.0.as_ref());
            reset(server.0.as_ref());
        }
    }
}

/// Passes bytes on until either side ends; `note` hears of what was passed.
async fn forward(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    note: impl Fn(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
        note(&buffer[..read]);
    }
}

/// The other side is to get a reset when this is dropped.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
