//! A clean-up races with a client that comes back, in ten thousand orders that shuttle chooses.
//!
//! Everybody does what the real ones do, step by step, on the real store and the real places of handlers:
//!
//! | who | like | steps |
//! |---|---|---|
//! | the client that goes | the hub, the hook's `Cleanup::run` | detach; end what was parked under this generation |
//! | the client that comes | rmcp's service and the manager | look the session up; want its handler, or make one; attach |
//! | each handler | `SessionWorker::run` | look whether the session is over; be let go if it is idle; wait |
//! | time | the timers | lets the handler be looked at as idle, once |

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rejoin::core::lifetime::Lifetime;
use rejoin::core::record::{About, Ending, Kind, Transport};
use rejoin::core::state::{Attach, Create, Detach, End, Room, Takeover};
use rejoin::core::{Epoch, Generation, LogId, Principal, SessionId, Timestamp};
use rejoin::store::{MemoryStore, Store as _};
use shuttle::future::block_on;
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use crate::live::{Live, Ours};

/// How many orders are tried.
const ORDERS: usize = 10_000;

const HOUR: Duration = Duration::from_secs(3_600);
const NOW: Timestamp = Timestamp::from_millis(1);

/// What a clean-up respects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Respects {
    /// Only what was parked is ended, as it should be.
    Generation,
    /// A planted bug: whatever is there is ended.
    Nothing,
}

/// One session, and everything that is about it.
struct World {
    store: MemoryStore,
    id: SessionId,
    live: Live<&'static str>,
    /// Whether the handler is to be looked at as idle; wakes whoever waits when it changes, or the session does.
    stirred: Mutex<bool>,
    wakes: Condvar,
}

impl World {
    /// A session with a client and a handler that nobody has asked for lately.
    fn new() -> (Arc<Self>, Generation, Ours<&'static str>) {
        let id = SessionId::from_random([7; 16]);
        let world = Self {
            store: MemoryStore::default(),
            id: id.clone(),
            live: Live::default(),
            stirred: Mutex::new(false),
            wakes: Condvar::new(),
        };
        let about = About {
            id,
            principal: Principal::anonymous(),
            kind: Kind::Mcp,
            client: "{}".into(),
            created_at: NOW,
        };
        let (log, epoch) = (LogId::new(1), Epoch::from_random([1; 6]));
        let create = Create { about, log, epoch, keep_for: HOUR, room: Room::UNLIMITED };
        block_on(world.store.create(create)).unwrap();
        let generation = world.attach().unwrap();
        let place = world.live.take(&world.id, "the first").unwrap();
        place.is_ready();
        assert!(!place.leave_if_unwanted(), "it has just been made");
        (Arc::new(world), generation, place)
    }

    fn attach(&self) -> Option<Generation> {
        let attach = Attach {
            principal: Principal::anonymous(),
            transport: Transport::StreamableHttp,
            takeover: Takeover::Replace,
            token: None,
            attempt: None,
            now: NOW,
        };
        let attached = block_on(self.store.attach(&self.id, attach));
        attached.ok().map(|attached| attached.record.generation)
    }

    fn end(&self, only_parked: Option<Generation>) -> bool {
        let ending = Ending::CleanedUp;
        let end = End {
            ending,
            only_parked,
            only_by: None,
            only_due: false,
            remember_for: HOUR,
            now: NOW,
        };
        let ended = block_on(self.store.end(&self.id, end)).is_ok();
        self.stir(false);
        ended
    }

    fn is_active(&self) -> bool {
        block_on(self.store.session(&self.id)).unwrap().is_some_and(|record| record.is_active())
    }

    fn is_attached(&self) -> bool {
        let record = block_on(self.store.session(&self.id)).unwrap();
        record.is_some_and(|record| record.is_active() && record.attached.is_some())
    }

    fn stir(&self, quiet: bool) {
        *self.stirred.lock().unwrap() |= quiet;
        self.wakes.notify_all();
    }

    /// A handler, until the session is over or it is let go.
    fn handler(&self, place: Ours<&'static str>) {
        loop {
            let mut quiet = self.stirred.lock().unwrap();
            if !self.is_active() {
                break;
            }
            if std::mem::take(&mut *quiet) {
                drop(quiet);
                if !self.is_attached() && place.leave_if_unwanted() {
                    break;
                }
                continue;
            }
            drop(self.wakes.wait(quiet).unwrap());
        }
        drop(place);
    }

    /// The client goes, and its session is cleaned up. Says whether it was.
    fn go(&self, generation: Generation, respects: Respects) -> bool {
        thread::yield_now();
        let detach = Detach { generation, lifetime: Lifetime::keeping(HOUR), now: NOW };
        if block_on(self.store.detach(&self.id, detach)).is_err() {
            return false; // somebody has come meanwhile, so nobody asks the hook
        }
        thread::yield_now();
        self.end(match respects {
            Respects::Generation => Some(generation),
            Respects::Nothing => None,
        })
    }
}

/// The client comes back: whether it is attached, and the handler that was made for it.
fn come_back(world: &Arc<World>) -> (bool, Option<thread::JoinHandle<()>>) {
    thread::yield_now();
    if !world.is_active() {
        return (false, None);
    }
    let mut made = None;
    if !world.live.want(&world.id)
        && let Some(place) = world.live.take(&world.id, "another")
    {
        place.is_ready();
        let world = Arc::clone(world);
        made = Some(thread::spawn(move || world.handler(place)));
    }
    thread::yield_now();
    let attached = world.attach().is_some();
    world.stir(false);
    let answered = world.live.get(&world.id).is_some();
    assert!(!attached || answered, "one of them wins: attached, and nobody answers");
    (attached, made)
}

/// One order. Says whether the session was cleaned up.
fn clean_up_against_reconnect(respects: Respects) -> bool {
    let (world, generation, place) = World::new();
    let handler = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.handler(place))
    };
    let time = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.stir(true))
    };
    let going = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.go(generation, respects))
    };
    let coming = {
        let world = Arc::clone(&world);
        thread::spawn(move || come_back(&world))
    };
    let ended = going.join().unwrap();
    let (attached, made) = coming.join().unwrap();
    time.join().unwrap();
    assert_ne!(ended, attached, "one of them wins, and only one");
    assert_eq!(
        world.is_active(),
        attached,
        "a live session is never removed, a dead one never kept"
    );
    if attached {
        assert!(world.live.get(&world.id).is_some(), "its handler lives");
        assert!(world.end(None), "its client ends it");
    }
    handler.join().unwrap();
    made.map(thread::JoinHandle::join).transpose().unwrap();
    assert_eq!(world.live.len(), 0, "no handler outlives its session");
    ended
}

#[test]
fn in_ten_thousand_orders_no_live_session_is_removed_and_nothing_leaks() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let order = || {
        let ended = clean_up_against_reconnect(Respects::Generation);
        ENDED.fetch_add(usize::from(ended), Ordering::Relaxed);
    };
    shuttle::check_random(order, ORDERS);
    let ended = ENDED.load(Ordering::Relaxed);
    let both = ORDERS / 10..ORDERS - ORDERS / 10;
    assert!(both.contains(&ended), "cleaned up in {ended} of {ORDERS} orders: that is no race");
}

/// The race is worth its name: a clean-up that does not look at the generation is caught.
#[test]
#[should_panic(expected = "one of them wins")]
fn a_clean_up_that_ignores_the_generation_is_caught() {
    let order = || {
        clean_up_against_reconnect(Respects::Nothing);
    };
    shuttle::check_random(order, ORDERS);
}
