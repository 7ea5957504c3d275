//! Frames as JSON: what the server may say, and what the client says to it. Nothing else in this crate
//! knows how they are spelled.

mod read;
mod write;

pub(crate) use read::{Envelope, Frame, read, retry_after_in};
pub(crate) use write::{About, authenticate, command};
