//! A network between clients and server that does what networks do: it resets, falls silent, dawdles,
//! trickles, and breaks off in the middle of a frame.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::random::Random;

/// The network. It is gone when this is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    _task: JoinSet<()>,
}

/// What the network is like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Each connection has its fate.
    Foul,
    /// Every connection passes everything.
    Fair,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Nothing.
    Spared,
    /// After a while both sides get a reset.
    Reset { after: Duration },
    /// After a while nothing is forwarded any more, and nobody is told.
    HalfOpen { after: Duration },
    /// Everything comes late, until it is reset.
    Delayed { by: Duration, after: Duration },
    /// A few bytes at a time, until it is reset.
    Slow { bytes: usize, after: Duration },
    /// It is closed in an orderly way after so many bytes from the server, or from the client,
    /// wherever that cuts a frame.
    Chopped { from_server: usize, from_client: usize },
}

impl Fate {
    fn draw(random: &mut Random) -> Self {
        let after = Duration::from_millis(random.between(0, 8_000));
        match random.between(0, 9) {
            0..=1 => Self::Spared,
            2..=3 => Self::Reset { after },
            4..=5 => Self::HalfOpen { after },
            6 => Self::Delayed { by: Duration::from_millis(random.between(20, 400)), after },
            7 => Self::Slow { bytes: random.between(1, 9) as usize, after },
            _ => Self::Chopped {
                from_server: random.between(100, 6_000) as usize,
                from_client: random.between(300, 4_000) as usize,
            },
        }
    }
}

impl Proxy {
    /// A network in front of `server`.
    pub(crate) async fn start(server: SocketAddr, seed: u64, weather: Weather) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let weather = Arc::new(watch::Sender::new(weather));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, server, seed, Arc::clone(&weather)));
        Self { address, weather, _task: task }
    }

    /// From now on everything passes; connections that had another fate are reset.
    pub(crate) fn clear_up(&self) {
        self.weather.send_replace(Weather::Fair);
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    seed: u64,
    weather: Arc<watch::Sender<Weather>>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let Ok((client, _)) = listener.accept().await else { return };
        let mut random = Random::of(seed, number);
        let fate = match *weather.borrow() {
            Weather::Foul => Fate::draw(&mut random),
            Weather::Fair => Fate::Spared,
        };
        let mut clears_up = weather.subscribe();
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return reset(&client) };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            tokio::select! {
                _ = carry(client, server, fate) => {}
                _ = clears_up.wait_for(|now| *now == Weather::Fair), if !spared(fate) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

fn spared(fate: Fate) -> bool {
    matches!(fate, Fate::Spared)
}

/// Carries bytes both ways until the connection's fate, or the end of one side.
async fn carry(client: TcpStream, server: TcpStream, fate: Fate) -> io::Result<()> {
    let (mut client, mut server) = (client.into_split(), server.into_split());
    let (pace, whole) = (Pace::of(fate), usize::MAX);
    let (from_server, from_client) = match fate {
        Fate::Chopped { from_server, from_client } => (from_server, from_client),
        Fate::Spared
        | Fate::Reset { .. }
        | Fate::HalfOpen { .. }
        | Fate::Delayed { .. }
        | Fate::Slow { .. } => (whole, whole),
    };
    let both = async {
        tokio::select! {
            ended = forward(&mut server.0, &mut client.1, pace, from_server) => ended,
            ended = forward(&mut client.0, &mut server.1, pace, from_client) => ended,
        }
    };
    match fate {
        Fate::Spared | Fate::Chopped { .. } => both.await,
        Fate::Reset { after } | Fate::Delayed { after, .. } | Fate::Slow { after, .. } => {
            let ended = timeout(after, both).await;
            if ended.is_err() {
                reset(client.0.as_ref());
                reset(server.0.as_ref());
            }
            Ok(())
        }
        Fate::HalfOpen { after } => {
            if timeout(after, both).await.is_err() {
                sleep(Duration::from_secs(20)).await; // both sides have to find out by themselves
            }
            Ok(())
        }
    }
}

/// How bytes are passed on.
#[derive(Clone, Copy)]
struct Pace {
    bytes: usize,
    pause: Option<Duration>,
}

impl Pace {
    fn of(fate: Fate) -> Self {
        match fate {
            Fate::Slow { bytes, .. } => Self { bytes, pause: Some(Duration::from_millis(5)) },
            Fate::Delayed { by, .. } => Self { bytes: 16 * 1024, pause: Some(by) },
            Fate::Spared | Fate::Reset { .. } | Fate::HalfOpen { .. } | Fate::Chopped { .. } => {
                Self { bytes: 16 * 1024, pause: None }
            }
        }
    }
}

/// Passes up to `most` bytes on.
async fn forward(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    pace: Pace,
    mut most: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; pace.bytes];
    while most > 0 {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if let Some(pause) = pace.pause {
            sleep(pause).await;
        }
        let passed = read.min(most);
        to.write_all(&buffer[..passed]).await?;
        most -= passed;
    }
    Ok(())
}

/// The other side is to get a reset when this is dropped.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
