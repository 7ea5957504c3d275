//! A client, a network that can break, the gateway and a server behind it; or the same without a gateway.

use serde_json::json;

use crate::clients::{Client, Kind};
use crate::common::server_process::ServerProcess;
use crate::fixture::{HttpFixture, Runs, kill_nine};
use crate::network::Network;

/// What is behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A command that the gateway runs for each session.
    Stdio,
    /// A server of its own, over Streamable HTTP.
    Http,
    /// There is no gateway: the client talks to the fixture.
    Direct,
}

/// Makes a test of a scenario for each client, before each kind of server that is named.
macro_rules! each_client_before {
    ([$($behind:ident $kind:ident),+] $scenario:ident) => {
        mod $scenario {$(
            mod $behind {
                use crate::clients::Kind;
                use crate::rig::Behind;

                #[tokio::test]
                async fn typescript_1() {
                    super::super::$scenario(Kind::TypeScript1, Behind::$kind).await;
                }

                #[tokio::test]
                async fn typescript_2() {
                    super::super::$scenario(Kind::TypeScript2, Behind::$kind).await;
                }

                #[tokio::test]
                async fn python() {
                    super::super::$scenario(Kind::Python, Behind::$kind).await;
                }
            }
        )+}
    };
}

/// The same for each client that takes a revision without sessions.
macro_rules! each_stateless_client_before {
    ([$($behind:ident $kind:ident),+] $scenario:ident) => {
        mod $scenario {$(
            mod $behind {
                use crate::clients::Kind;
                use crate::rig::Behind;

                #[tokio::test]
                async fn typescript_2() {
                    super::super::$scenario(Kind::TypeScript2Auto, Behind::$kind).await;
                }

                #[tokio::test]
                async fn python() {
                    super::super::$scenario(Kind::PythonAuto, Behind::$kind).await;
                }
            }
        )+}
    };
}

/// Everything that a scenario needs, connected.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) network: Network,
    pub(crate) runs: Runs,
    gateway: Option<ServerProcess>,
    server: Option<HttpFixture>,
}

impl Rig {
    pub(crate) async fn start(kind: Kind, behind: Behind) -> Self {
        Self::start_with(&[], kind, behind).await
    }

    /// The same with settings of the gateway, as flags.
    pub(crate) async fn start_with(flags: &[&str], kind: Kind, behind: Behind) -> Self {
        let runs = Runs::new();
        let (gateway, server) = match behind {
            Behind::Stdio => (Some(gateway(&runs.command_line(), flags).await), None),
            Behind::Http => {
                let server = HttpFixture::start(&runs).await;
                (Some(gateway(&server.url(), flags).await), Some(server))
            }
            Behind::Direct => (None, Some(HttpFixture::start(&runs).await)),
        };
        let front = gateway.as_ref().map(ServerProcess::address);
        let front = front.or(server.as_ref().map(HttpFixture::address)).unwrap();
        let network = Network::to(front).await;
        let url = format!("http://{}{}", network.address(), kind.path());
        let client = Client::connect(kind, &url).await;
        Self { client, network, runs, gateway, server }
    }

    /// Another client, which calls itself `name`.
    pub(crate) async fn another(&self, name: &str, kind: Kind) -> Client {
        let url = format!("http://{}{}", self.network.address(), kind.path());
        Client::connect_as(name, kind, &url).await
    }

    /// Kills the server behind the gateway with -9. One that serves HTTP is started again, as its owner
    /// would do; one that the gateway runs is the gateway's to start.
    pub(crate) async fn kill_server(&mut self, id: &str) {
        match &mut self.server {
            Some(server) => server.kill_and_restart(&self.runs).await,
            None => kill_nine(id).await,
        }
    }

    /// Kills the gateway with -9, and starts it again on the same data and port.
    pub(crate) async fn kill_and_restart_gateway(&mut self) {
        let gateway = self.gateway.as_mut().expect("there is a gateway");
        gateway.kill_nine().await;
        gateway.restart().await;
    }

    /// Which process answers the client's calls.
    pub(crate) async fn server_id(&mut self) -> String {
        self.client.call("pid", json!({})).await
    }
}

async fn gateway(upstream: &str, flags: &[&str]) -> ServerProcess {
    let mut all = vec![format!("--mcp={upstream}")];
    all.extend(flags.iter().map(ToString::to_string));
    ServerProcess::start(all, "", &[]).await
}
