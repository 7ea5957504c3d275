//! The protocol of Rejoin as data and state machines.
//!
//! A **session** is two ordered logs, one snapshot and one lease. It outlives every connection. This
//! crate holds the rules of that sentence and nothing else: it has no async runtime, no socket, no
//! file, no clock and no randomness of its own. Time comes in as [`Timestamp`], random bytes come in
//! as arrays, storage is asked for as data. That is what lets one seed drive the whole system in
//! simulation, and what CI proves by the crate's dependency tree and by clippy's disallowed methods.
//!
//! Where to start reading:
//!
//! | file | what it decides |
//! |---|---|
//! | [`position`] | how a place in a log is named: epoch + seq; generations and terms |
//! | [`log`] | the two logs: numbering, acks, bounds, trimming, message ids seen before |
//! | [`event_body`] | the one form in which events are stored |
//! | [`record`] | what is remembered of a session besides its logs |
//! | [`state`] | the whole of a session and the only places where it changes |
//! | [`lifetime`], [`settings`] | how long a session without a client is kept, and all else that can be set |
//! | [`resume`] | the one pure decision of a reconnect |
//! | [`reader`] | one reader of an out log, a client or an observer: what happened → what to do |
//! | [`worker`] | the same for the side of the agent |
//! | [`client`] | the same for the client's side |
//! | [`identity`] | which store a session belongs to |
//! | [`token`], [`keys`], [`seal`], [`concealed`] | reconnect tokens, the key ring, sealed state, secrets that wait in a log |
//! | [`attempt`] | what the audit trail notes of an attempt before its outcome is known |
//! | [`network`] | what counts as one address |
//! | [`codes`] | every error, reason and close code, in one place |
//! | [`limits`] | every bound, in one place |

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

pub mod attempt;
pub mod client;
pub mod codes;
pub mod concealed;
pub mod event_body;
pub mod identity;
pub mod ids;
pub mod keys;
pub mod lifetime;
pub mod limits;
pub mod log;
pub mod network;
pub mod page;
pub mod position;
pub mod reader;
pub mod record;
pub mod resume;
pub mod seal;
pub mod settings;
pub mod state;
pub mod time;
pub mod token;
pub mod worker;

pub use event_body::EventBody;
pub use ids::{AttachmentId, EventId, LogId, MessageId, Principal, ProcessId, SessionId};
pub use position::{Epoch, Generation, InSeq, Position, Seq, Term};
pub use time::Timestamp;
