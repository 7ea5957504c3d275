//! What rmcp's session manager is not told about an HTTP request, and can't tell: who makes it, and that a
//! stream can't be resumed. Both travel beside the call, from [`crate::service`] to the manager and back.

use std::cell::Cell;

use http::StatusCode;
use rejoin::core::Principal;
use rejoin::core::state::EnterRefused;

use crate::error::ManagerError;

/// One HTTP request.
pub(crate) struct Call {
    pub(crate) principal: Principal,
    refusal: Cell<Option<Refusal>>,
}

/// What rmcp would answer with 200 and an empty stream, and clients with asking again without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) sentence: String,
}

tokio::task_local! {
    static CALL: Call;
}

/// Makes a call as somebody; says what it was refused with, if it was.
pub(crate) async fn calling<T>(
    principal: Principal,
    call: impl Future<Output = T>,
) -> (T, Option<Refusal>) {
    let noted = async {
        let answer = call.await;
        (answer, CALL.with(|call| call.refusal.take()))
    };
    CALL.scope(Call { principal, refusal: Cell::new(None) }, noted).await
}

/// Who makes the present call.
pub(crate) fn caller() -> Principal {
    CALL.try_with(|call| call.principal.clone()).unwrap_or_else(|_| Principal::anonymous())
}

/// Notes why a stream is not resumed.
pub(crate) fn note_refusal(error: &ManagerError) {
    let refusal = Refusal { status: status_of(error), sentence: error.to_string() };
    let _ = CALL.try_with(|call| call.refusal.set(Some(refusal))); // without our service nobody hears it
}

/// Notes that something can't be done at the moment, which rmcp would answer with 500.
pub(crate) fn note_busy(error: &ManagerError) {
    if status_of(error) == StatusCode::SERVICE_UNAVAILABLE {
        note_refusal(error);
    }
}

fn status_of(error: &ManagerError) -> StatusCode {
    match error {
        ManagerError::StreamFinished => StatusCode::NO_CONTENT,
        ManagerError::NoSession(_) | ManagerError::Refused(EnterRefused::Ended(_)) => {
            StatusCode::NOT_FOUND
        }
        ManagerError::NoSuchPlace
        | ManagerError::DuplicateRequest(_)
        | ManagerError::Refused(EnterRefused::Stale(_) | EnterRefused::OtherContent { .. })
        | ManagerError::Unstorable(_) => StatusCode::BAD_REQUEST,
        ManagerError::HandlerGone
        | ManagerError::Refused(
            EnterRefused::OverBound(_) | EnterRefused::Paused | EnterRefused::Full { .. },
        )
        | ManagerError::Unavailable(_)
        | ManagerError::NotPublished(_)
        | ManagerError::NotCreated(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
