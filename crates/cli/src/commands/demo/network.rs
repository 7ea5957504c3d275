//! What lies between the demo's client and its server: a relay that passes bytes on while it is up,
//! and when it goes down drops every connection and takes no new one.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::super::failure::Failure;

/// A network that can fail. Dropping it ends every connection.
pub(super) struct Network {
    address: SocketAddr,
    up: watch::Sender<bool>,
    relay: JoinHandle<()>,
}

impl Network {
    /// A network that leads to `server`, and is up.
    pub(super) async fn to(server: SocketAddr) -> Result<Self, Failure> {
        let failed = |error| Failure::Other(format!("the demo can't listen on loopback: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let up = watch::Sender::new(true);
        let relay = tokio::spawn(relay(listener, server, up.subscribe()));
        Ok(Self { address, up, relay })
    }

    /// Where the client finds it.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// It fails.
    pub(super) fn go_down(&self) {
        self.up.send_replace(false);
    }

    /// It works again.
    pub(super) fn come_up(&self) {
        self.up.send_replace(true);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

/// Takes connections until its task is aborted; those it has taken end with it.
async fn relay(listener: TcpListener, server: SocketAddr, up: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        connections.spawn(carry(client, server, up.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut up: watch::Receiver<bool>) {
    if !*up.borrow() {
        return;
    }
    let pass = async {
        let mut server = TcpStream::connect(server).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = pass => {}
        _ = up.wait_for(|up| !up) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_goes_through_comes_out_until_the_network_fails() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Network::to(server.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(network.address()).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut bytes = [0; 5];
        accepted.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");

        network.go_down();
        assert_eq!(accepted.read(&mut bytes).await.unwrap_or(0), 0);
        assert_eq!(client.read(&mut bytes).await.unwrap_or(0), 0);
        let mut refused = TcpStream::connect(network.address()).await.unwrap();
        assert_eq!(refused.read(&mut bytes).await.unwrap_or(0), 0);
    }
}
