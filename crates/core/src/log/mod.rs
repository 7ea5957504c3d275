//! The two logs of a session: what lies in them, how they are numbered and what gives way when they
//! are full. Where the bodies are kept is the store's business: the logs hold a handle `B` for each.

mod inbox;
mod out;
mod seen;
mod weight;

pub use inbox::{Entry, EntryKind, Inbox};
pub use out::{Held, OutLog, Trimmed};
pub use seen::{ById, Memory, MessageDigest, Remembered, RememberedKey, Seen, SeenKeys};
pub use weight::Weight;
