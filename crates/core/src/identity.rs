//! Which store a session belongs to. Session ids say nothing about that: two stores can have sessions of
//! the same id, because a client chose it or because one store went on under the secret of another.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::ids::{Principal, Reserved, SessionId, url_safe};
use crate::time::Timestamp;

/// Random bytes that a store keeps for its whole life. They stay inside the server: whoever knows them can
/// compute the ids that are derived from them.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreIdentity([u8; 16]);

/// Tells stores apart without giving their identity away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreMark(Box<str>);

/// What each derived value is for. A changed label makes values that were derived before unrecognisable.
mod label {
    pub(super) const MARK: &str = "rejoin store mark v1";
    pub(super) const STATELESS: &str = "rejoin stateless session v1";
    pub(super) const STAND_IN: &str = "rejoin stand-in v1";
}

impl StoreIdentity {
    /// The identity that a store has kept, or a new one from random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// What a sealed state says of the store that it comes from.
    pub fn mark(&self) -> StoreMark {
        StoreMark(url_safe(&self.digest(label::MARK, &[])[..12]).into())
    }

    /// The id of the upstream session of a client without sessions. Nobody can compute it who does not know
    /// this identity, and no client can choose it.
    pub fn stateless_session(&self, owner: &str, client: &str) -> SessionId {
        let digest = self.digest(label::STATELESS, &[owner, client]);
        SessionId::reserved(Reserved::Stateless, &url_safe(&digest[..20]))
    }

    /// The id under which a session is remembered here whose own id another session of this store has. It
    /// comes from `store` and was created at `created_at`.
    pub fn stand_in(
        &self,
        store: &StoreMark,
        id: &SessionId,
        principal: &Principal,
        created_at: Timestamp,
    ) -> SessionId {
        let created_at = created_at.as_millis().to_string();
        let parts = [&*store.0, id.as_str(), principal.as_str(), &created_at];
        SessionId::reserved(
            Reserved::StandIn,
            &url_safe(&self.digest(label::STAND_IN, &parts)[..20]),
        )
    }

    /// Each part with its length before it, so that no two lists of parts read the same.
    fn digest(&self, label: &str, parts: &[&str]) -> [u8; 32] {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let mac = parts.iter().fold(mac.chain_update(label), |mac, part| {
            mac.chain_update((part.len() as u64).to_le_bytes()).chain_update(part)
        });
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for StoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreIdentity").field(&self.mark()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StoreIdentity = StoreIdentity::new([1; 16]);
    const OTHER: StoreIdentity = StoreIdentity::new([2; 16]);

    #[test]
    fn what_is_derived_depends_on_the_store_and_on_where_one_part_ends() {
        assert_eq!(ONE.mark(), StoreIdentity::new([1; 16]).mark());
        assert_ne!(ONE.mark(), OTHER.mark());
        let of = |store: &StoreIdentity, owner, client| store.stateless_session(owner, client);
        assert_eq!(of(&ONE, "zoe\n", "cli"), of(&ONE, "zoe\n", "cli"));
        assert_ne!(of(&ONE, "zoe\n", "cli"), of(&OTHER, "zoe\n", "cli"));
        assert_ne!(of(&ONE, "zoe", "\ncli"), of(&ONE, "zoe\n", "cli"));
        assert_ne!(of(&ONE, "", "zoe\ncli"), of(&ONE, "zoe\ncli", ""));
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{ONE:?}").contains("1, 1"));
    }
}
