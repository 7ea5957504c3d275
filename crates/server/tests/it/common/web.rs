//! A server on a real socket, with callers that have keys.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ConnectInfo;
use rejoin::agents::Command;
use rejoin::core::keys::{KeyRing, SecretKey};
use rejoin::core::record::{Kind, Transport};
use rejoin::core::{Principal, SessionId};
use rejoin::mcp::Gateway;
use rejoin::service::{Joined, Service, ServiceSettings, Visitor};
use rejoin::store::{MemoryStore, Store};
use rejoin::web::{WebSettings, router};
use rejoin::{
    Authenticate, Caller, CredentialFault, Open, ServerSettings, Sessions, Unauthorized, WallTime,
};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::http::Request;

/// The secret of the tests' servers.
pub const SECRET: &[u8] = b"the secret of the tests, 32 bytes or more";

/// How long the credential of `brief` is good.
pub const BRIEFLY: Duration = Duration::from_millis(400);

/// Callers by their keys: `alice`, `bob` and `carol`, who may publish, `reader`, who is alice without that
/// right, `brief`, who is alice for a moment, and `admin`.
#[derive(Debug)]
pub struct KeysOfTests;

impl Authenticate for KeysOfTests {
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        let until = (credential == "brief").then(|| now + BRIEFLY);
        let (principal, admin, publish) = match credential {
            "alice" | "brief" => ("alice", false, true),
            "reader" => ("alice", false, false),
            "bob" => ("bob", false, true),
            "carol" => ("carol", false, true),
            "admin" => ("root", true, true),
            _ => return Err(CredentialFault::UnknownKey.into()),
        };
        Ok(Caller { principal: Principal::new(principal), admin, publish, until, credential: None })
    }
}

/// What a server is made of.
pub struct Setup {
    pub store: Arc<dyn Store>,
    pub sessions: ServerSettings,
    pub service: ServiceSettings,
    pub web: WebSettings,
    pub access: Arc<dyn Authenticate>,
    /// Where callers seem to come from; where they do, if nothing is said.
    pub peer: Option<SocketAddr>,
    pub mcp: Option<Gateway>,
    pub agent: Option<Command>,
    /// Where timelines are kept for the next server.
    pub history: Option<PathBuf>,
}

impl Setup {
    /// Without authentication.
    pub fn open() -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            sessions: ServerSettings::default(),
            service: ServiceSettings::default(),
            web: WebSettings::default(),
            access: Arc::new(Open),
            peer: None,
            mcp: None,
            agent: None,
            history: None,
        }
    }

    /// With callers that have keys.
    pub fn keyed() -> Self {
        let web = WebSettings { open: false, ..WebSettings::default() };
        Self { web, access: Arc::new(KeysOfTests), ..Self::open() }
    }

    pub async fn start(self) -> Web {
        let Self { store, sessions, service, web, access, peer, mcp, agent, history } = self;
        let mut builder = Sessions::builder(Arc::clone(&store)).settings(sessions);
        if let Some(gateway) = mcp {
            builder = builder.mcp(gateway);
        }
        if let Some(agent) = agent {
            builder = builder.agent(agent);
        }
        if let Some(history) = history {
            builder = builder.history(history);
        }
        let sessions = builder.start().unwrap();
        let service = Service::new(sessions, Arc::new(|| Arc::new(ring())), service);
        let mut router = router(service.clone(), access, web);
        if let Some(peer) = peer {
            router = router.layer(Extension(ConnectInfo(peer)));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router.into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Web { address, service, store, serving }
    }
}

/// The keys of the tests' servers.
pub fn ring() -> KeyRing {
    KeyRing::new(SecretKey::new(SECRET).unwrap(), Vec::new())
}

/// A server that listens. It ends with the test's runtime.
pub struct Web {
    pub address: SocketAddr,
    pub service: Service,
    pub store: Arc<dyn Store>,
    serving: JoinHandle<()>,
}

impl Web {
    /// It is gone, as if it had been killed; what it stored is there.
    pub async fn kill(self) -> Arc<dyn Store> {
        self.serving.abort();
        self.store
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }

    /// Makes a session over HTTP: its id and its token.
    pub async fn create(&self) -> (String, String) {
        let made = self.post("/api/sessions").send().await.expect(201);
        (word(&made["session_id"]), word(&made["reconnect_token"]))
    }

    /// The same, by somebody with this key.
    pub async fn create_by(&self, key: &str) -> (String, String) {
        let made = self.post("/api/sessions").by(key).send().await.expect(201);
        (word(&made["session_id"]), word(&made["reconnect_token"]))
    }

    /// A session of an MCP server, which HTTP does not make.
    pub async fn create_mcp(&self) -> String {
        let me = Principal::anonymous();
        let made = self.service.sessions().create(&me, Kind::Mcp, "{}").await;
        made.unwrap().id().to_string()
    }

    /// A client is attached to a session of anonymous.
    pub async fn attach(&self, id: &str) -> Joined {
        let caller = Open.without_credential().unwrap();
        let visitor = Visitor::over(Transport::WebSocket, caller, None);
        let id = SessionId::parse(id).unwrap();
        let record = self.service.session(&visitor, &id).await.unwrap();
        self.service.join_new(&visitor, &record, Transport::WebSocket).await.unwrap()
    }

    /// Presents a token.
    pub async fn reconnect(&self, id: &str, token: &str) -> super::http::Answer {
        self.presenting(id, token).send().await
    }

    pub fn presenting(&self, id: &str, token: &str) -> Request {
        let path = format!("/api/sessions/{id}/reconnect");
        self.post(&path).json(&serde_json::json!({ "token": token }))
    }

    /// Publishes events, and says their numbers.
    pub async fn publish(&self, id: &str, events: Value) -> Value {
        self.post(&format!("/api/sessions/{id}/events")).json(&events).send().await.expect(200)
    }
}

/// That much time passes at once.
pub async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A member that is a text.
pub fn word(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
