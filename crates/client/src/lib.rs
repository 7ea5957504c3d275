//! The Rust client of Rejoin: connections drop, sessions should not.
//!
//! A [`Session`] is a stream of what an agent says, and stays one while sockets break, networks change
//! and servers restart: it comes back by itself, goes on where it was, drops what it has seen, asks for
//! what it missed and sends again what was not accepted. What can't be had any more is told, never left
//! out. A [`Handle`] sends.
//!
//! ```no_run
//! use rejoin_client::{FileKeep, Incoming, Session};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keep = FileKeep::new("session.json"); // a program that is started again goes on
//! let mut session = Session::builder("ws://127.0.0.1:8181/ws").keep(keep).start().await?;
//! session.handle().send("Plan a trip to Lisbon").await?;
//! while let Some(incoming) = session.next().await {
//!     match incoming {
//!         Incoming::Event(event) => println!("{} {}", event.name(), event.content_json()),
//!         Incoming::Gap(gap) => println!("some events are gone: {gap:?}"),
//!         other => println!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! - Events come in order, each once, without a hole except where [`Incoming::Gap`] tells of one first.
//! - Each message is accepted once, or [given up](SendError::GivenUp) with the reason.
//! - An event counts as handled when the next item is asked for. It is then kept and, after that, acked.
//!   A program that dies in between gets it again; its [`seq`](Event::seq) tells it from others.
//! - Memory is bounded: an application that is slow makes the server wait
//!   ([`Builder::window`]), and the server is told for a while that somebody is there
//!   ([`Builder::patience`]).
//! - Neither tokens nor content show up in logs or in `Debug`.
//!
//! # How it is made
//! What to send, what to ignore and when to wait is decided by [`rejoin_core::client`], which has no IO.
//! This crate is its shell on tokio.
//!
//! | file | what it does |
//! |---|---|
//! | `builder`, `session`, `handle`, `incoming` | the surface: describe, read, send, what is read |
//! | `keep` | where to keep what is needed to come back |
//! | `driver` | the task between brain, socket, keep and application |
//! | `socket` | one WebSocket |
//! | `frames` | the JSON of the protocol |
//! | `clock`, `limits` | the time; every bound |
//!
//! # Features
//! `tls`: addresses that begin with `wss://`, by rustls with the authorities that the machine trusts or with
//! [what the application says](Builder#method.tls).
#![forbid(unsafe_code)]

mod builder;
mod clock;
mod driver;
mod frames;
mod handle;
mod incoming;
mod keep;
mod limits;
mod session;
mod socket;

pub use builder::{Builder, StartError};
pub use handle::{Accepted, Handle, Receipt, SendError};
pub use incoming::{Event, Incoming, State};
pub use keep::{FileKeep, Keep, MemoryKeep};
pub use session::Session;

pub use rejoin_core::client::{
    ClientOptions, GivenUp, Joined, MessageId, Saved, Secret, Snapshot, Status, StopReason,
};
pub use rejoin_core::codes::ErrorCode;
pub use rejoin_core::position::SeqRange;
pub use rejoin_core::resume::Gap;
pub use rejoin_core::{Epoch, EventId, InSeq, Position, Seq, SessionId};
