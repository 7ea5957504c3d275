//! What can go wrong, whose fault it is, and what to do about it.

use rejoin::core::state::EnterRefused;
use rejoin::store::{Failure, Unavailable};
use rejoin::{CreateError, PublishError};

/// Why a session could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The client's: there is no such session, or it is over. It should begin another.
    #[error("there is no session {0}, or it is over")]
    NoSession(Box<str>),
    /// The client's: this is no place in one of the session's streams.
    #[error("Last-Event-ID is not the id of an event of this session")]
    NoSuchPlace,
    /// Nobody's: the stream that a client asks for has said everything.
    #[error("the stream is finished, and nothing of it is left to send")]
    StreamFinished,
    /// The client's: it asks twice at once under the same id.
    #[error("a request of id {0} is under way already")]
    DuplicateRequest(String),
    /// The client's: too much waits for the handler already.
    #[error("{0}")]
    Refused(EnterRefused),
    /// The server's: the handler of the session ended, or never began.
    #[error("the session's handler has ended")]
    HandlerGone,
    /// The server's: a message is none that can be kept.
    #[error("a message can't be stored: {0}")]
    Unstorable(String),
    /// The storage's.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Nothing could be said in the session.
    #[error("a message was not stored: {0}")]
    NotPublished(PublishError),
    /// No session could be made.
    #[error("no session was made: {0}")]
    NotCreated(CreateError),
}

impl From<Failure<EnterRefused>> for ManagerError {
    fn from(failure: Failure<EnterRefused>) -> Self {
        match failure {
            Failure::NotFound => Self::HandlerGone,
            Failure::Refused(refused) => Self::Refused(refused),
            Failure::Unavailable(unavailable) => Self::Unavailable(unavailable),
        }
    }
}

impl From<PublishError> for ManagerError {
    fn from(error: PublishError) -> Self {
        Self::NotPublished(error)
    }
}

impl From<CreateError> for ManagerError {
    fn from(error: CreateError) -> Self {
        Self::NotCreated(error)
    }
}
