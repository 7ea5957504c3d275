//! Where sessions are kept: the [`Store`] trait with its contract, the memory store, the embedded
//! store on SQLite, and (feature `suite`) the behaviours that every store passes, also a third party's.
//!
//! What a change means is decided in [`rejoin_core::state`]. A store adds that the change is atomic,
//! ordered and, where it says so, durable.

mod account;
mod active;
pub mod audit;
mod changes;
mod contract;
#[cfg(feature = "embedded")]
pub mod embedded;
mod forgotten;
mod measure;
mod memory;
mod relief;
mod shares;

#[cfg(feature = "suite")]
pub mod suite;

pub use changes::{ChangeBoard, Changes, News};
pub use contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Parked, Query, Restoration,
    Store, StoredEntry, StoredEvent, StoredMessage, StoredSnapshot, Unavailable,
};
pub use measure::{Distribution, Measurements, StoreBytes};
pub use memory::MemoryStore;
