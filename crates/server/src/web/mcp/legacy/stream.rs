//! A GET: the stream of a session that begins, or that its client comes back to.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use rejoin_core::record::{Kind, Record};
use rejoin_core::{Seq, SessionId};
use rejoin_store::Changes;

use super::super::event_id::{EventId, Owed, SessionTag};
use super::super::feed::{Beginning, Feed};
use super::super::get::LAST_EVENT_ID;
use super::super::request::{Accepts, not_acceptable};
use super::super::sse;
use super::failure::LegacyFailure;
use super::{OVER, SessionQuery, SseCaller, returning};
use crate::mcp::Present;
use crate::mcp::logged::StreamName;
use crate::service::{self, Denial, Service, Visitor};
use crate::web::Front;

/// The header in which a client that comes back names its session.
const SESSION: &str = "x-session-id";

pub(super) async fn open(
    client: SseCaller,
    State(front): State<Arc<Front>>,
    Query(query): Query<SessionQuery>,
    headers: HeaderMap,
) -> Result<Response, LegacyFailure> {
    if !Accepts::of(&headers).events {
        return Err(not_acceptable("Accept must name text/event-stream").into());
    }
    let header = headers.get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let name = match header.or(query.session) {
        Some(name) => Some(name),
        None => returning::session(&front, &client, &headers).await?.map(|id| id.to_string()),
    };
    let opened = match name {
        Some(name) => named(&front, &client, &name, &headers).await?,
        None => begin(&front, &client, None).await?,
    };
    let Opened { record, after, lost_log, present, changes } = opened;
    let (stream, owed) = (StreamName::whole(), Owed::new());
    let (cursor, suspects_loss) = (after, lost_log);
    let beginning =
        Beginning { stream, cursor, owed, ends: false, suspects_loss, present, changes };
    let feed = Feed::begin(&front, &record, beginning).read_by(&front, &client.visitor.caller);
    let endpoint = endpoint(&feed, record.id());
    let response = sse::respond(feed, Some(endpoint), None);
    Ok(front.left.watch(record.id().clone(), client.identity.known(), response))
}

/// A session whose stream can begin.
struct Opened {
    record: Record,
    /// What its client has.
    after: Seq,
    /// Whether the log that its client has read is gone.
    lost_log: bool,
    present: Present,
    changes: Changes,
}

/// The first event: where messages are to be posted. Its id says where the stream begins.
fn endpoint(feed: &Feed, session: &SessionId) -> String {
    let place = feed.place();
    format!("event: endpoint\nid: {place}\ndata: /message?sessionId={}\n\n", session.client_name())
}

/// The session that the client names. If it can't have that, another one.
async fn named(
    front: &Arc<Front>,
    client: &SseCaller,
    name: &str,
    headers: &HeaderMap,
) -> Result<Opened, LegacyFailure> {
    let (visitor, chooses) = (&client.visitor, front.service.settings().client_session_ids);
    let Ok(id) = SessionId::parse(name) else {
        return begin(front, client, Some(name).filter(|_| chooses)).await;
    };
    if chooses && front.service.is_unheard_of(visitor, &id).await? {
        return begin(front, client, Some(name)).await;
    }
    let (by, before, named_by) = (visitor.clone(), Arc::clone(front), id.clone());
    let headers = headers.clone();
    let returning = async move { come_back(&before, &by, &named_by, &headers).await };
    match front.service.come_back(visitor, &id, returning).await {
        Ok(opened) => Ok(opened),
        Err(Denial::NotFound | Denial::Ended(_)) => {
            begin(front, client, Some(name).filter(|_| chooses)).await
        }
        Err(denial) => Err(denial.into()),
    }
}

/// Makes a session: of this name, unless somebody else has it. Its client may be gone before it is attached.
async fn begin(
    front: &Arc<Front>,
    client: &SseCaller,
    name: Option<&str>,
) -> Result<Opened, LegacyFailure> {
    let (visitor, name) = (client.visitor.clone(), name.map(str::to_owned));
    let (service, made_by) = (&front.service, front.service.clone());
    let about = returning::about(&client.identity);
    let made = service.finish(|_| async move { made(&made_by, &visitor, name, about).await });
    Ok(made.await?)
}

async fn made(
    service: &Service,
    visitor: &Visitor,
    name: Option<String>,
    about: &str,
) -> Result<Opened, Denial> {
    let chosen = match name {
        Some(name) => match service.mcp_session_named(visitor, &name, about).await {
            Err(Denial::NotFound | Denial::Ended(_)) => None,
            other => Some(other?),
        },
        None => None,
    };
    let record = match chosen {
        Some(record) => record,
        None => service.create(visitor, Kind::Mcp, about, None).await?,
    };
    let sessions = service.sessions();
    let changes = sessions.store().changes(record.id());
    let hub = sessions.hubs().of(record.id());
    let present = hub.enter(sessions, &record, OVER, false).await;
    Ok(Opened { after: record.acked, lost_log: false, record, present, changes })
}

/// The client is back: it has its session again under the next generation.
async fn come_back(
    front: &Arc<Front>,
    visitor: &Visitor,
    id: &SessionId,
    headers: &HeaderMap,
) -> Result<Opened, Denial> {
    let service = &front.service;
    let record = service.mcp_session(visitor, id).await?;
    let id = record.id(); // what it was named by may be another name of it
    let changes = service.sessions().store().changes(id);
    let present = service.be_there_again(&record, OVER, true).await?;
    let (after, lost_log) = match last_place(&record, headers) {
        Some(place) if place.log == record.log => (place.seq.min(record.head), false),
        Some(_) => (Seq::ZERO, true),
        None => (record.acked, record.ack_lost),
    };
    if !lost_log {
        service.sessions().hubs().of(id).has_all_up_to(after);
    }
    let (replayed, lost) = service::after(&record, after);
    service.count_stream_return(&record, replayed, lost);
    Ok(Opened { after, lost_log, present, changes, record })
}

/// Where the client's last stream stood. An id that is none of this session's says nothing: there are
/// clients that send the last they have seen, whatever it was of.
fn last_place(record: &Record, headers: &HeaderMap) -> Option<EventId> {
    let given = headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    EventId::parse(given).filter(|place| place.session == SessionTag::of(record.id()))
}
