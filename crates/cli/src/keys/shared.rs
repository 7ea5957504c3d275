//! The keys of this moment. They change while the server runs: somebody rotates, and the file is read
//! again when it is seen to have changed, or when whoever has the handle says so.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::Result;
use rejoin_core::keys::{KeyRing, SecretKey};

use super::{disk, ring_of};
use crate::settings::Secret;
use crate::stamp::Stamp;

/// The keys that are good now. Cheap to clone; all clones have the same keys.
#[derive(Clone, Debug)]
pub(crate) struct SharedKeys {
    ring: Arc<RwLock<Arc<KeyRing>>>,
    file: Option<Arc<Watched>>,
}

/// A file that keys came from.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// Verify besides those in the file.
    previous: Vec<Secret>,
    /// How the file looked when it was last read, well or not: a broken one is told of once.
    seen: Mutex<Option<Stamp>>,
}

impl SharedKeys {
    /// Keys that stay as they are.
    pub(super) fn fixed(ring: KeyRing) -> Self {
        Self { ring: Arc::new(RwLock::new(Arc::new(ring))), file: None }
    }

    /// The keys in the file at `path`, which may change.
    pub(super) fn open(path: PathBuf, previous: Vec<Secret>) -> Result<Self> {
        let (keys, stamp) = disk::read_existing(&path)?;
        let ring = ring_of(&keys, &previous)?;
        let file = Watched { path, previous, seen: Mutex::new(Some(stamp)) };
        Ok(Self { file: Some(Arc::new(file)), ..Self::fixed(ring) })
    }

    /// The keys to sign and verify with now. To be asked for at each use, not kept.
    pub(crate) fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again. When that fails the keys stay as they are.
    pub(crate) fn reload(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let stamp = Stamp::of(&file.path).ok();
        *file.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
        let (keys, _) = disk::read_existing(&file.path)?;
        let ring = Arc::new(ring_of(&keys, &file.previous)?);
        let ids: Vec<_> = ring.iter().map(SecretKey::id).collect();
        tracing::info!(signs = ids[0], verify = ids[1..].join(" "), "signing keys read");
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        Ok(())
    }

    /// Whether the file looks different from when it was last read.
    fn is_changed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let seen = *file.seen.lock().unwrap_or_else(PoisonError::into_inner);
            Stamp::of(&file.path).ok() != seen
        })
    }

    /// Reads the file again if it has changed. One that can't be used is told of once.
    pub(crate) fn look(&self) {
        if self.is_changed()
            && let Err(error) = self.reload()
        {
            tracing::error!("the signing keys stay as they were: {error:#}");
        }
    }
}
