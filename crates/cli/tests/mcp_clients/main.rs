//! The official MCP clients, unmodified and with their default options, before the gateway: what breaks
//! between them and a server, and what they notice of it. The contract is section 7 of docs/protocol.md.
//!
//! Clients of revisions with and without sessions are told here which to take; `stateless` and `tasks` are about those
//! without.
//!
//! Each scenario runs with each client ([`clients::Kind`]) before each kind of server ([`rig::Behind`]).
//! `direct` means no gateway at all: it shows that client, fixture and scenario are right. The clients and
//! the fixture server are in mcp-tests/; `scripts/mcp-setup` installs what they need.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod fixture;
mod network;
#[macro_use]
mod rig;

mod connection_breaks;
mod gateway_dies;
mod legacy_sse;
mod passing_through;
mod server_dies;
mod stateless;
mod tasks;
