//! MCP sessions under names that their clients have chosen.

use rejoin_core::SessionId;
use rejoin_core::record::{Kind, Record, Status};
use rejoin_store::Failure;

use super::{Denial, Service, Visitor, chosen_id};
use crate::sessions::LAST_RITES;

impl Service {
    /// Whether nobody has, or had, a session of this id.
    pub(crate) async fn is_unheard_of(&self, id: &SessionId) -> Result<bool, Denial> {
        Ok(self.sessions().store().session(id).await?.is_none())
    }

    /// An MCP session under a name that its client has chosen, with what `client` says of it; if the caller has one of that name that goes
    /// on, that one. One of the caller's that has ended makes room for it. A name that somebody else
    /// has is [`Denial::NotFound`].
    pub(crate) async fn mcp_session_named(
        &self,
        visitor: &Visitor,
        name: &str,
        client: &str,
    ) -> Result<Record, Denial> {
        let id = chosen_id(name)?;
        self.check_room(visitor).await?;
        self.make_room(visitor, &id).await?;
        let (principal, sessions) = (&visitor.caller.principal, self.sessions());
        match sessions.create_named(id.clone(), principal, Kind::Mcp, client).await {
            Ok(record) => Ok(record),
            Err(Failure::Unavailable(_)) => Err(Denial::Unavailable),
            Err(Failure::NotFound | Failure::Refused(_)) => self.mcp_session(visitor, &id).await,
        }
    }

    /// Forgets a session of the caller's that has ended: its name is to be used again. Its logs are gone
    /// already, and its tokens go with it.
    async fn make_room(&self, visitor: &Visitor, id: &SessionId) -> Result<(), Denial> {
        let store = self.sessions().store();
        let Some(old) = store.session(id).await? else { return Ok(()) };
        let own = old.about.principal == visitor.caller.principal && old.about.kind == Kind::Mcp;
        let forget_at = match old.status {
            Status::Ended { forget_at, .. } if own => forget_at,
            Status::Ended { .. } | Status::Active => return Ok(()),
        };
        if self.sessions().comes_to_rest(id, LAST_RITES).await {
            self.sessions().hubs().forget(id);
            store.forget(id, forget_at).await?;
        }
        Ok(())
    }
}
