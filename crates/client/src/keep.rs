//! Where a client keeps what it needs to come back after a restart of its program: the session's id,
//! the position, the reconnect token and the snapshot.

mod file;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub use file::FileKeep;
use rejoin_core::client::Saved;

/// A place that outlives a [`Session`](crate::Session), and perhaps the program.
///
/// One session uses it at a time, from a thread that may block. It holds credentials: whoever can read
/// it can take the session over where the server asks for nothing else.
pub trait Keep: Send + 'static {
    /// What was saved last, or nothing. Asked once, before anything is sent. An error keeps the session
    /// from starting: to begin anew because a disk did not answer would abandon a session that lives.
    fn load(&mut self) -> io::Result<Option<Saved>>;

    /// Keeps this in place of what was kept before, all or nothing. When it returns, what is saved
    /// survives whatever the keep is meant to survive: the server is then told that the events up to
    /// there may be forgotten. After an error it is not told so, and the next save comes with what is
    /// new by then.
    fn save(&mut self, saved: &Saved) -> io::Result<()>;
}

/// Keeps in memory: for programs whose sessions need not outlive them, and to hand a session on inside
/// one program. Its clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct MemoryKeep(Arc<Mutex<Option<Saved>>>);

impl MemoryKeep {
    /// A place with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A place with something in it, such as the id of a session to join.
    pub fn holding(saved: Saved) -> Self {
        Self(Arc::new(Mutex::new(Some(saved))))
    }

    /// What is in it now.
    pub fn saved(&self) -> Option<Saved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keep for MemoryKeep {
    fn load(&mut self) -> io::Result<Option<Saved>> {
        Ok(self.saved())
    }

    fn save(&mut self, saved: &Saved) -> io::Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(saved.clone());
        Ok(())
    }
}
