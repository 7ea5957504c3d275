//! Sessions under names that their clients have chosen. A name means a session of the caller's own: every
//! principal has its own names, and none of them leads to another principal's session.

use rejoin_core::SessionId;
use rejoin_core::record::{About, Kind, Record, Status};
use rejoin_store::{CreateRefused, Failure, Unavailable};

use super::{Denial, Service, Visitor};
use crate::sessions::LAST_RITES;
use crate::tasks::Owned;

/// The shortest name: where there is no authentication, guessing one must be hopeless.
const MIN_NAME_CHARS: usize = 22;

impl Visitor {
    /// What a session is called towards this caller: by the name that its own client chose, or by its id.
    pub(crate) fn shown<'a>(&self, about: &'a About) -> &'a str {
        match about.principal == self.caller.principal {
            true => about.id.client_name(),
            false => about.id.as_str(),
        }
    }
}

impl Service {
    /// The id of the session that the caller means: by its id, or by the name that the caller's client chose. If
    /// the caller has none, the id as it was said, which is unknown or another principal's.
    pub(crate) async fn meant(
        &self,
        visitor: &Visitor,
        said: &SessionId,
    ) -> Result<SessionId, Unavailable> {
        let (store, principal) = (self.sessions().store(), &visitor.caller.principal);
        if store.session(said).await?.is_some_and(|known| known.about.principal == *principal) {
            return Ok(said.clone());
        }
        let named = said.always_inside(principal);
        Ok(if store.session(&named).await?.is_some() { named } else { said.clone() })
    }

    /// The id of the session that the caller has by this name, or can have.
    pub(super) async fn id_for_name(
        &self,
        visitor: &Visitor,
        name: &str,
    ) -> Result<SessionId, Denial> {
        let (name, principal) = (chosen_name(name)?, &visitor.caller.principal);
        let store = self.sessions().store();
        let own = |known: &Record| known.about.principal == *principal;
        let meant = self.meant(visitor, &name).await?;
        if store.session(&meant).await?.as_ref().is_some_and(own) {
            return Ok(meant);
        }
        let id = name.inside(principal);
        let taken = store.session(&id).await?.is_some_and(|known| !own(&known));
        Ok(if taken { name.always_inside(principal) } else { id })
    }

    /// Whether the caller has, or had, no session of this id or name.
    pub(crate) async fn is_unheard_of(
        &self,
        visitor: &Visitor,
        said: &SessionId,
    ) -> Result<bool, Denial> {
        match self.own(visitor, said).await {
            Ok(_) => Ok(false),
            Err(Denial::NotFound) => Ok(true),
            Err(denial) => Err(denial),
        }
    }

    /// An MCP session under a name that its client has chosen, with what `client` says of it; if the caller has
    /// one of that name that goes on, that one. One of the caller's that has ended makes room for it.
    pub(crate) async fn mcp_session_named(
        &self,
        visitor: &Visitor,
        name: &str,
        client: &str,
    ) -> Result<Record, Denial> {
        let id = self.id_for_name(visitor, name).await?;
        self.mcp_session_at(visitor, id, client).await
    }

    /// The same under an id that only this server makes.
    pub(crate) async fn mcp_session_at(
        &self,
        visitor: &Visitor,
        id: SessionId,
        client: &str,
    ) -> Result<Record, Denial> {
        let about = self.sessions().about(id, &visitor.caller.principal, Kind::Mcp, client);
        let (service, visitor) = (self.clone(), visitor.clone());
        self.finish(|owned| async move { service.named_in(owned, &visitor, about).await }).await
    }

    async fn named_in(
        &self,
        owned: Owned,
        visitor: &Visitor,
        about: About,
    ) -> Result<Record, Denial> {
        let id = about.id.clone();
        self.check_open()?;
        self.make_way(owned, visitor, &id).await?;
        match self.sessions().create_in(owned, about, self.room()).await {
            Err(Failure::Refused(CreateRefused::Exists)) => self.mcp_session(visitor, &id).await,
            made => Ok(made?),
        }
    }

    /// Forgets a session of the caller's that has ended: its name is to be used again. Its logs are gone
    /// already, and its tokens go with it.
    async fn make_way(
        &self,
        owned: Owned,
        visitor: &Visitor,
        id: &SessionId,
    ) -> Result<(), Denial> {
        let store = self.sessions().store();
        let Some(old) = store.session(id).await? else { return Ok(()) };
        let own = old.about.principal == visitor.caller.principal && old.about.kind == Kind::Mcp;
        let forget_at = match old.status {
            Status::Ended { forget_at, .. } if own => forget_at,
            Status::Ended { .. } | Status::Active => return Ok(()),
        };
        if self.sessions().comes_to_rest(id, LAST_RITES).await {
            self.sessions().hubs().forget(id);
            store.change(owned).forget(id, forget_at).await?;
        }
        Ok(())
    }
}

/// A name as a client chose it, or why it can be none.
fn chosen_name(name: &str) -> Result<SessionId, Denial> {
    let wrong = || {
        Denial::IdInvalid("a session id has 22 to 128 characters of A-Z a-z 0-9 . _ ~ and -".into())
    };
    let long_enough = Some(name).filter(|name| name.len() >= MIN_NAME_CHARS).ok_or_else(wrong)?;
    let name = SessionId::parse(long_enough).map_err(|_| wrong())?;
    match name.is_reserved() {
        true => Err(Denial::IdInvalid("ids that begin like this one are the server's own".into())),
        false => Ok(name),
    }
}
