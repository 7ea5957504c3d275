//! `/ws` over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of another crate: whatever else comes fails the test"
)]

mod flows;
mod support;
