//! The ids under which the server behind knows requests of the client. An entry may be handed over before it is durable;
//! if Rejoin is killed then, the next entry gets the same number. A server that outlives Rejoin must not take the one
//! for the other, so its ids also say which process handed the request over.

use rejoin_core::{InSeq, ProcessId};
use sha2::{Digest as _, Sha256};

use crate::mcp::message::RequestId;
use crate::mcp::upstream::Upstream;

/// Bits of an id that are the entry's number. Together with those of the process an id stays below 2^53, which every
/// JSON parser reads exactly.
const NUMBER_BITS: u32 = 32;

/// Bits of an id that stand for the process.
const PROCESS_BITS: u32 = 20;

/// Makes ids, and knows them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpstreamIds {
    /// Stands for this process; zero where the server ends with it.
    process: u64,
}

impl UpstreamIds {
    /// For this server, in this process.
    pub(super) fn of(upstream: &Upstream, process: &ProcessId) -> Self {
        match upstream {
            Upstream::Http(_) => Self::in_process(process),
            Upstream::Child(_) | Upstream::BuiltIn => Self { process: 0 },
        }
    }

    fn in_process(process: &ProcessId) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&Sha256::digest(process.as_str())[..8]);
        Self { process: (u64::from_be_bytes(bytes) >> (64 - PROCESS_BITS)).max(1) }
    }

    /// The id of an entry.
    pub(super) fn id(self, in_seq: InSeq) -> RequestId {
        RequestId::number((self.process << NUMBER_BITS) | in_seq.get())
    }

    /// The entry whose id this is; nothing if it is one of another process.
    pub(super) fn entry(self, id: u64) -> Option<InSeq> {
        let number = id.checked_sub(self.process << NUMBER_BITS)?;
        (self.process == 0 || number >> NUMBER_BITS == 0).then(|| InSeq::new(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_by_the_process_that_made_it_alone() {
        let [one, other] = [1, 2].map(|n| UpstreamIds::in_process(&ProcessId::from_random([n; 9])));
        for number in [1, 77, u64::from(u32::MAX)] {
            let id = one.id(InSeq::new(number)).as_number().unwrap();
            assert!(id < 1 << 53, "{id}");
            assert_eq!(one.entry(id), Some(InSeq::new(number)));
            assert_eq!(other.entry(id), None);
        }
        assert_eq!(one.entry(1), None);
        assert_eq!(UpstreamIds { process: 0 }.entry(7), Some(InSeq::new(7)));
    }
}
