//! A POST: one message for the server behind. It is taken as soon as it is stored; what answers it comes on
//! the session's stream, or waits for it.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use rejoin_core::SessionId;
use rejoin_core::record::Record;

use super::super::McpFailure;
use super::super::post::{Entering, enter, request_id};
use super::super::request::{messages, receive};
use super::failure::LegacyFailure;
use super::{OVER, SessionQuery, SseCaller, returning};
use crate::mcp::logged::StreamName;
use crate::mcp::message::Message;
use crate::service::{Denial, Visitor};
use crate::web::Front;
use crate::web::receiving::Received;

pub(super) async fn post(
    client: SseCaller,
    State(front): State<Arc<Front>>,
    Query(named): Query<SessionQuery>,
    headers: HeaderMap,
    request: Request,
) -> Result<(StatusCode, &'static str), LegacyFailure> {
    let Received { bytes: body, place: _place } = receive(&front, request).await?;
    let message = one_message(&front, &headers, &body)?;
    let name = named.session.ok_or_else(|| {
        McpFailure::bad("sessionId is missing: post to the address in the `endpoint` event")
    })?;
    let visitor = &client.visitor;
    let record = session(&front, &client, &name).await?;
    let had = record.id().clone();
    let taken = match take(&front, visitor, record, message).await {
        Err(Denial::Ended(ending)) => {
            let record = session(&front, &client, &name).await?;
            match *record.id() == had {
                true => Err(Denial::Ended(ending)),
                // Its client has just gone over to another one: the id names that now.
                false => take(&front, visitor, record, one_message(&front, &headers, &body)?).await,
            }
        }
        taken => taken,
    };
    taken.map_err(|denial| refusal(&front, denial))?;
    Ok((StatusCode::ACCEPTED, "Accepted"))
}

/// Takes a message for a session that goes on.
async fn take(
    front: &Front,
    visitor: &Visitor,
    record: Record,
    message: Message,
) -> Result<(), Denial> {
    let asks = request_id(&message).is_some();
    if asks {
        front.service.check_open()?; // while the server goes down no new call begins
    }
    let (sessions, from) = (front.service.sessions().clone(), visitor.address);
    let taken = front.service.finish(|_| async move {
        let hub = sessions.hubs().of(record.id());
        // A request keeps its session attached until it is answered, whether or not there is a stream.
        let present = hub.enter(&sessions, &record, OVER, false);
        let _present = if asks { Some(present.await) } else { None };
        let entering = Entering { stream: &StreamName::whole(), from };
        enter(&sessions, record.id(), message, entering).await.map(drop)
    });
    taken.await
}

fn one_message(front: &Front, headers: &HeaderMap, body: &[u8]) -> Result<Message, McpFailure> {
    let (mut messages, batch) = messages(headers, body)?;
    match messages.pop().filter(|_| !batch) {
        Some(message) => front.settings.mcp.revisions.negotiated(message),
        None => Err(McpFailure::bad("batches are of revision 2025-03-26 only")),
    }
}

/// The session that a message is for: the caller's own of that name. If there is none, one may be made.
async fn session(front: &Front, client: &SseCaller, name: &str) -> Result<Record, LegacyFailure> {
    let known = match SessionId::parse(name) {
        Ok(id) => front.service.mcp_session(&client.visitor, &id).await,
        Err(_) => Err(Denial::NotFound),
    };
    let known = match known {
        Err(gone) if is_gone(&gone) && front.settings.mcp.adopt_unknown_sessions => {
            adopt(front, client, name).await
        }
        known => known,
    };
    known.map_err(|denial| refusal(front, denial))
}

async fn adopt(front: &Front, client: &SseCaller, name: &str) -> Result<Record, Denial> {
    let about = returning::about(&client.identity);
    let adopted = front.service.mcp_session_named(&client.visitor, name, about).await;
    // By a name that can be none its client could not come back either.
    adopted.map_err(|why| if matches!(why, Denial::IdInvalid(_)) { Denial::NotFound } else { why })
}

/// Who speaks to a session that is gone has to begin again.
fn refusal(front: &Front, why: Denial) -> LegacyFailure {
    let status = front.settings.mcp.stale_session_status;
    if is_gone(&why) { LegacyFailure::Stale { status, why } } else { why.into() }
}

fn is_gone(why: &Denial) -> bool {
    matches!(why, Denial::NotFound | Denial::Ended(_))
}
