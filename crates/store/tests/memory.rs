//! The memory store behaves as every store does.

use std::sync::Arc;

use rejoin_store::{MemoryStore, Store, suite};

async fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(suite::BOUNDS, suite::AUDIT_MAX))
}

rejoin_store::store_suite!(memory);
