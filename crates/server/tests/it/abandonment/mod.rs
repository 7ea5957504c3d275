//! Abandonment: a client may hang up at any moment, and hyper drops the handler where it stands. Here each handler is polled
//! so many times and then dropped, for every number of times until it answers by itself: whatever it had begun is done to its
//! end, or nothing was. The store takes several polls for every call, so that there is an await at each step.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod api;
mod coverage;
mod frames;
mod mcp;
mod service;
mod sockets;
mod world;
