//! The embedded store behaves as every store does, also after a crash: once with all bodies in
//! memory, once with all of them read from the file.
#![cfg(feature = "embedded")]

use std::sync::Arc;

use rejoin_core::state::Recovery;
use rejoin_store::embedded::{EmbeddedStore, Options};
use rejoin_store::{Store, suite};

struct Home<const MEMORY_BYTES: u64>(tempfile::TempDir);

impl<const MEMORY_BYTES: u64> suite::Reopen for Home<MEMORY_BYTES> {
    async fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory can be made"))
    }

    async fn open(&self, recovery: Recovery) -> Arc<dyn Store> {
        let options = Options {
            directory: self.0.path().to_owned(),
            bounds: suite::BOUNDS,
            max_buffered_bytes: u64::MAX,
            max_bytes_per_principal: u64::MAX,
            audit_max: suite::AUDIT_MAX,
            memory_bytes: MEMORY_BYTES,
            disk_reserve: 0,
            notice_copies: true,
            accept_data_loss: false,
            recovery,
            random: Box::new(|bytes| bytes.fill(7)),
        };
        let (store, report) = EmbeddedStore::open(options).expect("it can be opened");
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        Arc::new(store)
    }
}

mod bodies_in_memory {
    use super::*;
    rejoin_store::durable_store_suite!(Home<{ 64 * 1024 * 1024 }>);
}

mod bodies_in_the_file {
    use super::*;
    rejoin_store::durable_store_suite!(Home<0>);
}
