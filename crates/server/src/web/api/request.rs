//! How requests are read: ids in paths, parameters, bodies. What comes out is of the right type; what
//! is not is refused with a sentence, and never with a 5xx.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use rejoin_core::SessionId;
use serde::de::DeserializeOwned;

use crate::event;
use crate::service::Denial;
use crate::web::Front;
use crate::web::answer::{Failure, refuse, too_large};
use crate::web::receiving::{NotReceived, Received, RequestPlace};

/// The most that one page of a list has.
pub(super) const MAX_PAGE: usize = 1_000;

/// What a page has if nobody says how much.
pub(super) const DEFAULT_PAGE: usize = 100;

/// The longest that a request may wait for events.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The session that a path names. An id that can be none is that of no session: unknown, like any
/// other that nobody has.
pub(super) struct Named(pub(super) SessionId);

/// The same, as the path has it.
pub(super) struct RawName(pub(super) String);

impl FromRequestParts<Arc<Front>> for RawName {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let path = Path::<String>::from_request_parts(parts, front).await;
        path.map(|Path(name)| Self(name)).map_err(|_| Denial::NotFound.into())
    }
}

impl FromRequestParts<Arc<Front>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        let RawName(name) = RawName::from_request_parts(parts, front).await?;
        SessionId::parse(&name).map(Self).map_err(|_| Denial::NotFound.into())
    }
}

/// What stands after the question mark.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Front>> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        front: &Arc<Front>,
    ) -> Result<Self, Self::Rejection> {
        match Query::<T>::from_request_parts(parts, front).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(invalid(rejection.body_text()).into()),
        }
    }
}

/// A body as text that is not nested too deep; of what type the client says it is, nobody looks at.
pub(super) struct Text {
    bytes: Bytes,
    _place: RequestPlace,
}

impl FromRequest<Arc<Front>> for Text {
    type Rejection = Failure;

    async fn from_request(request: Request, front: &Arc<Front>) -> Result<Self, Self::Rejection> {
        let max = front.settings.max_frame_bytes;
        let received = Received::read(front, request, max).await.map_err(|why| match why {
            NotReceived::TooLarge => {
                too_large(&format!("The body is larger than max_frame_bytes, {max}"))
            }
            NotReceived::Broken => {
                refuse(StatusCode::BAD_REQUEST, "The body ended before it was whole")
            }
            NotReceived::Full(full) => Denial::from(full).into(),
        })?;
        let Received { bytes, place } = received;
        if std::str::from_utf8(&bytes).is_err() {
            return Err(invalid("The body must be JSON in UTF-8").into());
        }
        event::check_depth(&bytes).map_err(invalid)?;
        Ok(Self { bytes, _place: place })
    }
}

impl Text {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.trim_ascii()
    }

    /// The JSON object that it is.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<T, Denial> {
        if self.as_bytes().first().is_some_and(|byte| *byte != b'{') {
            return Err(invalid("The body must be a JSON object"));
        }
        serde_json::from_slice(self.as_bytes()).map_err(|error| {
            invalid(format!("The body is not the JSON object that this takes: {error}"))
        })
    }

    /// The same; an empty one stands for the default.
    pub(super) fn object_if_any<T: DeserializeOwned + Default>(&self) -> Result<T, Denial> {
        if self.bytes.is_empty() { Ok(T::default()) } else { self.object() }
    }
}

/// The request is wrong, for this reason.
pub(super) fn invalid(why: impl ToString) -> Denial {
    Denial::Invalid(why.to_string().into())
}

/// How much is wanted of a list.
pub(super) fn page_size(limit: Option<usize>) -> Result<usize, Denial> {
    match limit.unwrap_or(DEFAULT_PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        _ => Err(invalid(format!("`limit` is a number from 1 to {MAX_PAGE}"))),
    }
}

/// A session id in a parameter.
pub(super) fn session_id(name: &str, text: Option<&str>) -> Result<Option<SessionId>, Denial> {
    let parsed = text.map(SessionId::parse).transpose();
    parsed.map_err(|error| invalid(format!("`{name}`: {error}")))
}

/// How long a request wants to wait: `500ms`, `20s`, `1m`, or `0`.
pub(super) fn patience(text: Option<&str>) -> Result<Duration, Denial> {
    let wrong = || invalid("`wait` is a duration from 0s to 60s, such as 500ms, 20s or 1m");
    let text = text.unwrap_or("0");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let wait = match unit {
        "" if number == 0 => Duration::ZERO,
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(wrong()),
    };
    if wait <= MAX_WAIT { Ok(wait) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_duration_of_a_minute_at_most() {
        let read = |text| patience(Some(text)).ok();
        assert_eq!(patience(None), Ok(Duration::ZERO));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(read("20s"), Some(Duration::from_secs(20)));
        assert_eq!(read("1m"), Some(MAX_WAIT));
        for text in ["", "20", "61s", "2m", "-1s", "1h", "s", "99999999999999999999s", "1 s", "²s"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_has_one_to_a_thousand() {
        assert_eq!(page_size(None), Ok(DEFAULT_PAGE));
        assert_eq!(page_size(Some(MAX_PAGE)), Ok(MAX_PAGE));
        assert!(page_size(Some(0)).is_err());
        assert!(page_size(Some(MAX_PAGE + 1)).is_err());
    }
}
