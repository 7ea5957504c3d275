//! Reconnect tokens: handing one out, and renewing a session by one. Neither attaches anybody.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use rejoin_core::codes::Reason;
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{Named, RawName, Text};
use crate::service::id_or_impossible;
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::{Nearby, OverHttp};

#[derive(Deserialize)]
struct PresentedToken {
    token: String,
}

/// `GET` or `POST /sessions/{id}/token`: another token for a session that goes on.
pub(super) async fn issue(
    Nearby(visitor): Nearby,
    State(front): State<Arc<Front>>,
    Named(id): Named,
) -> Result<Json<Value>, Failure> {
    let issued = front.service.issue_token(&visitor, &id).await.map_err(Failure::of_token)?;
    Ok(Json(json!({
        "session_id": id.as_str(),
        "reconnect_token": issued.token.as_str(),
        "expires_in_minutes": minutes(&front),
    })))
}

/// `POST /sessions/{id}/reconnect`: renews the session and the token, and counts.
pub(super) async fn reconnect(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    RawName(name): RawName,
    body: Text,
) -> Result<Json<Value>, Failure> {
    let PresentedToken { token } = match body.object() {
        Ok(presented) => presented,
        Err(denial) => {
            front.service.write_down_renewal(&visitor, &name, Reason::InvalidToken).await;
            return Err(denial.into());
        }
    };
    let id = id_or_impossible(&name)?;
    let renewed = front.service.renew(&visitor, &id, token).await;
    let renewal = renewed.map_err(|denial| Failure::of_reconnect(&denial))?;
    Ok(Json(json!({
        "success": true,
        "session_id": id.as_str(),
        "message": "Session reconnected",
        "reconnect_count": renewal.record.reconnect_count,
        "generation": renewal.record.generation.get(),
        "reconnect_token": renewal.token.token.as_str(),
        "expires_in_minutes": minutes(&front),
    })))
}

/// How long a token is good from when it was made, in minutes: a whole number wherever it is one.
pub(super) fn minutes(front: &Front) -> Value {
    in_minutes(front.service.sessions().settings().session.token_ttl)
}

fn in_minutes(time: Duration) -> Value {
    if time.subsec_nanos() == 0 && time.as_secs().is_multiple_of(60) {
        return (time.as_secs() / 60).into();
    }
    (time.as_secs_f64() / 60.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_minutes_are_whole_numbers() {
        assert_eq!(in_minutes(Duration::from_secs(900)).to_string(), "15");
        assert_eq!(in_minutes(Duration::from_secs(90)).to_string(), "1.5");
    }
}
