//! `/ws` over real sockets.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod flows;
mod support;
