//! Calls whose stream broke because the process before this one ended. A client that asks the same again comes
//! to what became of them: they run again, or nobody knows whether they did anything.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::record::Record;
use rejoin_core::{InSeq, Seq};
use rejoin_store::{PageLimit, Unavailable};

use super::asked::{Digest, digest_of};
use super::broken::{CallKey, OrphanedCall, has_passed};
use super::execution::Execution;
use super::upstream::UpstreamSession;
use crate::mcp::logged::{Entry, Event, StreamName};
use crate::mcp::message::{Kind, Message};
use crate::mcp::uses_token;
use crate::web::Front;

/// How many calls of one session are looked at.
const MOST: usize = 1000;

/// A call of the process before this one.
struct Orphan {
    in_seq: InSeq,
    stream: StreamName,
    request: Message,
}

/// Looks for such calls, once for each session, while they may still be asked for again.
pub(super) async fn look_for(front: &Arc<Front>, upstream: &UpstreamSession, owner: Digest) {
    let window = front.settings.mcp.modern.reissue_window;
    let left = window.saturating_sub(front.service.uptime());
    if left.is_zero() || upstream.alone {
        return;
    }
    let record = &upstream.record;
    match orphans(front, record).await {
        Ok(orphans) => {
            for orphan in orphans {
                adopt(front, upstream, owner, orphan, left);
            }
        }
        Err(_) => {
            tracing::warn!(session = %record.id(), "calls that broke could not be looked for")
        }
    }
}

fn adopt(
    front: &Arc<Front>,
    upstream: &UpstreamSession,
    owner: Digest,
    orphan: Orphan,
    left: Duration,
) {
    let Orphan { in_seq, stream, request } = orphan;
    let (session, from) = (upstream.record.id().clone(), upstream.record.oldest.previous());
    let request = match uses_token(&request) {
        true => front.service.reveal_arguments(&session, &request).unwrap_or(request),
        false => request,
    };
    let key = CallKey { owner, digest: digest_of(&request) };
    let execution = Execution { session, in_seq, stream, from };
    let waiting = OrphanedCall { execution, upstream: upstream.clone() };
    let Some(number) = front.modern.broken.keep(&key, waiting) else { return };
    let own = Arc::clone(front);
    front.service.sessions().spawn(|_| async move {
        // It is not cancelled: its client may have been asked something, and come with the answer.
        let _ = has_passed(&own, left).await && own.modern.broken.is_over(&key, number);
    });
}

/// Requests that were not answered, or of which nobody knows; those that became tasks are none.
async fn orphans(front: &Front, record: &Record) -> Result<Vec<Orphan>, Unavailable> {
    let sessions = front.service.sessions();
    let store = sessions.store();
    let mut orphans = Vec::new();
    for stored in store.entries(record.id(), record.covered, MOST).await? {
        let entry = Entry::from_body(&stored.body).filter(|e| e.process != *sessions.process());
        if let Some(Entry { stream, message, .. }) = entry {
            orphans.push(Orphan { in_seq: stored.in_seq, stream, request: message });
        }
    }
    let tasks = read_log(front, record, &mut orphans).await?;
    orphans.retain(|orphan| {
        let asks = matches!(orphan.request.kind(), Kind::Request { .. });
        asks && !tasks.contains(&orphan.stream.of_task())
    });
    Ok(orphans)
}

/// Adds calls that were answered for since this process began, and says which became tasks.
async fn read_log(
    front: &Front,
    record: &Record,
    orphans: &mut Vec<Orphan>,
) -> Result<HashSet<StreamName>, Unavailable> {
    let (began, sessions) = (front.service.started(), front.service.sessions());
    let (mut tasks, mut after) = (HashSet::new(), Seq::ZERO);
    loop {
        let page = sessions.store().read(record.id(), after, PageLimit::default()).await?;
        let Some(page) = page.filter(|page| !page.events.is_empty()) else { return Ok(tasks) };
        for stored in &page.events {
            after = stored.seq;
            let Some(event) = Event::from_body(&stored.body) else { continue };
            if event.stream.is_task() {
                tasks.insert(event.stream.clone());
            }
            let fetched = sessions.hubs().fetched.contains(record.id(), stored.seq);
            let request = event.request.filter(|_| stored.at >= began && !fetched);
            let request = request.and_then(|text| Message::parse(text).ok());
            if let (Some(in_seq), Some(request)) = (event.answers, request)
                && !orphans.iter().any(|orphan| orphan.in_seq == in_seq)
            {
                orphans.push(Orphan { in_seq, stream: event.stream, request });
            }
        }
    }
}
