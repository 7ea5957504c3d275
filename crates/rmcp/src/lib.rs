//! Sessions that survive, for MCP servers built with [rmcp].
//!
//! A client of such a server may lose its connection in the middle of a call, stay away while the result gets
//! ready, and come back to a server that was killed and started again: its session is there, it gets what it
//! missed, each message once, and a call that nobody can answer any more ends with an error that says so.
//!
//! | what | for |
//! |---|---|
//! | [`service`], [`DurableSessionManager`] | all of that, in the place of rmcp's `StreamableHttpService` and `LocalSessionManager` |
//! | [`Builder::on_session_disconnect`] | a say in what becomes of a session whose client has gone |
//! | [`DurableSessionStore`], [`DurableEventStore`] | rmcp's own manager, with stores that outlive the process |
//!
//! How it works is in `docs/rmcp.md` and `docs/architecture.md` of the project; the session engine is the
//! [`rejoin`] crate's.
#![forbid(unsafe_code)]

mod builder;
mod call;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod event_store;
mod left_over;
mod limits;
mod live;
mod manager;
mod pending;
#[cfg(test)]
mod race;
mod service;
mod session_store;
mod stream;
mod sync;
mod words;
mod worker;

/// The rules, and the types that sessions are described with.
pub use rejoin::core;
/// Where sessions are kept.
pub use rejoin_store as store;

pub use builder::Builder;
#[cfg(feature = "embedded")]
pub use embedded::open;
pub use error::ManagerError;
pub use event_store::DurableEventStore;
pub use manager::DurableSessionManager;
pub use rejoin::{CleanedUp, Cleanup, Clock, Lifecycle, ServerSettings, SessionHook, Sessions};
pub use service::{Service, service};
pub use session_store::DurableSessionStore;
pub use worker::SessionWorker;

/// Random bytes from the system.
fn random<const N: usize>() -> Result<[u8; N], store::Unavailable> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| store::Unavailable(format!("no randomness: {error}").into()))?;
    Ok(bytes)
}
