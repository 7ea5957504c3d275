//! A call in the logs of its upstream session: the entry that it is, and where what answers it is said.

use std::net::IpAddr;

use rejoin_core::record::Record;
use rejoin_core::{InSeq, Seq, SessionId};
use serde_json::json;

use super::failure::denied;
use crate::mcp::logged::StreamName;
use crate::mcp::message::{Message, RequestId};
use crate::mcp::own_words::notification;
use crate::random;
use crate::service::Denial;
use crate::sessions::Sessions;
use crate::web::mcp::McpFailure;
use crate::web::mcp::post::{Entering, enter};

/// One execution of a request.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub(super) session: SessionId,
    /// The entry that it is.
    pub(super) in_seq: InSeq,
    /// Where what belongs to it is said, which is also its id towards the server behind.
    pub(super) stream: StreamName,
    /// What belongs to it lies after this.
    pub(super) from: Seq,
}

/// What a call may hear besides its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// Whatever the server says meanwhile, questions too.
    Everything,
    /// Nothing: what the server says goes to another one.
    Nothing,
}

impl Execution {
    /// Enters a request of somebody at an address, which `text` makes under the id that it is given.
    pub(super) async fn begin(
        sessions: &Sessions,
        record: &Record,
        hears: Hears,
        caller: Option<IpAddr>,
        text: impl FnOnce(&RequestId) -> String,
    ) -> Result<Self, McpFailure> {
        let stream = stream(hears).map_err(denied)?;
        let message = Message::parse(&text(&id_of(&stream)))?;
        let session = record.id().clone();
        let entering = Entering { stream: &stream, from: caller };
        let in_seq = enter(sessions, &session, message, entering).await.map_err(denied)?;
        Ok(Self { session, in_seq, stream, from: record.head })
    }

    /// The id under which the server behind, and the gateway, know it.
    pub(super) fn id(&self) -> RequestId {
        id_of(&self.stream)
    }

    /// Nobody wants its answer any more.
    pub(super) async fn cancel(&self, sessions: &Sessions, reason: &str) -> Result<(), Denial> {
        let params = json!({ "requestId": self.stream.to_string(), "reason": reason });
        let text = notification("notifications/cancelled", &params);
        tell(sessions, &self.session, &text).await
    }
}

/// Enters something that needs no answer. It is entered though whoever says it may go away: it was noted as said before.
pub(super) async fn tell(
    sessions: &Sessions,
    session: &SessionId,
    text: &str,
) -> Result<(), Denial> {
    let wrong = |why: crate::mcp::message::NoMessage| Denial::Invalid(why.to_string().into());
    let message = Message::parse(text).map_err(wrong)?;
    let (own, session, stream) = (sessions.clone(), session.clone(), stream(Hears::Nothing)?);
    let entered = sessions.finish(|_| async move {
        enter(&own, &session, message, Entering { stream: &stream, from: None }).await
    });
    entered.await?.map(drop)
}

fn stream(hears: Hears) -> Result<StreamName, Denial> {
    let bytes = random::bytes()?;
    Ok(match hears {
        Hears::Everything => StreamName::from_random(bytes),
        Hears::Nothing => StreamName::answers_only(bytes),
    })
}

fn id_of(stream: &StreamName) -> RequestId {
    RequestId::text(&stream.to_string())
}
