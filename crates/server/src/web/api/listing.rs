//! Lists of sessions, a page at a time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::SessionId;
use rejoin_core::record::Record;
use rejoin_store::Query;
use serde::{Deserialize, Serialize};

use super::records::{RecordView, StatusWord, shown_bytes};
use super::request::{Params, page_size, session_id};
use crate::limits;
use crate::service::{Denial, Visitor};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::Nearby;

/// Records that are looked at for one page; one that is not full then says where to go on.
const MAX_SCAN: usize = 20_000;

/// Which sessions, and from where on.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListParams {
    status: Option<StatusWord>,
    limit: Option<usize>,
    after: Option<String>,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct ListView {
    sessions: Vec<RecordView>,
    /// What to give as `after` for the next page; null if this was the last.
    next: Option<Box<str>>,
}

/// `GET /sessions`: all that are remembered, or those of one status.
pub(super) async fn list(
    Nearby(visitor): Nearby,
    State(front): State<Arc<Front>>,
    Params(params): Params<ListParams>,
) -> Result<Json<ListView>, Failure> {
    Ok(Json(page(&front, &visitor, params).await?))
}

/// `GET /sessions/active`: those that are attached or parked.
pub(super) async fn list_active(
    Nearby(visitor): Nearby,
    State(front): State<Arc<Front>>,
    Params(params): Params<ListParams>,
) -> Result<Json<ListView>, Failure> {
    let params = ListParams { status: Some(StatusWord::Active), ..params };
    Ok(Json(page(&front, &visitor, params).await?))
}

async fn page(front: &Front, visitor: &Visitor, params: ListParams) -> Result<ListView, Denial> {
    let limit = page_size(params.limit)?;
    let mut query = Query {
        principal: None,
        active_only: params.status == Some(StatusWord::Active),
        after: session_id("after", params.after.as_deref())?,
        limit: limit + 1, // one more than wanted says whether there is more
    };
    let now = front.service.now();
    let wanted =
        |record: &Record| params.status.is_none_or(|status| StatusWord::of(record, now) == status);
    let (mut found, mut scanned, mut bytes) = (Vec::new(), 0, 0);
    let next = loop {
        let read = front.service.list(visitor, query.clone()).await?;
        let (count, last) = (read.len(), read.last().map(|record| record.id().clone()));
        scanned += count;
        let mut full = false;
        for record in read.into_iter().filter(|record| wanted(record)) {
            bytes += shown_bytes(&record);
            full = found.len() == limit || (bytes > limits::LIST_BYTES && !found.is_empty());
            if full {
                break;
            }
            found.push(record);
        }
        if full {
            break found.last().map(|record: &Record| record.id().clone());
        }
        if count < query.limit {
            break None;
        }
        if scanned >= MAX_SCAN {
            break last;
        }
        query.after = last;
    };
    let sessions = found.iter().map(|record| RecordView::of(visitor, record, now)).collect();
    let next = next.as_ref().map(SessionId::as_str).map(Into::into);
    Ok(ListView { sessions, next })
}
