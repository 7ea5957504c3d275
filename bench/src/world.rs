//! A store in a directory of its own, and sessions in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rejoin_core::lifetime::Lifetime;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::Weight;
use rejoin_core::page::Body;
use rejoin_core::record::{About, Kind, Transport};
use rejoin_core::state::{
    Append, Attach, Create, Detach, NewEvent, Recovery, Room, TakeLease, Takeover,
};
use rejoin_core::{Epoch, LogId, Principal, ProcessId, Seq, SessionId, Term, Timestamp};
use rejoin_store::Store;
use rejoin_store::embedded::{EmbeddedStore, Options};

/// The size of every event.
pub const EVENT_BYTES: usize = 300;

/// The time of everything: no deadline matters here.
pub const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A directory for a store, on the disk that the project is on. It goes when it is dropped; a run that
/// is killed leaves it among the build's output, not among the sources.
pub fn directory() -> Result<tempfile::TempDir> {
    let parent = Path::new("target/bench");
    std::fs::create_dir_all(parent)?;
    Ok(tempfile::tempdir_in(parent)?)
}

/// Opens the store in `directory`, keeping `events` a session.
pub fn open(directory: &Path, events: usize) -> Result<EmbeddedStore> {
    let mut counter = 0_u64;
    let options = Options {
        directory: directory.to_owned(),
        bounds: LogBounds { events, bytes: usize::MAX, retention: DAY, ..LogBounds::default() },
        max_buffered_bytes: u64::MAX,
        max_bytes_per_principal: u64::MAX,
        audit_max: 1_000,
        memory_bytes: 1 << 30,
        disk_reserve: 0,
        notice_copies: false,
        accept_data_loss: false,
        recovery: Recovery { now: NOW, keep_for: DAY, longest: DAY },
        random: Box::new(move |bytes| {
            counter += 1;
            bytes.iter_mut().zip(counter.to_le_bytes().iter().cycle()).for_each(|(b, c)| *b = *c);
        }),
    };
    Ok(EmbeddedStore::open(options)?.0)
}

/// An event as agents make them: text in an envelope, different each time.
pub fn event(number: u64) -> Body {
    let mut text = format!(
        r#"{{"event":"agent.thinking","content":"step {number}: {:x}","metadata":{{"n":{number}}}}}"#,
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
    .into_bytes();
    let mut state = number | 1;
    while text.len() < EVENT_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push(b'a' + ((state >> 59) as u8 % 26));
    }
    text.truncate(EVENT_BYTES);
    text.into()
}

/// Makes a session and takes its lease.
pub async fn session(store: &dyn Store, number: u64) -> Result<(SessionId, Term)> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let about = About {
        id: SessionId::from_random(bytes),
        principal: Principal::anonymous(),
        kind: Kind::Agent,
        client: "{}".into(),
        created_at: NOW,
    };
    let id = about.id.clone();
    let log = LogId::new(number);
    let epoch = Epoch::from_random([1; 6]);
    store.create(Create { about, log, epoch, keep_for: DAY, room: Room::UNLIMITED }).await?;
    let holder = ProcessId::from_random([1; 9]);
    let term = store.take_lease(&id, TakeLease { holder, lasts: DAY, now: NOW }).await?;
    Ok((id, term))
}

/// A session that a client has attached to and left.
pub async fn parked(store: &dyn Store, number: u64) -> Result<()> {
    let (id, _) = session(store, number).await?;
    let attach = Attach {
        principal: Principal::anonymous(),
        transport: Transport::WebSocket,
        takeover: Takeover::Replace,
        token: None,
        attempt: None,
        now: NOW,
    };
    let generation = store.attach(&id, attach).await?.record.generation;
    store.detach(&id, Detach { generation, lifetime: Lifetime::keeping(DAY), now: NOW }).await?;
    Ok(())
}

/// Appends events to a session, `first` being the next seq.
pub async fn append(
    store: &dyn Store,
    id: &SessionId,
    term: Term,
    first: Seq,
    bodies: impl IntoIterator<Item = Body>,
) -> Result<Seq> {
    let bodies = bodies.into_iter();
    let events =
        bodies.map(|body| NewEvent { weight: Weight::passing(body.len()), body }).collect();
    let append = Append {
        term,
        first,
        events,
        snapshot: None,
        covers: None,
        answered: Vec::new(),
        named: false,
        key: None,
        now: NOW,
    };
    Ok(store.append(id, append).await?.head)
}

/// Does something for each number, many at a time.
pub async fn many<F: Future<Output = Result<()>> + Send + 'static>(
    count: u64,
    at_once: u64,
    task: impl Fn(u64) -> F + Send + Sync + 'static,
) -> Result<()> {
    let task = Arc::new(task);
    let mut workers = Vec::new();
    for worker in 0..at_once {
        let task = Arc::clone(&task);
        workers.push(tokio::spawn(async move {
            for number in (worker..count).step_by(at_once as usize) {
                task(number).await?;
            }
            anyhow::Ok(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
