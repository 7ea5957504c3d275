//! Sessions that outlive connections, to embed in a server of your own.
//!
//! A client attaches to a session, goes away and comes back; the agent works on meanwhile; nothing
//! is lost, doubled or reordered in between. The rules are in [`rejoin_core`], keeping is the job of
//! a [`rejoin_store::Store`]; this crate is the tokio shell around both.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rejoin::core::record::{Kind, Transport};
//! use rejoin::core::resume::Asked;
//! use rejoin::core::reader::Tell;
//! use rejoin::core::worker::Publication;
//! use rejoin::core::{EventBody, Principal, Seq};
//! use rejoin::store::MemoryStore;
//! use rejoin::{Client, Sessions, Told};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sessions = Sessions::builder(Arc::new(MemoryStore::default())).start()?;
//! let me = Principal::anonymous();
//! let id = sessions.create(&me, Kind::Agent, "{}").await?.id().clone();
//!
//! // The agent says three things while nobody is there …
//! let mut events = Vec::new();
//! for text in ["one", "two", "three"] {
//!     events.push(EventBody::new("agent.said", &text)?);
//! }
//! sessions.publish(&id, Publication { events, ..Publication::default() }).await?;
//!
//! // … and a client that has seen the first gets the others.
//! let asked = Some(Asked { last_seq: Some(Seq::new(1)), ..Asked::default() });
//! let client = Client { principal: me, transport: Transport::Local, asked, token: None };
//! let mut attachment = sessions.attach(&id, client).await?;
//! while let Some(Told::Tell(tell)) = attachment.next().await {
//!     if let Tell::Events { events, replayed } = tell {
//!         let second = br#"{"event":"agent.said","content":"two","metadata":{}}"#;
//!         assert_eq!((events[0].seq, &*events[0].body), (Seq::new(2), &second[..]));
//!         assert!(replayed);
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
mod agent;
pub mod agents;
mod asking;
mod attachment;
mod child;
mod clock;
mod driver;
#[cfg(feature = "embedded")]
pub mod embed;
mod entry;
mod error;
pub mod event;
mod history;
mod hook;
mod lane;
mod limits;
pub mod mcp;
mod metrics;
mod outward;
mod post;
mod presence;
mod pulse;
mod random;
mod reaper;
mod series;
pub mod service;
mod sessions;
mod shared;
mod signing;
mod sse_parser;
mod store_view;
mod tasks;
mod timeline;
pub mod web;
mod webhook;

/// The rules: [`rejoin_core`].
pub use rejoin_core as core;
/// Where sessions are kept: [`rejoin_store`].
pub use rejoin_store as store;

pub use access::{Authenticate, Caller, CredentialFault, CredentialId, Open, Unauthorized};
pub use agent::{Agent, Saying, Seat, Start, Voice};
pub use attachment::{Attachment, Line, Posted, Told};
pub use child::{ChildEnvironment, raise_file_limit, set_child_environment};
pub use clock::{Clock, WallClock, WallTime};
#[cfg(feature = "embedded")]
pub use embed::serve;
pub use entry::EntryBody;
pub use error::{AttachError, CreateError, EndError, Gone, PublishError};
pub use hook::{CleanedUp, Cleanup, Lifecycle, SessionHook};
pub use outward::BadUrl;
pub use series::{Sample, Spread};
pub use sessions::{Builder, Client, ServerSettings, Sessions};
pub use store_view::StoreView;
pub use timeline::{Death, Happening, Moment, Return};
pub use webhook::WebHook;
