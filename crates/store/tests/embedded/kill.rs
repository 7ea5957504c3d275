//! A process that writes is killed, at fifty moments, and everything it was told is durable is there
//! when the store is opened again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::limits::LogBounds;
use rejoin_core::state::TakeLease;
use rejoin_core::{InSeq, ProcessId, Seq};
use rejoin_store::embedded::EmbeddedStore;
use rejoin_store::{Body, Store};

use crate::support::{
    Dice, HOUR, at, attachment, creation, events_from, message, options, read_all, record,
    session_id, with_state,
};

const DIRECTORY: &str = "REJOIN_TEST_KILL_DIRECTORY";
const SEED: &str = "REJOIN_TEST_KILL_SEED";
const SESSIONS: u64 = 6;
/// Events a session keeps: few, so that rows die and are deleted while it runs.
const KEPT: usize = 50;

fn open(directory: &Path) -> EmbeddedStore {
    let mut options = options(directory);
    options.bounds = LogBounds { events: KEPT, bytes: usize::MAX, ..LogBounds::default() };
    options.memory_bytes = 64 * 1024;
    let (store, report) = EmbeddedStore::open(options).expect("the store opens");
    assert_eq!(report.damage, [], "a killed process loses nothing");
    store
}

/// The bytes of an event: what they are follows from where they stand. The first says whether a state
/// came with it.
fn event(session: u64, seq: Seq, with_state: bool) -> Body {
    let mut dice = Dice(session << 32 | seq.get());
    let length = if dice.one_in(50) { 40_000 } else { 1 + dice.below(700) };
    let mut bytes: Vec<u8> = (0..length).map(|_| dice.roll() as u8).collect();
    bytes[0] = u8::from(with_state);
    bytes.into()
}

fn message_text(session: u64, number: u64) -> Body {
    format!("message {number} of session {session}").into_bytes().into()
}

fn state(session: u64, seq: Seq) -> Body {
    format!("session {session} after {seq}").into_bytes().into()
}

/// The process that is killed. It says on its standard output what it was told is durable.
#[test]
#[ignore = "is run by the other test of this file, and killed"]
fn child() {
    let directory = std::env::var(DIRECTORY).expect("run by the other test");
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let store = Arc::new(open(Path::new(&directory)));
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..SESSIONS)
            .map(|session| tokio::spawn(produce(Arc::clone(&store), session, Dice(seed ^ session))))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn say(what: &str, session: u64, number: u64) {
    let line = format!("{what} {session} {number}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

async fn produce(store: Arc<EmbeddedStore>, session: u64, mut dice: Dice) {
    let id = session_id(session);
    if store.session(&id).await.unwrap().is_none() {
        store.create(creation(session)).await.unwrap();
        say("created", session, 0);
    }
    let holder = ProcessId::from_random([dice.roll() as u8; 9]);
    let take = TakeLease { holder, lasts: HOUR, now: at(1) };
    let term = store.take_lease(&id, take).await.unwrap();
    say("term", session, term.get());
    loop {
        let now = record(&*store, &id).await;
        match dice.below(10) {
            0 => {
                let generation = store.attach(&id, attachment()).await.unwrap().record.generation;
                say("generation", session, generation.get());
            }
            1 | 2 => {
                let number = now.in_head.get() + 1;
                let enter = message(&format!("m{number}"), message_text(session, number));
                let entered = store.enter(&id, enter).await.unwrap();
                say("message", session, entered.in_seq.get());
            }
            _ => {
                let count = 1 + dice.below(3);
                let states = dice.one_in(4);
                let last = now.head.plus(count);
                let bodies: Vec<Body> = (1..=count)
                    .map(|step| now.head.plus(step))
                    .map(|seq| event(session, seq, states && seq == last))
                    .collect();
                let mut append = events_from(now.head.next(), &bodies);
                append.term = term;
                if states {
                    let covers = InSeq::new(dice.below(now.in_head.get() + 1));
                    append = with_state(append, state(session, last), covers);
                }
                store.append(&id, append).await.unwrap();
                for step in 1..=count {
                    let with_state = states && step == count;
                    let what = if with_state { "event_with_state" } else { "event" };
                    say(what, session, now.head.plus(step).get());
                }
            }
        }
    }
}

/// What the children were told, over all runs.
#[derive(Debug, Default)]
struct Told {
    /// The highest number of each kind, by session.
    highest: BTreeMap<(String, u64), u64>,
}

impl Told {
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(what), Some(session), Some(number)) = (words.next(), words.next(), words.next())
        else {
            return; // the test runner's own, or cut off by the kill
        };
        let (Ok(session), Ok(number)) = (session.parse::<u64>(), number.parse::<u64>()) else {
            return;
        };
        let what = if what == "event_with_state" { "event" } else { what };
        let highest = self.highest.entry((what.to_owned(), session)).or_default();
        *highest = number.max(*highest);
    }

    fn highest(&self, what: &str, session: u64) -> u64 {
        self.highest.get(&(what.to_owned(), session)).copied().unwrap_or_default()
    }
}

/// Runs the child, kills it after a while, and notes what it said.
fn run_and_kill(directory: &Path, seed: u64, after: Duration, told: &mut Told) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
    let mut next =
        || lines.next().and_then(Result::ok).map(|line| String::from_utf8(line).unwrap());
    while let Some(line) = next() {
        told.note(&line);
        if line.starts_with("term") {
            break;
        }
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    while let Some(line) = next() {
        told.note(&line);
    }
    let status = killer.join().unwrap();
    assert_eq!(status.code(), None, "it ended by itself: {status}");
}

/// A line that the kill has cut short could read as a smaller number: only whole lines count, which
/// the pipe's atomic writes see to. Everything told must be there, byte for byte.
async fn check(store: &EmbeddedStore, told: &Told) {
    for session in 0..SESSIONS {
        let id = session_id(session);
        let Some(record) = store.session(&id).await.unwrap() else {
            assert!(!told.highest.contains_key(&("created".to_owned(), session)));
            continue;
        };
        assert!(record.head.get() >= told.highest("event", session));
        assert!(record.in_head.get() >= told.highest("message", session));
        assert!(record.generation.get() >= told.highest("generation", session));
        assert!(record.term.get() >= told.highest("term", session));

        let events = read_all(store, &id).await;
        assert_eq!(events.len() as u64, record.head.get().min(KEPT as u64));
        let mut newest_state = None;
        for (held, expected) in events.iter().zip(record.oldest.get()..) {
            assert_eq!(held.seq.get(), expected);
            let with_state = held.body.first() == Some(&1);
            assert_eq!(held.body, event(session, held.seq, with_state));
            newest_state = if with_state { Some(held.seq) } else { newest_state };
        }

        let snapshot = store.snapshot(&id).await.unwrap();
        if let Some(snapshot) = &snapshot {
            assert_eq!(snapshot.body, state(session, snapshot.mark.seq));
            assert!(snapshot.mark.seq <= record.head);
        }
        if let Some(newest) = newest_state {
            assert_eq!(snapshot.map(|s| s.mark.seq), Some(newest), "an event without its state");
        }

        let entries = store.entries(&id, InSeq::ZERO, 10_000).await.unwrap();
        assert_eq!(entries.len() as u64, record.in_head.get() - record.covered.get());
        for (entry, expected) in entries.iter().zip(record.covered.get() + 1..) {
            assert_eq!(entry.in_seq.get(), expected);
            assert_eq!(entry.body, message_text(session, expected));
        }
        for number in 1..=told.highest("message", session) {
            let again = message(&format!("m{number}"), message_text(session, number));
            let again = store.enter(&id, again).await.unwrap();
            assert!(again.duplicate && again.in_seq.get() == number, "entered twice: {again:?}");
        }
    }
}

#[test]
fn everything_acknowledged_survives_a_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut dice, mut told) = (Dice(2026), Told::default());
    for round in 0..50 {
        let after = Duration::from_micros(dice.below(120_000));
        run_and_kill(directory.path(), round, after, &mut told);
        let store = open(directory.path());
        runtime.block_on(check(&store, &told));
        if dice.one_in(5) {
            runtime.block_on(store.close()).unwrap();
        }
    }
    let events: u64 = (0..SESSIONS).map(|session| told.highest("event", session)).sum();
    assert!(events > 1_000, "the children got to do something: {events} events");
}
