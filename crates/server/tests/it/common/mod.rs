//! Words for the tests: a server with a store that can be made to fail, clients that attach and read,
//! agents that do as they are told. Time is tokio's and stands still while anybody has work to do.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part")]

pub mod agents;
pub mod children;
pub mod client;
pub mod failing;
pub mod going_over;
pub mod hooks;
pub mod http;
pub mod mcp;
pub mod mcp_client;
pub mod upstream;
pub mod web;

use std::sync::Arc;
use std::time::Duration;

use rejoin::core::lifetime::{Lifetime, OnDisconnect};
use rejoin::core::log::EntryKind;
use rejoin::core::page::Body;
use rejoin::core::record::{Ending, Kind, Record, Status};
use rejoin::core::worker::{Publication, Published};
use rejoin::core::{EventBody, InSeq, Principal, SessionId};
use rejoin::store::{MemoryStore, Store};
use rejoin::{Builder, ServerSettings, Sessions};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

/// What sessions are kept for in the tests, in all.
pub const SESSION_TTL: Duration = Duration::from_secs(24 * 3600);

pub fn body(text: impl AsRef<str>) -> Body {
    Arc::from(text.as_ref().as_bytes())
}

/// An event that says this.
pub fn event(text: impl AsRef<str>) -> EventBody {
    EventBody::new("said", &text.as_ref()).unwrap()
}

/// What it says: an event's content, or all of anything else.
pub fn text(body: &Body) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(said) if said["event"] == "said" => said["content"].as_str().unwrap().to_owned(),
        Ok(_) | Err(_) => text,
    }
}

pub fn me() -> Principal {
    Principal::anonymous()
}

pub fn settings() -> ServerSettings {
    ServerSettings::default()
}

/// Settings with this policy for lost connections.
pub fn policy(on_disconnect: OnDisconnect, disconnect_ttl: Option<Duration>) -> ServerSettings {
    let mut settings = settings();
    settings.session.lifetime =
        Lifetime { on_disconnect, disconnect_ttl, session_ttl: SESSION_TTL };
    settings
}

/// A server, and one session in it.
pub struct World {
    pub sessions: Sessions,
    pub store: Arc<dyn Store>,
    pub id: SessionId,
}

pub async fn world() -> World {
    world_with(settings(), |builder| builder).await
}

pub async fn world_with(settings: ServerSettings, more: impl FnOnce(Builder) -> Builder) -> World {
    world_on(Arc::new(MemoryStore::default()), settings, more).await
}

pub async fn world_on(
    store: Arc<dyn Store>,
    settings: ServerSettings,
    more: impl FnOnce(Builder) -> Builder,
) -> World {
    let builder = Sessions::builder(Arc::clone(&store)).settings(settings);
    let sessions = more(builder).start().unwrap();
    let id = sessions.create(&me(), Kind::Agent, "{}").await.unwrap().id().clone();
    World { sessions, store, id }
}

impl World {
    /// A backend says this.
    pub async fn say(&self, texts: &[&str]) -> Published {
        self.publish(Publication { events: texts.iter().map(event).collect(), ..said() }).await
    }

    /// A backend says that it has dealt with entries up to this one.
    pub async fn cover(&self, in_seq: u64) {
        self.publish(Publication { in_seq: Some(InSeq::new(in_seq)), ..said() }).await;
    }

    pub async fn publish(&self, publication: Publication) -> Published {
        self.sessions.publish(&self.id, publication).await.unwrap()
    }

    /// Somebody who is not attached sends a message to the agent.
    pub async fn send(&self, message: &str) {
        let sent = self.sessions.send(&self.id, EntryKind::Message, None, body(message)).await;
        sent.unwrap();
    }

    pub async fn record(&self) -> Record {
        self.store.session(&self.id).await.unwrap().unwrap()
    }

    /// How the session has ended, if it has.
    pub async fn ending(&self) -> Option<Ending> {
        match self.record().await.status {
            Status::Active => None,
            Status::Ended { ending, .. } => Some(ending),
        }
    }

    pub async fn is_parked(&self) -> bool {
        let record = self.record().await;
        record.is_active() && record.attached.is_none()
    }

    pub async fn parked(&self) {
        until(async || self.is_parked().await).await;
    }

    pub async fn ended(&self) -> Ending {
        until(async || self.ending().await.is_some()).await;
        self.ending().await.unwrap()
    }

    /// Waits until no session has a driver.
    pub async fn quiet(&self) {
        until(async || self.sessions.live() == 0).await;
    }
}

pub fn said() -> Publication {
    Publication::default()
}

/// Waits until it is so; at most a millisecond of the tests' time for each look, and not for ever.
pub async fn until(condition: impl AsyncFn() -> bool) {
    for _ in 0..5_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("that never happened");
}

/// Lets everybody do what they have to do, in next to no time.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Lets that much time pass, and everybody do what they have to.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

/// It happens, in a time that is no limit for anybody who lives.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(2 * SESSION_TTL, what).await.expect("somebody waits for ever")
}
