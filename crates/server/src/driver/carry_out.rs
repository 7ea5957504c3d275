//! Carrying out what the state machine says.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::SessionId;
use rejoin_core::lifetime::Verdict;
use rejoin_core::record::Kind;
use rejoin_core::state::{Append, AppendRefused, Appended, Keep};
use rejoin_core::worker::{PublishRefused, Published, Ticket, WorkerInput, WorkerOutput};
use rejoin_store::{Body, Failure, Unavailable};
use tokio::time::sleep;
use tracing::{Instrument as _, debug_span};

use super::{Done, Driver};
use crate::error::append_refused;
use crate::shared::Shared;
use crate::tasks::Owned;

/// How long an append waits before it is tried again, while the store takes nothing new.
const ROOM_AGAIN: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) fn carry_out_all(&mut self) {
        while let Some(output) = self.worker.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: WorkerOutput) {
        match output {
            WorkerOutput::Append(append) => self.append(*append),
            WorkerOutput::ReadEntries { after } => {
                let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
                self.reads.push(async move {
                    let limit = rejoin_core::limits::HAND_ENTRIES;
                    match shared.store.entries(&id, after, limit).await {
                        Ok(entries) => Done::Happened(WorkerInput::Entries { after, entries }),
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                });
            }
            WorkerOutput::Hand(entries) => {
                if self.worker.record().about.kind == Kind::Agent {
                    self.seat.note_handed(&entries);
                }
                self.seat.hand(entries);
            }
            WorkerOutput::StopAgent => {
                self.seat.stop(self.worker.is_over(), self.shared.clock.now());
            }
            WorkerOutput::Published { ticket, result } => self.published(ticket, result),
            WorkerOutput::WorkDone => self.work_done(),
        }
    }

    fn append(&mut self, append: Append<Body>) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        let events = append.events.len();
        let span = debug_span!(target: "rejoin", "append", session = %id, events);
        let append = async move {
            match append_refused(append_when_there_is_room(&shared, owned, &id, append).await) {
                // Another process has written since this driver read the session: the next driver
                // will read it again.
                Ok(Err(refused @ AppendRefused::NotAtHead { .. })) => {
                    Done::Failed(Unavailable(Arc::from(refused.to_string())))
                }
                Ok(answer) => Done::Happened(WorkerInput::Appended(answer)),
                Err(unavailable) => Done::Failed(unavailable),
            }
        };
        self.agent_lane.push(append.instrument(span));
    }

    /// The work is done: if nobody is there the policy has its say, unless the hook has had its own.
    fn work_done(&mut self) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        self.policy_lane.push(async move {
            match after_work(&shared, owned, &id).await {
                Ok(()) => Done::Nothing,
                Err(unavailable) => Done::Failed(unavailable),
            }
        });
    }

    pub(super) fn published(&mut self, ticket: Ticket, result: Result<Published, PublishRefused>) {
        if matches!(result, Err(PublishRefused::Refused(AppendRefused::Ended(_)))) {
            self.seat.session_is_over();
        }
        let found = self.publishing.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        if let Some((_, reply)) = found.ok().and_then(|index| self.publishing.remove(index)) {
            let _ = reply.send(result.map_err(Failure::Refused));
        }
    }
}

/// Appends, and waits as long as the store takes nothing new: the agent waits with it, and so does whoever
/// publishes. Readers go on reading.
async fn append_when_there_is_room(
    shared: &Shared,
    owned: Owned,
    id: &SessionId,
    append: Append<Body>,
) -> Result<Appended, Failure<AppendRefused>> {
    loop {
        match shared.store.change(owned).append(id, append.clone()).await {
            Err(Failure::Refused(AppendRefused::Paused)) => {}
            answer => return answer,
        }
        tokio::select! {
            () = sleep(ROOM_AGAIN) => {}
            () = shared.stopping() => {
                let why = "the server stops while the store takes nothing new";
                return Err(Unavailable(Arc::from(why)).into());
            }
        }
    }
}

/// Asks the policy what becomes of a session whose work is done.
async fn after_work(shared: &Arc<Shared>, owned: Owned, id: &SessionId) -> Result<(), Unavailable> {
    let Some(record) = shared.store.session(id).await? else { return Ok(()) };
    let (generation, now) = (record.generation, shared.clock.now());
    let verdict = shared.settings.session.lifetime.after_work(&record, now);
    let Some(verdict) = verdict else { return Ok(()) };
    if shared.hook_decides(id, generation).await? {
        return Ok(());
    }
    match verdict {
        Verdict::KeepUntil(until) => {
            let kept = shared.store.change(owned).keep(id, Keep { generation, until }).await;
            shared.deadline_set(until);
            match kept {
                Ok(()) | Err(Failure::Refused(_) | Failure::NotFound) => Ok(()),
                Err(Failure::Unavailable(unavailable)) => Err(unavailable),
            }
        }
        Verdict::End => shared.clean_up(owned, id, generation).await,
    }
}
