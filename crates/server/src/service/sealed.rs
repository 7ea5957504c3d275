//! Small notes that a client keeps for the server, sealed like a state.

use rejoin_core::Principal;
use rejoin_core::record::Record;
use rejoin_core::seal::{self, OpenedState, SealOrigin, StateFacts};

use super::{Denial, Service};
use crate::random;

/// The longest note: a place in the logs, and what was answered there.
const LONGEST: usize = 16 * 1024;

impl Service {
    /// What a seal says of the session that it is about.
    pub(crate) fn origin_of(&self, record: &Record) -> SealOrigin {
        let store = self.sessions().store().identity().mark();
        SealOrigin { store, created_at: record.about.created_at }
    }

    /// A note about a place in a session's logs, for whoever `facts` names as its principal.
    pub(crate) fn seal_note(&self, facts: &StateFacts, content: &[u8]) -> Result<String, Denial> {
        let (keys, nonce) = (self.keys(), random::bytes()?);
        Ok(seal::seal(&keys, facts, content, nonce, LONGEST)?)
    }

    /// What was sealed for `principal` about a session of this store; nothing if it was not, or its time is
    /// over.
    pub(crate) fn open_note(&self, text: &str, principal: &Principal) -> Option<OpenedState> {
        let opened = seal::open(&self.keys(), text, principal, self.now(), LONGEST).ok()?;
        let here = self.sessions().store().identity().mark();
        let elsewhere = opened.facts.origin.as_ref().is_some_and(|origin| origin.store != here);
        (!elsewhere).then_some(opened)
    }
}
