//! Makes commits: small ones on the writer's own thread, large ones on another, so that the writer
//! can apply the next requests in the meantime.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use std::{io, mem};

use super::commit::{Commit, Database};
use super::error::Fault;
use super::shared::Shared;

/// The database, and the thread that works on it. One commit at a time is under way.
#[derive(Debug)]
pub(super) struct Committer {
    database: Arc<Mutex<Database>>,
    /// Nothing once the thread has been told to end.
    commits: Option<Sender<Commit>>,
    outcomes: Receiver<Result<Commit, Fault>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread.
    pub(super) fn start(database: Database, shared: &Arc<Shared>) -> io::Result<Self> {
        let database = Arc::new(Mutex::new(database));
        let (commits, to_commit) = mpsc::channel::<Commit>();
        let (committed, outcomes) = mpsc::channel();
        let (worked_on, shared) = (Arc::clone(&database), Arc::clone(shared));
        let thread = thread::Builder::new().name("rejoin-commit".into()).spawn(move || {
            for mut commit in to_commit {
                let mut database = lock(&worked_on);
                let (started, requests) = (Instant::now(), commit.requests);
                let outcome = database.make(&mut commit).map(|()| commit);
                shared.measurements.committed(started.elapsed(), requests);
                if committed.send(outcome).is_err() {
                    return;
                }
                shared.queue.nudge();
                if let Err(fault) = database.checkpoint_if_due() {
                    let _ = committed.send(Err(fault));
                    return;
                }
            }
        })?;
        Ok(Self { database, commits: Some(commits), outcomes, thread: Some(thread) })
    }

    /// The database, while no commit is under way.
    pub(super) fn database(&self) -> MutexGuard<'_, Database> {
        lock(&self.database)
    }

    /// Begins a commit on the other thread.
    pub(super) fn begin(&self, commit: Commit) -> Result<(), Fault> {
        let begun = self.commits.as_ref().map(|commits| commits.send(commit).is_ok());
        match begun {
            Some(true) => Ok(()),
            // The thread has ended, and says why.
            Some(false) | None => self.outcome(true).map(drop),
        }
    }

    /// How the commit that is under way went, if it is done; with `wait`, in any case.
    pub(super) fn outcome(&self, wait: bool) -> Result<Option<Commit>, Fault> {
        if wait {
            return self.outcomes.recv().map_err(|_| Fault::NoCommitter)?.map(Some);
        }
        match self.outcomes.try_recv() {
            Ok(outcome) => outcome.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Fault::NoCommitter),
        }
    }
}

impl Drop for Committer {
    /// Waits for the commit that is under way.
    fn drop(&mut self) {
        drop(mem::take(&mut self.commits));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(database: &Mutex<Database>) -> MutexGuard<'_, Database> {
    // After a panic nothing is committed any more; the connection's own drop rolls back.
    database.lock().unwrap_or_else(PoisonError::into_inner)
}
