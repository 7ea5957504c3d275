//! What a parked session costs in memory: a process holds a hundred thousand of them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests too")]

#[path = "embedded/support.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use rejoin_core::state::NewToken;
use rejoin_core::token::TokenHash;
use rejoin_store::Store;
use rejoin_store::embedded::EmbeddedStore;

use support::{HOUR, append, at, attachment, body, creation, departure, open_whole, session_id};

const SESSIONS: u64 = 100_000;
/// Sessions that are made at the same time, so that they share commits.
const AT_ONCE: u64 = 500;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

/// Counts what is allocated, with 16 bytes for the allocator's own in each.
struct Counting;

fn cost(layout: Layout) -> isize {
    layout.size() as isize + 16
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one only counts")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(cost(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(cost(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// A session that a client was attached to and has left, with a token to come back by.
async fn park(store: &EmbeddedStore, number: u64) {
    let id = session_id(number);
    store.create(creation(number)).await.unwrap();
    let generation = store.attach(&id, attachment()).await.unwrap().record.generation;
    let token = NewToken { hash: TokenHash([number as u8; 32]), expires_at: at(9) + HOUR };
    store.put_token(&id, token, at(9)).await.unwrap();
    store.detach(&id, departure(generation)).await.unwrap();
}

async fn park_many(store: &Arc<EmbeddedStore>) {
    let parking: Vec<_> = (0..AT_ONCE)
        .map(|first| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for number in (first..SESSIONS).step_by(AT_ONCE as usize) {
                    park(&store, number).await;
                }
            })
        })
        .collect();
    for task in parking {
        task.await.unwrap();
    }
}

fn assert_small(since: isize, what: &str) {
    let each = (allocated() - since) / SESSIONS as isize;
    println!("{each} bytes for a parked session, {what}");
    assert!(each <= 1024, "{each} bytes for a parked session, {what}");
}

async fn they_are_there(directory: &Path) {
    let before = allocated();
    let store = open_whole(directory);
    assert_small(before, "opened again");
    let last = session_id(SESSIONS - 1);
    append(&store, &last, &[body("still here")]).await;
}

#[test]
fn a_parked_session_costs_less_than_a_kilobyte() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(open_whole(directory.path()));
        let before = allocated();
        park_many(&store).await;
        assert_small(before, "just parked");
        drop(store);
        they_are_there(directory.path()).await;
    });
}
