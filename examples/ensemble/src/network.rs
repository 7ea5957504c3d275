//! What lies between a musician and the server, and breaks.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A network that breaks when told to. It is gone when this is dropped.
pub(crate) struct Network {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
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

impl Network {
    /// A network that leads to `server`.
    pub(crate) async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(State { age: 0, up: true }));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, server, Arc::clone(&state)));
        Ok(Self { address, state, _task: task })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Both ends of every connection get a TCP reset, and so does every new one until it comes up.
    pub(crate) fn go_down(&self) {
        self.state.send_modify(|state| *state = State { age: state.age + 1, up: false });
    }

    pub(crate) fn come_up(&self) {
        self.state.send_modify(|state| state.up = true);
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(connect(client, server, state.subscribe()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(mut client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) {
    let State { age, up } = *state.borrow_and_update();
    let connected = if up { TcpStream::connect(server).await.ok() } else { None };
    let Some(mut server) = connected else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let broke = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
        _ = state.wait_for(|now| now.age != age) => true,
    };
    if broke {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}
