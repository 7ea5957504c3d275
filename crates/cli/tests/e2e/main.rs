//! The binary, whole: `rejoin serve` with an agent in a child process, spoken to over real sockets. The
//! contract is docs/protocol.md; every file here is one part of it.
//!
//! Whatever is about coming back is tried two ways (`both_ways!`): the connection drops, and the server
//! is killed with -9 and started again on what it left. [`support::client::Client`] checks the envelope
//! of every frame that any of these tests receives.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]
#![allow(clippy::wildcard_enum_match_arm, reason = "of other crates: messages, JSON values")]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod support;

mod acks;
mod away;
mod backing_up;
mod bad_input;
mod buffers;
mod child_agents;
mod children;
mod connecting;
mod creating;
mod draining;
mod errors;
mod exporting;
mod golden;
mod heartbeats;
mod hooks;
mod lifecycle;
mod messages;
mod ownership;
mod putting_back;
mod restoring;
mod restoring_ended;
mod restoring_lines;
mod restoring_own;
mod resuming;
mod rotating_keys;
mod scenarios;
mod seen_over_http;
mod superseding;
mod tokens;
mod upgrading;
