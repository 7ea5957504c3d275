//! `/ws`: the agent event protocol, one JSON object per text frame.

use axum::http::StatusCode;

pub(super) async fn upgrade() -> StatusCode {
    StatusCode::NOT_IMPLEMENTED
}
