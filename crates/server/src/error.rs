//! What can go wrong when asking the sessions for something.

use rejoin_core::state::{AppendRefused, AttachRefused, EndRefused};
use rejoin_core::worker::PublishRefused;
use rejoin_store::{CreateRefused, Failure, Unavailable};

/// The session's driver has ended: its store failed or the server is going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is not served any more")]
pub struct Gone;

/// Why a session was not made.
pub type CreateError = Failure<CreateRefused>;

/// Why a client was not attached.
pub type AttachError = Failure<AttachRefused>;

/// Why nothing was published.
pub type PublishError = Failure<PublishRefused>;

/// Why a session was not ended.
pub type EndError = Failure<EndRefused>;

/// The store's sentence for a driver that has gone.
pub(crate) fn gone() -> Unavailable {
    Unavailable(std::sync::Arc::from("the session is not served any more"))
}

/// What a refused append means for a producer.
pub(crate) fn append_refused<T>(
    answer: Result<T, Failure<AppendRefused>>,
) -> Result<Result<T, AppendRefused>, Unavailable> {
    flatten(answer, AppendRefused::Ended(rejoin_core::record::Ending::Closed))
}

/// Separates "this can't be done" from "the store does not work". A session that is not found any
/// more, though its driver lives, was ended and forgotten.
pub(crate) fn flatten<T, R>(
    answer: Result<T, Failure<R>>,
    not_found: R,
) -> Result<Result<T, R>, Unavailable> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(Failure::Refused(refused)) => Ok(Err(refused)),
        Err(Failure::NotFound) => Ok(Err(not_found)),
        Err(Failure::Unavailable(unavailable)) => Err(unavailable),
    }
}
