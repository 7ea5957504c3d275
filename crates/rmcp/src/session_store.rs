//! rmcp's session store on ours: what a client said of itself outlives the server.

use async_trait::async_trait;
use rejoin::Sessions;
use rejoin::core::record::{Kind, Record};
use rejoin::core::state::Keep;
use rejoin::core::worker::Publication;
use rejoin::core::{Generation, Principal, SessionId};
use rejoin::mcp::parts::{Book, Handshake, Keeping, to_its_end};
use rejoin::store::{CreateRefused, Failure};
use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};
use serde_json::value::{RawValue, to_raw_value};

/// rmcp's session store on Rejoin's sessions. It goes with [`crate::DurableSessionManager`], which knows each of
/// its sessions before it is stored, and with rmcp's own manager, whose sessions it makes known.
#[derive(Clone, Debug)]
pub struct DurableSessionStore {
    sessions: Sessions,
}

impl DurableSessionStore {
    /// A store of these sessions.
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions }
    }

    async fn record(&self, id: &str) -> Result<Option<Record>, SessionStoreError> {
        let Ok(id) = SessionId::parse(id) else { return Ok(None) };
        let record = self.sessions.store().session(&id).await?;
        Ok(record.filter(|record| record.is_active() && record.about.kind == Kind::Mcp))
    }

    async fn book(&self, record: &Record) -> Result<Book, SessionStoreError> {
        let snapshot = self.sessions.store().snapshot(record.id()).await?;
        Ok(Book::from_body(snapshot.as_ref().map(|snapshot| &snapshot.body)))
    }

    /// Stores what a client said of itself, unless that is known.
    async fn store_handshake(
        &self,
        id: &str,
        handshake: Handshake,
    ) -> Result<(), SessionStoreError> {
        let record = self.made(id).await?;
        let book = self.book(&record).await?;
        if book.handshake.is_some() {
            return Ok(());
        }
        let mut keeping = Keeping::from(book);
        keeping.change().handshake = Some(handshake);
        let publication = Publication { state: keeping.write().state, ..Publication::default() };
        self.sessions.publish(record.id(), publication).await?;
        Ok(())
    }

    /// The session of a manager that does not make them here.
    async fn made(&self, id: &str) -> Result<Record, SessionStoreError> {
        if let Some(record) = self.record(id).await? {
            return Ok(record);
        }
        let named = SessionId::parse(id)?;
        let made =
            self.sessions.create_named(named, &Principal::anonymous(), Kind::Mcp, "{}").await;
        match made {
            Ok(record) => Ok(record),
            Err(Failure::Refused(CreateRefused::Exists)) => {
                self.record(id).await?.ok_or_else(|| "a session of that id has ended".into())
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

#[async_trait]
impl SessionStore for DurableSessionStore {
    async fn load(&self, session_id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let Some(record) = self.record(session_id).await? else { return Ok(None) };
        let Some(handshake) = self.book(&record).await?.handshake else { return Ok(None) };
        // Whoever asks for a session uses it, also where a manager attaches nobody. Where one does, how long the
        // session is kept has been decided when its client went.
        let until =
            self.sessions.clock().now() + self.sessions.settings().session.lifetime.session_ttl;
        let keep = Keep { generation: record.generation, until };
        if record.generation == Generation::ZERO && until > record.expires_at {
            let _ = self.sessions.keep(record.id(), keep).await; // refused: its client is there by now
        }
        Ok(Some(SessionState::new(serde_json::from_str(handshake.params.get())?)))
    }

    async fn store(&self, session_id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let params = to_raw_value(&state.initialize_params)?;
        let handshake = Handshake { params, result: RawValue::NULL.to_owned() };
        let (own, id) = (self.clone(), session_id.to_owned());
        // To its end: a session that is made has its handshake.
        to_its_end(&self.sessions, async move { own.store_handshake(&id, handshake).await }).await?
    }

    async fn delete(&self, session_id: &str) -> Result<(), SessionStoreError> {
        let Ok(id) = SessionId::parse(session_id) else { return Ok(()) };
        match self.sessions.end(&id).await {
            Ok(_) | Err(Failure::NotFound | Failure::Refused(_)) => Ok(()),
            Err(Failure::Unavailable(unavailable)) => Err(unavailable.into()),
        }
    }
}
