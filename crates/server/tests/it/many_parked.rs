//! A hundred thousand parked sessions are rows in the store, not tasks.

use std::sync::Arc;

use crate::common::*;
use rejoin::core::lifetime::OnDisconnect::Ttl;
use rejoin::core::record::Kind;
use rejoin::store::{MemoryStore, Query, Store};

const MANY: usize = 100_000;

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_parked_sessions_cost_no_tasks_and_all_expire_in_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = world_on(Arc::clone(&store), policy(Ttl, Some(HOUR)), |b| b).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for number in 1..MANY {
        let record = world.sessions.create(&me(), Kind::Agent, "{}").await.unwrap();
        let reader = client::Reader::attach(&world.sessions, record.id(), None).await;
        drop(reader);
        if number % 1_000 == 0 {
            settle().await;
        }
    }
    drop(world.attach().await);
    world.quiet().await;
    assert!(tasks() <= before + 1, "{} tasks", tasks());
    let active = async || {
        let query = Query { active_only: true, limit: 2 * MANY, ..Query::default() };
        store.sessions(&query).await.unwrap().len()
    };
    pass(HOUR - MINUTE).await;
    assert_eq!(active().await, MANY);
    pass(MINUTE).await;
    until(async || active().await == 0).await;
    pass(settings().remember_for()).await;
    until(async || {
        store.sessions(&Query { limit: 1, ..Query::default() }).await.unwrap().is_empty()
    })
    .await;
}
