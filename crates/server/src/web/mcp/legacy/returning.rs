//! Clients of `/sse` that come back without a name for their session.
//!
//! The official TypeScript client (`client/sse.js`) opens its stream again by itself, but with headers of its own: neither
//! the session nor the last event is among them. What it does say is the revision that it has agreed upon, which a
//! client that begins can't know. So whoever says one, and whose principal has left just one stream of such a session, is
//! that one's client. If there are several nobody can tell them apart, and each gets a new session. Both must be known
//! callers ([`KnownCaller`]): the one that began the session, and the one that comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::StreamExt as _;
use rejoin_core::SessionId;
use rejoin_core::record::{Kind, Record};
use tokio::time::Instant;

use super::SseCaller;
use crate::limits::SSE_LEFT;
use crate::service::{Denial, Visitor};
use crate::web::Front;
use crate::web::identity::{Identity, KnownCaller};
use crate::web::mcp::PROTOCOL_VERSION;

/// How long after its stream broke a client may come back without a name. They come within `sse_retry`, or
/// when the server is there again.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(60);

/// What a session says of its client that came over `/sse`, which introduces itself only later …
const NOT_INTRODUCED: &str = "{}";

/// … and if that was not a known caller. It is stored, so that the session is given to nobody after a restart either.
const NOT_KNOWN: &str = r#"{"identified":false}"#;

/// What a session that begins says of its client.
pub(super) fn about(identity: &Identity) -> &'static str {
    if identity.known().is_some() { NOT_INTRODUCED } else { NOT_KNOWN }
}

/// Sessions whose stream broke, and when.
#[derive(Clone, Default)]
pub(crate) struct Left(Arc<Mutex<HashMap<SessionId, Instant>>>);

impl Left {
    /// Those whose stream broke with the process before this one.
    pub(crate) fn by_restart(sessions: Vec<SessionId>) -> Self {
        let now = Instant::now();
        let left = sessions.into_iter().take(SSE_LEFT).map(|id| (id, now));
        Self(Arc::new(Mutex::new(left.collect())))
    }

    /// The stream of a session is there; when its response is dropped its client, if it is known, has left.
    pub(super) fn watch(
        &self,
        session: SessionId,
        client: Option<KnownCaller<'_>>,
        response: Response,
    ) -> Response {
        self.lock().remove(&session);
        if client.is_none() {
            return response;
        }
        let open = OpenStream { left: self.clone(), session };
        response.map(|body| {
            Body::from_stream(body.into_data_stream().map(move |chunk| {
                let _ = &open;
                chunk
            }))
        })
    }

    fn recent(&self) -> Vec<SessionId> {
        let mut left = self.lock();
        forget_old(&mut left);
        left.keys().cloned().collect()
    }

    /// The stream of a session broke.
    fn note(&self, session: SessionId) {
        let mut left = self.lock();
        if left.len() >= SSE_LEFT {
            forget_old(&mut left);
        }
        if left.len() < SSE_LEFT {
            left.insert(session, Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that is being read.
struct OpenStream {
    left: Left,
    session: SessionId,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.left.note(self.session.clone());
    }
}

/// Forgets those whose client has not come back in time.
fn forget_old(left: &mut HashMap<SessionId, Instant>) {
    left.retain(|_, at| at.elapsed() < COMES_BACK_WITHIN);
}

/// The session of a client that has agreed upon a revision before, and names no session; nothing if it can't be told.
pub(super) async fn session(
    front: &Front,
    client: &SseCaller,
    headers: &HeaderMap,
) -> Result<Option<SessionId>, Denial> {
    let revision = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    let (Some(revision), Some(_)) = (revision, client.identity.known()) else { return Ok(None) };
    let mut found = None;
    for id in front.left.recent() {
        if !is_its(front, &client.visitor, &id, revision).await? {
            continue;
        }
        if found.replace(id).is_some() {
            return Ok(None);
        }
    }
    Ok(found)
}

/// Whether a session that was left may be that of a client which says this revision.
async fn is_its(
    front: &Front,
    visitor: &Visitor,
    id: &SessionId,
    revision: &str,
) -> Result<bool, Denial> {
    let record: Record = match front.service.mcp_session(visitor, id).await {
        Ok(record) => record,
        Err(Denial::NotFound | Denial::Ended(_)) => return Ok(false),
        Err(denial) => return Err(denial),
    };
    let over_sse = record.about.kind == Kind::Mcp && &*record.about.client == NOT_INTRODUCED;
    if !over_sse || record.id() != id {
        return Ok(false);
    }
    let sessions = front.service.sessions();
    let hub = sessions.hubs().of(id);
    let agreed = hub.revision(sessions.store()).await?;
    Ok(agreed == Some(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_did_not_come_back_make_room_for_others() {
        let (left, id) = (Left::default(), |n: usize| SessionId::parse(&n.to_string()).unwrap());
        for number in 0..=SSE_LEFT {
            left.note(id(number));
        }
        assert_eq!(left.lock().len(), SSE_LEFT);
        tokio::time::advance(COMES_BACK_WITHIN).await;
        left.note(id(SSE_LEFT));
        assert_eq!(left.recent(), [id(SSE_LEFT)]);
    }
}
