//! A session whose time has run out is ended before anybody is told so. The reaper is a moment late at times; a crash
//! in that moment would bring back a session that its client knows to be over.

use std::sync::Arc;

use rejoin_core::SessionId;
use rejoin_core::record::{Record, Status};
use rejoin_store::Unavailable;

use super::Sessions;
use crate::reaper;

impl Sessions {
    /// A session as it is stored, without its time having run out unnoticed. Where no commit can be made it is as it was
    /// found: reading goes on.
    pub(crate) async fn noticed(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        let found = self.store().session(id).await?;
        let now = self.shared.clock.now();
        let is_due = |record: &Record| {
            let active = record.status == Status::Active && record.attached.is_none();
            active && record.expires_at <= now
        };
        let Some(record) = found.as_ref().filter(|record| is_due(record)) else { return Ok(found) };
        let (shared, record) = (Arc::clone(&self.shared), record.clone());
        let looked = self
            .finish(|owned| async move { reaper::look_at(owned, &shared, &record, now).await })
            .await;
        match looked {
            Ok(Ok(())) => self.store().session(id).await,
            Ok(Err(_)) | Err(_) => Ok(found),
        }
    }
}
