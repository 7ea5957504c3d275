//! A server with a real socket, and a client that speaks frames.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use rejoin::core::keys::{KeyRing, SecretKey};
use rejoin::core::worker::Publication;
use rejoin::core::{Principal, SessionId};
use rejoin::event::Spoken;
use rejoin::service::{Service, ServiceSettings};
use rejoin::store::MemoryStore;
use rejoin::web::{self, WebSettings};
use rejoin::{
    Authenticate, Caller, CredentialFault, Open, ServerSettings, Sessions, Unauthorized, WallTime,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// However slow the machine, nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    pub(crate) sessions: Sessions,
    pub(crate) address: SocketAddr,
}

#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) settings: ServerSettings,
    pub(crate) service: ServiceSettings,
    pub(crate) web: WebSettings,
    pub(crate) keys: Option<Keys>,
    pub(crate) bounds: Option<rejoin::core::limits::LogBounds>,
}

/// Everybody's key is `key-` and their name.
pub(crate) struct Keys;

impl Authenticate for Keys {
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        let name = credential.strip_prefix("key-").ok_or(CredentialFault::UnknownKey)?;
        let until = (name == "brief").then(|| now + Duration::from_millis(300));
        Ok(Caller {
            principal: Principal::new(name),
            admin: false,
            publish: true,
            until,
            credential: None,
        })
    }
}

impl Server {
    pub(crate) async fn start(setup: Setup) -> Self {
        let bounds = setup.bounds.unwrap_or_default();
        let store = Arc::new(MemoryStore::new(bounds, 1_000));
        let sessions = Sessions::builder(store).settings(setup.settings).start().unwrap();
        let secret = SecretKey::new(b"a secret of thirty-two characters").unwrap();
        let keys = Arc::new(KeyRing::new(secret, vec![]));
        let service =
            Service::new(sessions.clone(), Arc::new(move || Arc::clone(&keys)), setup.service);
        let access: Arc<dyn Authenticate> = match setup.keys {
            Some(keys) => Arc::new(keys),
            None => Arc::new(Open),
        };
        let router = web::router(service, access, setup.web);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { sessions, address }
    }

    pub(crate) async fn connect(&self) -> Client {
        self.connect_as(None).await
    }

    pub(crate) async fn connect_as(&self, key: Option<&str>) -> Client {
        let mut request = format!("ws://{}/ws", self.address).into_client_request().unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
        }
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let mut client = Client { socket };
        assert_eq!(client.next().await["event"], "system.connected");
        client
    }

    /// Says things on behalf of the agent.
    pub(crate) async fn say(&self, session: &str, events: impl IntoIterator<Item = Value>) {
        let id = SessionId::parse(session).unwrap();
        for event in events {
            let spoken = Spoken::parse(event.to_string().as_bytes()).unwrap();
            self.sessions.publish(&id, Publication::from(spoken)).await.unwrap();
        }
    }

    /// Waits until the session is parked.
    pub(crate) async fn parked(&self, session: &str) {
        let id = SessionId::parse(session).unwrap();
        let parked = async {
            while self.sessions.store().session(&id).await.unwrap().unwrap().attached.is_some() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, parked).await.expect("the session is never parked");
    }
}

pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub(crate) async fn send(&mut self, frame: Value) {
        self.raw(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn raw(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// The next frame that is no ping.
    pub(crate) async fn next(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    async fn message(&mut self) -> Message {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            match next.expect("nothing comes").expect("the connection ended").unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                other => return other,
            }
        }
    }

    /// The next frame that is `event`.
    pub(crate) async fn until(&mut self, event: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["event"] == event {
                return frame;
            }
        }
    }

    /// The code it is closed with, after whatever frames come before.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            if let Message::Close(frame) = self.message().await {
                return frame.map_or(1005, |frame| frame.code.into());
            }
        }
    }

    pub(crate) async fn create(&mut self) -> Value {
        self.send(json!({ "event": "user.create_session", "content": { "client_id": "t" } })).await;
        self.next().await
    }

    pub(crate) async fn reconnect(&mut self, session: &str, content: Value) -> Value {
        let frame = json!({ "event": "user.reconnect", "session_id": session, "content": content });
        self.send(frame).await;
        self.next().await
    }
}

/// The session of a frame.
pub(crate) fn session(frame: &Value) -> String {
    frame["session_id"].as_str().expect("a session id").to_owned()
}

pub(crate) fn event(number: u64) -> Value {
    json!({ "event": "agent.thinking", "content": format!("thought {number}") })
}
