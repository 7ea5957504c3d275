//! Carrying out what the state machine says.

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::lifetime::Verdict;
use rejoin_core::page::StoredEntry;
use rejoin_core::record::{Ending, Kind};
use rejoin_core::resume::Gap;
use rejoin_core::session::{Input, LeaveReason, Output, PublishRefused, Published, Tell, Ticket};
use rejoin_core::state::{
    Append, AppendRefused, Appended, Attach, AttachRefused, Detach, End, EndRefused, Enter,
    EnterRefused, Entered, Keep, Stale,
};
use rejoin_core::{AttachmentId, Generation, SessionId};
use rejoin_store::{Body, Failure, PageLimit, Unavailable};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::{Instrument as _, debug_span};

use super::{Done, Driver, Reply};
use crate::asking;
use crate::attachment::Told;
use crate::error::{EndError, append_refused, flatten};
use crate::hook::Lifecycle;
use crate::outlet::NotPut;
use crate::shared::Shared;
use crate::tasks::Owned;
use crate::timeline::Happening;

/// How long an append waits before it is tried again, while the store takes nothing new.
const ROOM_AGAIN: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) fn carry_out_all(&mut self) {
        while let Some(output) = self.session.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Attach { attachment, attach } => self.attach(attachment, *attach),
            Output::Detach { detach, then } => self.detach(detach, then),
            Output::Ack(ack) => {
                let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
                self.client_lane
                    .push(async move { quietly(shared.store.change(owned).ack(&id, ack).await) });
            }
            Output::Enter { ticket, from, enter } => self.enter(ticket, from, *enter),
            Output::Append(append) => self.append(*append),
            Output::Read { attachment, after } => {
                let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
                self.reads.push(async move {
                    match shared.store.read(&id, after, PageLimit::default()).await {
                        Ok(page) => {
                            let page = page.map(Box::new);
                            Done::Happened(Input::Page { attachment, after, page })
                        }
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                });
            }
            Output::ReadEntries { after } => {
                let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
                self.reads.push(async move {
                    let limit = rejoin_core::limits::HAND_ENTRIES;
                    match shared.store.entries(&id, after, limit).await {
                        Ok(entries) => Done::Happened(Input::Entries { after, entries }),
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                });
            }
            Output::Hand(entries) => {
                if self.session.record().about.kind == Kind::Agent {
                    self.seat.note_handed(&entries);
                }
                self.seat.hand(entries);
            }
            Output::StopAgent => self.seat.stop(self.session.is_over(), self.shared.clock.now()),
            Output::Published { ticket, result } => self.published(ticket, result),
            Output::Entered { ticket, result, from: _ } => {
                if result.as_ref().is_ok_and(|entered| entered.duplicate) {
                    self.shared.metrics.duplicates.inc();
                }
                if let Some(reply) = self.entering.remove(&ticket) {
                    let _ = reply.send(result.map_err(Failure::Refused));
                }
            }
            Output::Tell { attachment, tell } => self.tell(attachment, tell),
            Output::HeartbeatMissed => {
                self.shared.metrics.heartbeats_missed.inc();
            }
            Output::Leave { attachment, reason } => self.leave(attachment, reason),
            Output::WorkDone(verdict) => self.work_done(verdict),
        }
    }

    fn attach(&mut self, attachment: AttachmentId, attach: Attach) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        self.client_lane.push(async move {
            let answer = shared.store.change(owned).attach(&id, attach).await;
            match flatten(answer, AttachRefused::Ended(Ending::Closed)) {
                Ok(answer) => {
                    if let Ok(attached) = &answer {
                        shared.happened(Lifecycle::Attached, &attached.record);
                    }
                    let answer = Box::new(answer);
                    Done::Happened(Input::AttachAnswered { attachment, answer })
                }
                Err(unavailable) => Done::Failed(unavailable),
            }
        });
    }

    /// Parks the session. The policy has its say, or the hook instead, if there is one: until it
    /// decides, the session has its longest ttl, so that a hook that never does leaks nothing.
    fn detach(&mut self, mut detach: Detach, then: Verdict) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        if shared.hook.is_some() {
            detach.keep_for = shared.settings.session.lifetime.session_ttl;
        }
        self.client_lane.push(async move {
            match shared.store.change(owned).detach(&id, detach).await {
                Ok(()) => {}
                Err(Failure::Refused(_) | Failure::NotFound) => return Done::Nothing,
                Err(Failure::Unavailable(unavailable)) => return Done::Failed(unavailable),
            }
            shared.metrics.parked();
            shared.noted(&id, detach.generation, Happening::Parked);
            shared.deadline_set(detach.now + detach.keep_for);
            match (&shared.hook, then) {
                (Some(_), _) => {
                    match asking::ask(&shared, &id, detach.generation, detach.now).await {
                        Ok(_) => Done::Nothing,
                        Err(unavailable) => Done::Failed(unavailable),
                    }
                }
                (None, Verdict::KeepUntil(_)) => Done::Nothing,
                (None, Verdict::End) => {
                    let end = End {
                        ending: Ending::CleanedUp,
                        only_parked: Some(detach.generation),
                        only_by: None,
                        only_due: false,
                        remember_for: shared.settings.remember_for(),
                        now: detach.now,
                    };
                    end_quietly(owned, &shared, &id, end).await
                }
            }
        });
    }

    /// Enters a message. The agent may begin with it as soon as its place in the log is settled; whoever
    /// sent it learns of it when it is durable.
    fn enter(&mut self, ticket: Ticket, from: Option<AttachmentId>, enter: Enter<Body>) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        if self.agent().is_some_and(|agent| !agent.begins_early()) {
            return self.enter_durably(ticket, from, enter);
        }
        let (early, told) = oneshot::channel();
        let (kind, at, body) = (enter.kind, enter.now, Body::clone(&enter.body));
        let readable = self.session.record().about.kind == Kind::Agent;
        self.reads.push(async move {
            match told.await {
                Ok(in_seq) => {
                    Done::Happened(Input::Entering(StoredEntry { in_seq, kind, at, body }))
                }
                Err(_) => Done::Nothing, // the store says it all at once
            }
        });
        self.client_lane.join(async move {
            let answer = shared.store.change(owned).enter_early(&id, enter, early).await;
            entered(&shared, &id, readable, (ticket, from), answer)
        });
    }

    /// Enters a message that the agent gets when it is durable.
    fn enter_durably(&mut self, ticket: Ticket, from: Option<AttachmentId>, enter: Enter<Body>) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        let readable = self.session.record().about.kind == Kind::Agent;
        self.client_lane.join(async move {
            let answer = shared.store.change(owned).enter(&id, enter).await;
            entered(&shared, &id, readable, (ticket, from), answer)
        });
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
                Ok(answer) => {
                    shared.watches.stir(&id);
                    Done::Happened(Input::Appended(answer))
                }
                Err(unavailable) => Done::Failed(unavailable),
            }
        };
        self.agent_lane.push(append.instrument(span));
    }

    /// Ends the session because a client wants it: it stays connected, everybody else is closed.
    pub(super) fn end(&mut self, by: AttachmentId, reply: Reply<(), EndError>) -> Done {
        let only_by = self.session.generation_of(by);
        if only_by.is_none() {
            let (named, current) = (Generation::ZERO, self.session.record().generation);
            let replaced = EndRefused::Stale(Stale { named, current });
            let refused = if self.session.is_over() { EndRefused::Already } else { replaced };
            let _ = reply.send(Err(Failure::Refused(refused))); // whoever asked may have gone
            return Done::Nothing;
        }
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        self.client_lane.push(async move {
            let now = shared.clock.now();
            let remember_for = shared.settings.remember_for();
            let ending = Ending::Closed;
            let only_parked = None;
            let end = End { ending, only_parked, only_by, only_due: false, remember_for, now };
            let answer = shared.store.change(owned).end(&id, end).await;
            let done = match &answer {
                Ok(record) => {
                    shared.happened(Lifecycle::Closed, record);
                    shared.deadline_set(now + remember_for);
                    shared.watches.stir(&id);
                    Done::Happened(Input::Ended { by: Some(by) })
                }
                Err(Failure::Refused(_) | Failure::NotFound) => Done::Nothing,
                Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable.clone()),
            };
            let _ = reply.send(answer.map(drop));
            done
        });
        Done::Nothing
    }

    /// The work is done and nobody is there: the policy has its say, unless the hook has had its own.
    fn work_done(&mut self, verdict: Verdict) {
        let (shared, id, owned) = (Arc::clone(&self.shared), self.id.clone(), self.owned);
        let generation = self.session.record().generation;
        self.client_lane.push(async move {
            match shared.hook_decides(&id, generation).await {
                Ok(false) => {}
                Ok(true) => return Done::Nothing,
                Err(unavailable) => return Done::Failed(unavailable),
            }
            match verdict {
                Verdict::KeepUntil(until) => {
                    let answer =
                        shared.store.change(owned).keep(&id, Keep { generation, until }).await;
                    shared.deadline_set(until);
                    quietly(answer)
                }
                Verdict::End => {
                    let end = End {
                        ending: Ending::CleanedUp,
                        only_parked: Some(generation),
                        only_by: None,
                        only_due: false,
                        remember_for: shared.settings.remember_for(),
                        now: shared.clock.now(),
                    };
                    end_quietly(owned, &shared, &id, end).await
                }
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

    /// Tells a client something. One that lets things pile up is cut off.
    fn tell(&mut self, attachment: AttachmentId, tell: Tell) {
        if let Tell::Gap(Gap::Evicted { lost: Some(lost), .. }) = &tell {
            self.shared.metrics.lost_events.inc_by(lost.count());
        }
        let Some(outlet) = self.outlets.get(&attachment) else { return };
        match outlet.put(Told::Tell(tell)) {
            Ok(()) => {}
            Err(NotPut::Closed) => {} // see `notice_gone`
            Err(NotPut::Full) => self.handle(Input::Left { attachment }),
        }
    }

    pub(super) fn leave(&mut self, attachment: AttachmentId, reason: LeaveReason) {
        if let Some(outlet) = self.outlets.remove(&attachment) {
            // If there is no room for the reason, the closed channel says enough.
            let _ = outlet.put(Told::Leave(reason));
        }
    }
}

/// What the store says of a message, for whoever sent it and whoever reads.
fn entered(
    shared: &Shared,
    id: &SessionId,
    readable: bool,
    (ticket, from): (Ticket, Option<AttachmentId>),
    answer: Result<Entered, Failure<EnterRefused>>,
) -> Done {
    match flatten(answer, EnterRefused::Ended(Ending::Closed)) {
        Ok(answer) => {
            if readable && answer.is_ok() {
                shared.watches.stir(id);
            }
            Done::Happened(Input::EnterAnswered { ticket, from, answer })
        }
        Err(unavailable) => Done::Failed(unavailable),
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

/// For changes whose refusal means that somebody else was faster.
fn quietly<R>(answer: Result<(), Failure<R>>) -> Done {
    match answer {
        Ok(()) | Err(Failure::Refused(_) | Failure::NotFound) => Done::Nothing,
        Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable),
    }
}

/// Ends a session whose driver this is.
async fn end_quietly(owned: Owned, shared: &Shared, id: &SessionId, end: End) -> Done {
    let (forget_at, what) = (end.now + end.remember_for, Lifecycle::of(&end.ending));
    match shared.store.change(owned).end(id, end).await {
        Ok(record) => {
            shared.happened(what, &record);
            shared.deadline_set(forget_at);
            Done::Happened(Input::Ended { by: None })
        }
        Err(Failure::Refused(_) | Failure::NotFound) => Done::Nothing,
        Err(Failure::Unavailable(unavailable)) => Done::Failed(unavailable),
    }
}
