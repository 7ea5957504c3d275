//! Brings the rows of the sessions and the journal's records together, for each session what is said
//! about it, on several threads.

use std::collections::HashMap;

use rejoin_core::Principal;

use super::index::Entries;
use super::key_map::KeyMap;
use super::packed::Run;
use super::parallel;
use super::piece::Ledger;
use super::rebuild::Rebuild;
use super::rows;
use super::scan::{RowFound, SessionRows, What};
use super::take_over::{TakeOver, Taken};

/// The sessions of a store, or of a share of it.
#[derive(Debug, Default)]
pub(super) struct LoadedSessions {
    /// In the order of their keys.
    pub(super) sessions: Vec<Taken>,
    /// The same for the index.
    pub(super) entries: Entries,
    /// How many records make no sense although they are whole.
    pub(super) undecodable: u64,
}

/// Puts the sessions together and takes them over.
pub(super) fn load(
    parts: &[SessionRows],
    journal: &[RowFound],
    take_over: TakeOver<'_>,
    ledger: &Ledger,
    threads: usize,
) -> LoadedSessions {
    let shares = parts.chunks(parts.len().div_ceil(threads).max(1)).collect();
    let load = |(): &mut (), parts| load_share(parts, journal, take_over, ledger);
    let mut all = LoadedSessions::default();
    for share in parallel::map(threads, shares, || (), load) {
        all.sessions.extend(share.sessions);
        all.entries.extend(share.entries);
        all.undecodable += share.undecodable;
    }
    all
}

fn load_share(
    parts: &[SessionRows],
    journal: &[RowFound],
    take_over: TakeOver<'_>,
    ledger: &Ledger,
) -> LoadedSessions {
    let count = parts.iter().map(|part| part.rows.len()).sum();
    let said = ByKey::new(parts, journal, count);
    let (mut sessions, mut entries) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut principals, mut events) = (Principals::default(), Vec::new());
    let (mut needed, mut undecodable) = (0, 0);
    let rows = parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row)));
    for (index, (part, row)) in rows.enumerate() {
        let Ok(mut stored) = rows::decode(part.content(row)) else {
            undecodable += 1;
            continue;
        };
        let active = principals.share(&mut stored.about.principal);
        let mut session = Rebuild::new(stored, &mut events);
        said.tell(index, journal, &mut session);
        let as_of = session.as_of();
        let (slot, bytes) = session.finish(row.key, row.sum);
        let (taken, entry) = take_over.take(row.key, slot, as_of);
        *active += usize::from(taken.is_active);
        needed += bytes;
        sessions.push(taken);
        entries.push(entry);
    }
    ledger.add(needed);
    LoadedSessions { sessions, entries: Entries::new(entries, principals.active), undecodable }
}

/// The principals that were met, each once in memory, and how many sessions of theirs go on.
#[derive(Default)]
struct Principals {
    active: HashMap<Principal, usize>,
}

impl Principals {
    /// Has `principal` share its memory with those that are the same. Gives its count.
    fn share(&mut self, principal: &mut Principal) -> &mut usize {
        let entry = self.active.entry(principal.clone());
        *principal = entry.key().clone();
        entry.or_default()
    }
}

/// What the journal says, by sessions: for each a chain of places in it.
struct ByKey {
    /// The first link of each session's chain.
    chains: Vec<u32>,
    links: Vec<Link>,
}

struct Link {
    row: u32,
    said: u32,
    next: u32,
}

/// The end of a chain.
const NONE: u32 = u32::MAX;

impl ByKey {
    fn new(parts: &[SessionRows], journal: &[RowFound], count: usize) -> Self {
        let keys = || parts.iter().flat_map(|part| part.rows.iter().map(|row| row.key));
        let mut index_of: KeyMap<u32> = KeyMap::default();
        index_of.reserve(count);
        index_of.extend(keys().zip(0..));
        let range = keys().min()..=keys().max();
        let mut by_key = Self { chains: vec![NONE; count], links: Vec::with_capacity(count) };
        // From the end, so that each link goes before those that are there.
        for (row, found) in journal.iter().enumerate().rev() {
            for (said, key) in found.said.iter().map(|said| said.key).enumerate().rev() {
                if range.contains(&Some(key))
                    && let Some(index) = index_of.get(&key)
                {
                    let chain = &mut by_key.chains[*index as usize];
                    let link = Link { row: row as u32, said: said as u32, next: *chain };
                    *chain = by_key.links.len() as u32;
                    by_key.links.push(link);
                }
            }
        }
        by_key
    }

    /// Tells a session what the journal says about it.
    fn tell<'j>(&self, index: usize, journal: &'j [RowFound], session: &mut Rebuild<'_, 'j>) {
        let mut at = self.chains[index];
        while let Some(Link { row, said, next }) = self.links.get(at as usize) {
            let found = &journal[*row as usize];
            match &found.said[*said as usize].what {
                What::Events(events) => {
                    session.add_events(Run { row: &found.row, events: *events });
                }
                What::Other(record) => session.add(&found.row, record.0, record.1),
            }
            at = *next;
        }
    }
}
