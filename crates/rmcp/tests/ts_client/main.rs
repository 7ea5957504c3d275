//! A server built with rmcp, and the official TypeScript client (version 1, unmodified, default options) before it.
//!
//! Each scenario runs twice: with [`rejoin_rmcp::DurableSessionManager`], where it must work or end with an error
//! that says what happened, and with rmcp's own `LocalSessionManager`, where it shows what is being prevented.
//! The client and the network that breaks are those of the gateway's tests; `scripts/mcp-setup` installs what
//! they need.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

#[path = "../../../cli/tests/mcp_clients/clients.rs"]
#[allow(dead_code, reason = "shared with the gateway's tests")]
mod clients;
mod common;
#[path = "../../../cli/tests/mcp_clients/fixture.rs"]
#[allow(dead_code, reason = "shared with the gateway's tests")]
mod fixture;
#[path = "../../../cli/tests/mcp_clients/network.rs"]
#[allow(dead_code, reason = "shared with the gateway's tests")]
mod network;
mod rig;
mod server;

mod connection_breaks;
mod handler_is_silent;
mod resume_fails;
mod server_dies;
