//! Every test of this crate, as one program: linking is what tests take longest for.

mod common;
mod conformance;
mod documented_reasons;
mod lifetime;
mod reader;
mod resume_decision;
mod session_delivery;
mod session_export;
mod session_heartbeats;
mod session_inbox;
mod session_parking;
mod session_publishing;
mod session_resume;
mod session_superseding;
mod state_agent_side;
mod state_client_side;
mod state_ending;
mod state_restore;
mod state_tokens;
