//! The client against a server that does what each test tells it to, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed; its helpers too")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else comes is a failure")]

mod coming_back;
mod fake_server;
mod falling_back;
mod keeping;
mod opening;
mod sending;
mod slow_application;
