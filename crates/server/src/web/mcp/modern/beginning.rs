//! How a call begins, or goes on: one that broke, or that has asked its client something.

use std::sync::Arc;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::adopted;
use super::asked::{StatelessRequest, invalid};
use super::broken::{Attended, CallKey, EnteringCall, OrphanedCall};
use super::execution::{Execution, Hears, tell};
use super::failure::denied;
use super::state::{CallPlace, Purpose, call_name};
use super::upstream::{UpstreamSession, has_ended};
use crate::mcp::message::RequestId;
use crate::mcp::own_words::request;
use crate::web::Front;
use crate::web::identity::KnownCaller;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;

/// How often a call begins at most: its upstream session may end before it has.
const MOST_BEGINNINGS: usize = 3;

/// A call whose client is there.
pub(super) struct StartedCall {
    pub(super) asked: StatelessRequest,
    pub(super) call: Attended,
    /// Questions that its client has answered before.
    pub(super) answered: Vec<String>,
}

pub(super) async fn begin(
    client: &Client,
    front: &Arc<Front>,
    asked: StatelessRequest,
) -> Result<StartedCall, McpFailure> {
    let key = client.identity.known().and_then(|caller| call_key(caller, front, &asked));
    let broken = match &key {
        None => None,
        Some(key) => front.modern.broken.take_soon(key).await,
    };
    let beginning = EnteringCall::new(front, key);
    let begun = match (asked.state.as_deref(), broken) {
        (Some(state), _) => {
            let (waiting, answered) = gone_on(client, front, &asked, state).await?;
            StartedCall { asked, call: beginning.with(waiting), answered }
        }
        (None, Some(waiting)) => {
            StartedCall { asked, call: beginning.with(waiting), answered: Vec::new() }
        }
        (None, None) => begun_whole(client, front, asked, beginning).await?,
    };
    front.modern.broken.has_come(&begun.call.execution().stream);
    Ok(begun)
}

/// By what the same call is known when it is issued again; nothing if a call whose stream breaks waits for nobody.
fn call_key(caller: KnownCaller<'_>, front: &Front, asked: &StatelessRequest) -> Option<CallKey> {
    let owner = format!("{}\n{}", caller.name(), asked.client_name());
    let waits = !front.settings.mcp.modern.reissue_window.is_zero();
    waits.then(|| CallKey { owner: Sha256::digest(owner).into(), digest: asked.digest })
}

/// A call that begins, whether or not its client goes away meanwhile: the server behind may be handed it before
/// it is known to be entered, and from then on it must be found by whoever issues it again.
async fn begun_whole(
    client: &Client,
    front: &Arc<Front>,
    asked: StatelessRequest,
    beginning: EnteringCall,
) -> Result<StartedCall, McpFailure> {
    let (client, own) = (client.clone(), Arc::clone(front));
    let begun = front.service.sessions().finish(|_| async move {
        let waiting = begun(&client, &own, &asked, beginning.key()).await?;
        Ok(StartedCall { asked, call: beginning.with(waiting), answered: Vec::new() })
    });
    begun.await.map_err(|unavailable| denied(unavailable.into()))?
}

/// A call that begins. If its upstream session ends meanwhile, its client can do nothing about it: the next
/// one is made. Nothing was handed to a server then.
async fn begun(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
    key: Option<&CallKey>,
) -> Result<OrphanedCall, McpFailure> {
    for _ in 1..MOST_BEGINNINGS {
        match begun_once(client, front, asked, key).await {
            Ok(waiting) => return Ok(waiting),
            Err(failure) if !has_ended(client, front, asked).await => return Err(failure),
            Err(_) => {}
        }
    }
    begun_once(client, front, asked, key).await
}

async fn begun_once(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
    key: Option<&CallKey>,
) -> Result<OrphanedCall, McpFailure> {
    let upstream = UpstreamSession::of(client, front, asked).await?;
    let sessions = front.service.sessions();
    if let Some(key) = key {
        let adopting = || adopted::look_for(front, &upstream, key.owner);
        upstream.begun.adopted.get_or_init(adopting).await;
        if let Some(waiting) = front.modern.broken.take(key) {
            return Ok(waiting);
        }
    }
    if asked.log_level.is_some() && upstream.server.capabilities.contains_key("logging") {
        upstream.begun.logs.get_or_init(|| log_everything(front, &upstream)).await;
    }
    let hears = match asked.method.ends_with("/list") || &*asked.method == "completion/complete" {
        true => Hears::Nothing, // what a server says meanwhile is meant for another call
        false => Hears::Everything,
    };
    let execution =
        Execution::begin(sessions, &upstream.record, hears, client.visitor.address, |id| {
            asked.forwarded(id)
        })
        .await?;
    Ok(OrphanedCall { execution, upstream })
}

/// What a client wants to be told of is left to it with each request: the server is to tell everything.
async fn log_everything(front: &Front, upstream: &UpstreamSession) {
    let params = serde_json::value::to_raw_value(&json!({ "level": "debug" }));
    let text =
        request(&RequestId::text("rejoin-level"), "logging/setLevel", params.ok().as_deref());
    let _ = tell(front.service.sessions(), upstream.record.id(), &text).await; // or it logs less
}

/// A call whose client comes with answers: from where it stood.
async fn gone_on(
    client: &Client,
    front: &Arc<Front>,
    asked: &StatelessRequest,
    state: &str,
) -> Result<(OrphanedCall, Vec<String>), McpFailure> {
    let wrong =
        || invalid("`requestState` is not of this request, was changed, or its time is over");
    let place = CallPlace::open(state, Purpose::Input, client, front).ok_or_else(wrong)?;
    if place.call != call_name(&asked.call_digest) {
        return Err(wrong());
    }
    let record = place.record(client, front).await.map_err(|_| wrong())?;
    let upstream =
        UpstreamSession::again(client, front, record).await.map_err(denied)?.ok_or_else(wrong)?;
    Ok((OrphanedCall { execution: place.execution, upstream }, place.answered))
}
