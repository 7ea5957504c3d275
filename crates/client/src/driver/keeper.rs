//! What is kept, and how far the keeping has come.

use std::io;
use std::sync::Arc;

use rejoin_core::client::Saved;
use rejoin_core::{Position, Seq};

use crate::keep::Keep;

/// Works the [`Keep`] from a thread that may block.
pub(crate) struct Keeper {
    /// Taken out while it works; gone for good if it panicked.
    keep: Option<Box<dyn Keep>>,
    /// Whether the last save failed.
    failed: bool,
    /// What is kept.
    saved: Option<Saved>,
    /// What the brain wanted kept last. It may cover what the application has not handled yet.
    wanted: Option<Saved>,
}

impl Keeper {
    /// Loads what was kept.
    pub(crate) async fn load(mut keep: Box<dyn Keep>) -> io::Result<(Self, Option<Saved>)> {
        let work = move || keep.load().map(|saved| (keep, saved));
        let (keep, saved) = tokio::task::spawn_blocking(work).await.map_err(panicked)??;
        let keeper =
            Self { keep: Some(keep), failed: false, saved: saved.clone(), wanted: saved.clone() };
        Ok((keeper, saved))
    }

    /// The brain wants this kept, sooner or later.
    pub(super) fn want(&mut self, saved: &Saved) {
        self.wanted = Some(saved.clone());
    }

    /// Keeps this. An error is told once until it works again.
    pub(super) async fn save(&mut self, saved: Saved) -> Result<(), Option<Arc<io::Error>>> {
        let result = self.try_save(&saved).await;
        let failed_before = self.failed;
        self.failed = result.is_err();
        match result {
            Ok(()) => {
                self.saved = Some(saved);
                Ok(())
            }
            Err(_) if failed_before => Err(None),
            Err(error) => {
                tracing::warn!(%error, "what there is to keep could not be kept");
                Err(Some(Arc::new(error)))
            }
        }
    }

    /// Whether what is kept lags behind for want of a place to keep it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What the brain wants kept, but only up to this event; nothing if it is about another session or
    /// epoch than what is kept, for which the event would mean nothing.
    pub(super) fn wanted_up_to(&self, seq: Seq) -> Option<Saved> {
        let (wanted, saved) = (self.wanted.as_ref()?, self.saved.as_ref()?);
        let (ahead, before) = (wanted.position.as_ref()?, saved.position.as_ref()?);
        let same = wanted.session_id == saved.session_id && ahead.epoch == before.epoch;
        let position = Position { epoch: ahead.epoch.clone(), seq };
        (same && (before.seq..=ahead.seq).contains(&seq))
            .then(|| Saved { position: Some(position), ..wanted.clone() })
    }

    async fn try_save(&mut self, saved: &Saved) -> io::Result<()> {
        let mut keep = self.keep.take().ok_or_else(|| panicked(()))?;
        let saved = saved.clone();
        let work = move || {
            let result = keep.save(&saved);
            (keep, result)
        };
        let (keep, result) = tokio::task::spawn_blocking(work).await.map_err(panicked)?;
        self.keep = Some(keep);
        result
    }
}

fn panicked<E>(_: E) -> io::Error {
    io::Error::other("the keep panicked")
}
