//! The agents that run in a server process, and the deadlines it looks after.

use super::*;

/// An agent: says a few things about each message, and stores that it is done together with the last.
#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) entries: VecDeque<StoredEntry>,
    /// The last one it was handed, or that was covered before it began.
    handed: InSeq,
    said: u32,
    pub(super) waits: bool,
}

impl Agent {
    /// It is handed messages: each once, none left out but those that were answered before.
    pub(super) fn take(&mut self, entries: Vec<StoredEntry>, waiting: &[StoredEntry]) {
        for entry in entries {
            let (last, came) = (self.handed, entry.in_seq);
            assert!(came > last, "P12: the agent is handed message {came} after {last}");
            let left_out = waiting.iter().find(|other| last < other.in_seq && other.in_seq < came);
            assert_eq!(left_out, None, "P12: the agent is handed message {came} after {last}");
            self.handed = came;
            self.entries.push_back(entry);
        }
    }

    /// It is done with the second message in its hands before it is done with the first.
    fn answer_second(&mut self) -> Option<Publication> {
        let second = self.entries.remove(1)?;
        let word = String::from_utf8_lossy(&second.body).into_owned();
        Some(Publication {
            events: vec![said(&format!("done {word}"))],
            answered: vec![second.in_seq],
            ..Publication::default()
        })
    }
}

/// An event that says this.
pub(crate) fn said(text: &str) -> EventBody {
    match EventBody::new("agent.said", &text) {
        Ok(event) => event,
        Err(refused) => panic!("the simulation's own event: {refused}"),
    }
}

impl Server {
    /// Sessions with work that nobody attends to: at a start, and whenever the world looks.
    pub(crate) fn wake_workers(&mut self, around: &mut Around<'_>) {
        let records: Vec<Record> = around
            .disk
            .sessions
            .values()
            .map(|session| session.record())
            .filter(|record| record.is_active() && record.has_work())
            .collect();
        for record in records {
            self.live(&record);
            self.look_after_agent(record.id(), around);
        }
    }

    pub(super) fn look_after_agent(&mut self, id: &SessionId, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        if live.worker.is_over() {
            live.agent = None;
            return;
        }
        match live.term {
            None if !live.asked_lease => {
                live.asked_lease = true;
                let lasts = Duration::from_secs(60);
                let take = TakeLease { holder: self.process.clone(), lasts, now: around.now };
                around.disk.ask(id, Write::Lease(take));
            }
            Some(_) if live.agent.is_none() && !live.worker.awaits_store() => {
                let handed = live.worker.record().covered;
                live.agent = Some(Agent { handed, ..Agent::default() });
                // What the machine believes may be behind the disk only by what is on its way.
                self.feed(id, WorkerInput::AgentReady { covering: Covering::Named }, around);
            }
            None | Some(_) => {}
        }
    }

    /// An agent dies; the next one begins from what is stored.
    pub(crate) fn kill_agent(&mut self, id: &SessionId, around: &mut Around<'_>) {
        if let Some(live) = self.sessions.get_mut(id)
            && live.agent.take().is_some()
        {
            self.feed(id, WorkerInput::AgentGone, around);
        }
    }

    /// An agent says the next thing.
    pub(crate) fn agent_speaks(&mut self, id: &SessionId, around: &mut Around<'_>) {
        let Some(live) = self.sessions.get_mut(id) else { return };
        if !live.worker.accepts_publication() {
            return;
        }
        let Some(agent) = &mut live.agent else { return };
        if agent.waits {
            return;
        }
        let early = agent.entries.len() > 1 && around.random.one_in(4);
        let early = if early { agent.answer_second() } else { None };
        let Some(entry) = agent.entries.front() else { return };
        let says = 1 + (entry.in_seq.get() % 3) as u32;
        let word = String::from_utf8_lossy(&entry.body).into_owned();
        let publication = if let Some(publication) = early {
            publication
        } else if agent.said < says {
            agent.said += 1;
            let event = format!("{} of {word} ({})", agent.said, around.random.next());
            Publication { events: vec![said(&event)], ..Publication::default() }
        } else {
            let entry_done = entry.in_seq;
            agent.said = 0;
            agent.entries.pop_front();
            let state = format!("{{\"stage\":\"after {entry_done}\",\"word\":\"{word}\"}}");
            Publication {
                events: vec![said(&format!("done {word}"))],
                state: Some(state.into_bytes().into()),
                in_seq: Some(entry_done),
                ..Publication::default()
            }
        };
        agent.waits = around.random.one_in(2);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        live.publishing.insert(ticket, ());
        let publication = Box::new(publication);
        self.feed(id, WorkerInput::Publish { ticket, publication }, around);
    }

    /// Whoever embeds the server decides now and then that a parked session is kept for less long, whether or not its
    /// agent is at work.
    pub(crate) fn hook_decides(&mut self, around: &mut Around<'_>) {
        if !around.random.one_in(8) {
            return;
        }
        let records = around.disk.sessions.values().map(|session| session.record());
        let soon = around.now + Duration::from_secs(20);
        let is_parked = |record: &Record| {
            let at_work = record.away_since().is_some() && record.has_work();
            record.is_active() && at_work && record.expires_at > soon // it decides once
        };
        let parked: Vec<Record> = records.filter(is_parked).collect();
        if parked.is_empty() {
            return;
        }
        let record = &parked[around.random.below(parked.len())];
        let until = around.now + Duration::from_secs(around.random.below(20) as u64);
        let generation = record.generation;
        around.disk.ask(record.id(), Write::Keep(Keep { generation, until }));
    }

    /// The time of parked sessions has come.
    pub(crate) fn reap(&mut self, around: &mut Around<'_>) {
        let lifetime = settings().lifetime;
        let due: Vec<Record> = around
            .disk
            .sessions
            .values()
            .map(|session| session.record())
            .filter(|record| {
                record.is_active() && record.due_at().is_some_and(|at| at <= around.now)
            })
            .collect();
        for record in due {
            let generation = record.generation;
            let write = match lifetime.on_due(&record, around.now) {
                Verdict::KeepUntil(until) => Write::Keep(Keep { generation, until }),
                Verdict::End => Write::End(End {
                    ending: Ending::Expired,
                    only_parked: Some(generation),
                    only_by: None,
                    only_due: true,
                    remember_for: STATE_TTL,
                    now: around.now,
                }),
            };
            around.disk.ask(record.id(), write);
        }
    }
}
