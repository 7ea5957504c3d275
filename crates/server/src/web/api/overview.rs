//! Who the caller is, and how the server has been doing. That concerns everybody's sessions, so only an
//! administrator is told; where there is no authentication, callers on the same machine.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::request::Params;
use crate::metrics::AWAY;
use crate::series::{EVERY, Sample, Spread};
use crate::service::{Denial, Visitor};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::Perhaps;

/// From after which moment on.
#[derive(Debug, Default, Deserialize)]
pub(super) struct OverviewParams {
    after_ms: Option<u64>,
}

/// `GET /overview`.
pub(super) async fn read(
    Perhaps(visitor): Perhaps,
    State(front): State<Arc<Front>>,
    Params(params): Params<OverviewParams>,
) -> Result<Json<Value>, Failure> {
    let after = params.after_ms.map(Timestamp::from_millis);
    let Some(Visitor { caller, .. }) = visitor else { return Ok(Json(nothing())) };
    let service = &front.service;
    let mut view = json!({
        "server_version": env!("CARGO_PKG_VERSION"),
        "started_at": service.started().to_string(),
        "now": service.now().to_string(),
        "authentication": !front.settings.open,
        "caller": { "principal": caller.principal.as_str(), "admin": caller.admin },
        "whole_server": null,
    });
    if caller.admin || front.settings.open {
        view["whole_server"] = whole_server(&front, after).await?;
    }
    Ok(Json(view))
}

/// What somebody is told who has not said who they are, where that is asked for: just that. A page can ask
/// for a key then, without having been refused first.
fn nothing() -> Value {
    json!({
        "server_version": null,
        "started_at": null,
        "now": null,
        "authentication": true,
        "caller": null,
        "whole_server": null,
    })
}

async fn whole_server(front: &Front, after: Option<Timestamp>) -> Result<Value, Denial> {
    let sessions = front.service.sessions();
    let samples: Vec<_> = sessions.samples(after).iter().map(sample_view).collect();
    let commit_bounds = sessions.store().measurements().map(|store| store.seconds());
    Ok(json!({
        "interval_seconds": EVERY.as_secs(),
        "away_bounds": AWAY,
        "commit_bounds": commit_bounds,
        "samples": samples,
        "present": sample_view(&sessions.sample().await?),
    }))
}

fn sample_view(sample: &Sample) -> Value {
    let reconnects = sample.reconnects.iter();
    let reconnects: Map<_, _> =
        reconnects.map(|(reason, count)| (reason.to_string(), Value::from(*count))).collect();
    json!({
        "at_ms": sample.at.as_millis(),
        "attached": sample.attached,
        "parked": sample.parked,
        "reconnects": reconnects,
        "away": spread_view(&sample.away),
        "replayed": sample.replayed,
        "lost": sample.lost,
        "commits": sample.commits.as_ref().map(spread_view),
        "buffered_bytes": sample.buffered_bytes,
    })
}

/// At or below each bound, and last in all.
fn spread_view(spread: &Spread) -> Value {
    spread.below.iter().chain([&spread.all]).copied().map(Value::from).collect()
}
