//! What HTTP is answered: the status of every failure, in one place.

use std::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::credentials::Rejected;
use crate::access::Unauthorized;
use crate::service::{Denial, StateProblem};

/// A failure on its way to a client.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    detail: String,
    error_code: Option<&'static str>,
    reason: Option<&'static str>,
    retry_after: Option<Duration>,
}

/// A body, or a part of one, is larger than is taken.
pub(super) fn too_large(sentence: &str) -> Failure {
    let code = rejoin_core::codes::ErrorCode::MessageTooLarge.as_str();
    Failure { error_code: Some(code), ..refuse(StatusCode::PAYLOAD_TOO_LARGE, sentence) }
}

/// A failure with a sentence and nothing more.
pub(super) fn refuse(status: StatusCode, sentence: &str) -> Failure {
    Failure {
        status,
        detail: sentence.to_owned(),
        error_code: None,
        reason: None,
        retry_after: None,
    }
}

impl Failure {
    /// An attempt to reconnect failed: who may not come back is not told more than the reason.
    pub(super) fn of_reconnect(denial: &Denial) -> Self {
        let reason = denial.reason().as_str();
        if matches!(denial, Denial::Busy { .. }) {
            return Self { reason: Some(reason), ..denial.clone().into() }; // it says itself why
        }
        let status = match status(denial) {
            StatusCode::NOT_FOUND | StatusCode::GONE => StatusCode::UNAUTHORIZED,
            other => other,
        };
        Self {
            status,
            detail: format!("Reconnection failed: {reason}"),
            error_code: None,
            reason: Some(reason),
            retry_after: denial.retry_after(),
        }
    }

    /// There is no token for that session.
    pub(super) fn of_token(denial: Denial) -> Self {
        let ended = matches!(denial, Denial::Ended(_));
        let failure = Self::from(denial);
        if !ended {
            return failure;
        }
        let detail = "Cannot generate token for inactive session".to_owned();
        Self { status: StatusCode::BAD_REQUEST, detail, ..failure }
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        Self {
            status: status(&denial),
            detail: denial.sentence(),
            error_code: Some(denial.code().as_str()),
            reason: None,
            retry_after: denial.retry_after(),
        }
    }
}

impl From<Unauthorized> for Failure {
    fn from(unauthorized: Unauthorized) -> Self {
        let code = rejoin_core::codes::ErrorCode::Unauthorized.as_str();
        let failure = refuse(StatusCode::UNAUTHORIZED, &unauthorized.to_string());
        Self { error_code: Some(code), ..failure }
    }
}

impl From<Rejected> for Failure {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Unauthorized(unauthorized) => unauthorized.into(),
            Rejected::TooMany { retry_after } => Denial::RateLimited { retry_after }.into(),
        }
    }
}

fn status(denial: &Denial) -> StatusCode {
    match denial {
        Denial::NotFound => StatusCode::NOT_FOUND,
        Denial::Ended(_) => StatusCode::GONE,
        Denial::AlreadyAttached | Denial::Superseded => StatusCode::CONFLICT,
        Denial::Token(_) => StatusCode::UNAUTHORIZED,
        Denial::State(StateProblem::TooLarge) | Denial::TooLarge(_) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        Denial::State(_) | Denial::Invalid(_) | Denial::IdInvalid(_) => StatusCode::BAD_REQUEST,
        Denial::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        Denial::Busy { .. } | Denial::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Denial::Forbidden => StatusCode::FORBIDDEN,
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut body = json!({ "detail": self.detail });
        if let Some(code) = self.error_code {
            body["error_code"] = code.into();
        }
        if let Some(reason) = self.reason {
            body["reason"] = reason.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
