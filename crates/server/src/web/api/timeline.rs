//! What happened to one session, and which reconnect tokens it has, for people to look at. Never a token, nor
//! anything to know one by.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::Timestamp;
use rejoin_core::state::Tokens;
use serde_json::{Value, json};

use super::events::gap_view;
use super::request::Named;
use crate::service::{Denial, transport_word};
use crate::timeline::{Happening, Moment};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::Operator;

/// Used tokens that are shown; older ones are not.
const SHOWN_USED: usize = 16;

/// `GET /sessions/{id}/timeline`: also of a session that has ended.
pub(super) async fn read(
    Operator { visitor, operates }: Operator,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<Value>, Failure> {
    let service = &front.service;
    let record = service.session(&visitor, &id).await?;
    let sessions = service.sessions();
    let moments = sessions.timeline(record.id());
    let moments: Vec<_> = moments.iter().map(|moment| moment_view(moment, operates)).collect();
    let tokens = sessions.store().tokens(record.id()).await.map_err(Denial::from)?;
    let tokens = tokens.map(|tokens| tokens_view(&tokens, service.now())).unwrap_or_default();
    Ok(Json(json!({
        "session_id": id.as_str(),
        "since": sessions.timeline_since().unwrap_or(service.started()).to_string(),
        "moments": moments,
        "tokens": tokens,
    })))
}

/// What an agent wrote to standard error is for those who look after the server: it may tell of its insides.
fn moment_view(moment: &Moment, operates: bool) -> Value {
    let mut view = json!({
        "at": moment.at.to_string(),
        "what": moment.what.as_str(),
        "generation": moment.generation.get(),
    });
    match &moment.what {
        Happening::Attached(transport) => {
            view["transport"] = transport.map(transport_word).into();
        }
        Happening::Resumed(back) => {
            view["away_seconds"] = back.away.map(|away| away.as_secs_f64()).into();
            view["replayed"] = back.replayed.into();
            view["lost"] = back.lost.into();
            view["gap"] = back.gap.as_ref().map_or(Value::Null, gap_view);
        }
        Happening::AgentDied(death) => {
            view["status"] = (*death.status).into();
            view["stderr"] = operates.then(|| json!(death.stderr)).into();
        }
        Happening::Created
        | Happening::Parked
        | Happening::ParkedByRestart
        | Happening::Restored
        | Happening::Closed
        | Happening::Expired => {}
    }
    view
}

/// Those that can be used, then those that were, the latest first.
fn tokens_view(tokens: &Tokens, now: Timestamp) -> Vec<Value> {
    let live = tokens.live().iter().rev().map(|token| {
        let state = if token.expires_at > now { "live" } else { "expired" };
        json!({ "state": state, "expires_at": token.expires_at.to_string(), "used_at": null })
    });
    let used = tokens.used().rev().take(SHOWN_USED).map(|(token, at)| {
        let (until, at) = (token.expires_at.to_string(), at.to_string());
        json!({ "state": "used", "expires_at": until, "used_at": at })
    });
    live.chain(used).collect()
}
