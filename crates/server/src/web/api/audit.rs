//! The audit trail over HTTP.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::SessionId;
use rejoin_core::attempt::Attempt;
use rejoin_store::audit::{AuditQuery, AuditRecord};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{Params, page_size, session_id};
use crate::limits;
use crate::service::Visitor;
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::Nearby;

/// Which records, and from where on.
#[derive(Debug, Deserialize)]
pub(super) struct AuditParams {
    session_id: Option<String>,
    limit: Option<usize>,
    before: Option<u64>,
}

/// `GET /audit`: attempts to get at sessions, newest first: the caller's own, or all of them for an
/// administrator.
pub(super) async fn read(
    Nearby(visitor): Nearby,
    State(front): State<Arc<Front>>,
    Params(params): Params<AuditParams>,
) -> Result<Json<Value>, Failure> {
    let query = AuditQuery {
        session_id: session_id("session_id", params.session_id.as_deref())?,
        before: params.before,
        limit: page_size(params.limit)?,
        max_bytes: limits::LIST_BYTES,
    };
    let page = front.service.audit_trail(&visitor, &query).await?;
    let records: Vec<Value> = page.records.iter().map(|record| view(&visitor, record)).collect();
    Ok(Json(json!({ "records": records, "next": page.next })))
}

fn view(visitor: &Visitor, record: &AuditRecord) -> Value {
    let Attempt { at, session_id, principal, address, transport, action } = &record.attempt;
    let own = *principal == visitor.caller.principal;
    let shown = |id: &SessionId| if own { id.client_name() } else { id.as_str() }.to_owned();
    json!({
        "at": at.to_string(),
        "session_id": session_id.as_ref().map(shown),
        "principal": principal.as_str(),
        "address": address,
        "transport": transport,
        "action": action,
        "success": record.success(),
        "reason": record.reason.as_str(),
    })
}
