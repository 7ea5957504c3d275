//! A performance: five musicians, a network that is cut at random, a server that is killed twice; and what must be
//! true at the end of it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::musician::Musician;
use crate::network::Network;
use crate::pace::{JOBS_EACH, KILLED_AFTER, MUSICIANS, Pace};
use crate::random::Random;
use crate::server::JOURNAL;
use crate::studio::State;
use crate::timeline::{Timeline, What};

/// What came of a performance.
#[derive(Debug)]
pub(crate) struct Performance {
    pub(crate) results: usize,
    pub(crate) cuts: usize,
    pub(crate) restarts: usize,
    /// Calls that a musician made again, because they were refused or broke before they began.
    pub(crate) repeated: usize,
    pub(crate) svg: String,
}

/// Plays, and checks.
pub(crate) async fn perform(
    pace: Pace,
    seed: u64,
    short: bool,
    data: &Path,
) -> Result<Performance> {
    let mut random = Random::from(seed);
    let timeline = Arc::new(Timeline::new());
    let mut server = Server::start(data, short).await?;
    let networks = networks(server.address).await?;
    let (results, mut arrived) = mpsc::unbounded_channel();
    let mut players = JoinSet::new();
    for (number, name) in MUSICIANS.into_iter().enumerate() {
        let (url, plan) = (networks[number].url(), pace.plan(number, &mut random));
        let (timeline, results) = (Arc::clone(&timeline), results.clone());
        let musician = Musician { name, number, timeline, results, repeated: AtomicUsize::new(0) };
        players.spawn(async move {
            let played = musician.play(&url, plan).await;
            played.map(|played| (played, musician.repeated.load(Ordering::Relaxed)))
        });
    }
    drop(results);
    let cutting = cut(&networks, pace, random, &timeline);
    let killing = kill(&mut server, &mut arrived, pace, &timeline);
    let playing = async {
        let mut all = Vec::new();
        while let Some(played) = players.join_next().await {
            all.push(played??);
        }
        anyhow::Ok(all)
    };
    let played = tokio::select! {
        played = timeout(pace.deadline, playing) => played.context("not everybody got everything")??,
        ended = killing => bail!("the server is gone: {ended:?}"),
        () = cutting => bail!("nobody cuts any more"),
    };
    judge(&played, &timeline, data)
}

async fn networks(server: SocketAddr) -> Result<Vec<Network>> {
    let mut networks = Vec::new();
    for _ in MUSICIANS {
        networks.push(Network::to(server).await?);
    }
    Ok(networks)
}

/// Cuts somebody's connections, again and again.
async fn cut(networks: &[Network], pace: Pace, mut random: Random, timeline: &Timeline) {
    loop {
        sleep(random.between(pace.cut_every)).await;
        let victim = random.below(networks.len() as u64) as usize;
        let away = random.between(pace.away);
        timeline.note(victim, What::Cut(away));
        networks[victim].go_down();
        sleep(away).await;
        networks[victim].come_up();
    }
}

/// Kills the server with -9 and starts it again, twice.
async fn kill(
    server: &mut Server,
    arrived: &mut mpsc::UnboundedReceiver<String>,
    pace: Pace,
    timeline: &Timeline,
) -> Result<()> {
    let mut count = 0;
    while arrived.recv().await.is_some() {
        count += 1;
        if KILLED_AFTER.contains(&count) {
            timeline.note(0, What::Killed(pace.down));
            server.child.kill().await?;
            sleep(pace.down).await;
            server.child = Server::spawn(server.address, &server.data, server.short).await?;
        }
    }
    std::future::pending().await // everybody has finished
}

/// Every job's result arrived once, the studio made each once, and everybody said everything once.
fn judge(
    played: &[(Vec<(String, String)>, usize)],
    timeline: &Timeline,
    data: &Path,
) -> Result<Performance> {
    let studio = State::read(&data.join(JOURNAL));
    let mut arrived: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (job, artifact) in played.iter().flat_map(|(played, _)| played) {
        arrived.entry(job).or_default().push(artifact);
    }
    let all = MUSICIANS.len() * JOBS_EACH;
    ensure!(arrived.len() == all, "results of {} jobs arrived, of {all}", arrived.len());
    for (job, artifacts) in &arrived {
        ensure!(artifacts.len() == 1, "the result of {job} arrived {} times", artifacts.len());
        let made = studio.artifacts.get(*job).map(String::as_str);
        ensure!(made == Some(artifacts[0]), "{job} is {made:?} and arrived as {}", artifacts[0]);
    }
    ensure!(studio.said.len() == all, "{} things were said, not {all}", studio.said.len());
    let made = std::fs::read_to_string(data.join(JOURNAL))?;
    let (begun, ready) = (made.matches("\"began\"").count(), made.matches("\"ready\"").count());
    ensure!(
        (begun, ready) == (all, all),
        "{begun} jobs were begun and {ready} finished, not {all}"
    );
    let restarts = timeline.count(|what| matches!(what, What::Killed(_)));
    ensure!(restarts == KILLED_AFTER.len(), "the server was restarted {restarts} times");
    Ok(Performance {
        results: arrived.len(),
        cuts: timeline.count(|what| matches!(what, What::Cut(_))),
        restarts,
        repeated: played.iter().map(|(_, repeated)| repeated).sum(),
        svg: timeline.svg(),
    })
}

/// The server's process. It ends with this.
struct Server {
    address: SocketAddr,
    data: PathBuf,
    short: bool,
    child: Child,
}

impl Server {
    async fn start(data: &Path, short: bool) -> Result<Self> {
        let address = free_address()?;
        let child = Self::spawn(address, data, short).await?;
        Ok(Self { address, data: data.to_owned(), short, child })
    }

    async fn spawn(address: SocketAddr, data: &Path, short: bool) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg(address.to_string()).arg(data).args(short.then_some("--short"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().context("the server does not start")?;
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), listens).await.context("the server does not listen")?;
        Ok(child)
    }
}

/// An address below those that the kernel gives to whoever connects: nobody gets it while the server is down.
fn free_address() -> Result<SocketAddr> {
    let first = 12_000 + (std::process::id() % 7_000) as u16;
    let addresses = (first..32_000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut free = addresses.filter(|address| TcpListener::bind(address).is_ok());
    free.next().context("no port is free")
}
