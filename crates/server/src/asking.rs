//! Asking the hook what becomes of a session whose client has gone: when it goes, and when a server starts
//! on what another one left behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use rejoin_core::record::Record;
use rejoin_core::state::Keep;
use rejoin_core::{Generation, SessionId, Timestamp};
use rejoin_store::{Failure, Parked, Unavailable};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::hook::Cleanup;
use crate::shared::Shared;
use crate::tasks::Owned;

/// Sessions that the hook is asked about at the same time when a server starts.
const AT_ONCE: usize = 256;

/// How long each of them has for that; then the next one is asked about too.
const TURN: Duration = Duration::from_secs(10);

/// Ends when the hook has returned.
pub(crate) struct Asked(oneshot::Receiver<()>);

/// Lets the hook decide about a session whose client of this generation has gone.
pub(crate) async fn ask(
    shared: &Arc<Shared>,
    id: &SessionId,
    generation: Generation,
    gone_at: Timestamp,
) -> Result<Option<Asked>, Unavailable> {
    let record = parked(shared, id, generation).await?;
    Ok(record.and_then(|record| put(shared, record, gone_at, None)))
}

/// Lets the hook decide about sessions whose client was attached when the server before this one ended.
pub(crate) async fn ask_after_start(owned: Owned, shared: Arc<Shared>, parked: Vec<Parked>) {
    let asking = stream::iter(parked).for_each_concurrent(AT_ONCE, |Parked { id, generation }| {
        let shared = Arc::clone(&shared);
        async move {
            match ask_about_left(owned, &shared, &id, generation).await {
                Ok(Some(Asked(returned))) => drop(timeout(TURN, returned).await),
                Ok(None) => {}
                Err(error) => tracing::error!(session = %id, %error, "the hook was not asked"),
            }
        }
    });
    tokio::select! {
        () = asking => {}
        () = shared.stopping() => {}
    }
}

/// Until the hook decides the session has its longest ttl, as it has after any disconnect.
async fn ask_about_left(
    owned: Owned,
    shared: &Arc<Shared>,
    id: &SessionId,
    generation: Generation,
) -> Result<Option<Asked>, Unavailable> {
    let Some(record) = parked(shared, id, generation).await? else { return Ok(None) };
    let (gone_at, otherwise) = (record.last_activity, record.expires_at);
    let until = gone_at + shared.settings.session.lifetime.session_ttl;
    match shared.store.change(owned).keep(id, Keep { generation, until }).await {
        Ok(()) => Ok(put(shared, record, gone_at, Some(otherwise))),
        Err(Failure::Refused(_) | Failure::NotFound) => Ok(None),
        Err(Failure::Unavailable(unavailable)) => Err(unavailable),
    }
}

/// The session, if no client has come back since.
async fn parked(
    shared: &Shared,
    id: &SessionId,
    generation: Generation,
) -> Result<Option<Record>, Unavailable> {
    let record = shared.store.session(id).await?;
    Ok(record.filter(|record| record.generation == generation && record.is_active()))
}

/// Puts the question. It runs on its own, so that a slow hook holds nobody up; it ends at the latest when
/// the server stops, or when there is nothing left to decide.
fn put(
    shared: &Arc<Shared>,
    record: Record,
    gone_at: Timestamp,
    otherwise: Option<Timestamp>,
) -> Option<Asked> {
    let hook = shared.hook.clone()?;
    let cleanup = Cleanup::new(Arc::clone(shared), &record, gone_at, otherwise);
    let (returns, returned) = oneshot::channel();
    let stopping = Arc::clone(shared);
    shared.tasks.spawn(|_| async move {
        tokio::select! {
            () = hook.disconnected(record, cleanup) => {}
            () = stopping.stopping() => {}
            () = sleep(stopping.settings.session.lifetime.session_ttl) => {}
        }
        let _ = returns.send(());
    });
    Some(Asked(returned))
}
