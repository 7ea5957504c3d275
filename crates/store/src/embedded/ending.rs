//! How the writer ends: in order, or because nothing can be made durable any more.

use std::sync::Arc;

use super::batch::Aftermath;
use super::cleanup;
use super::desk::Papers;
use super::error::Fault;
use super::waiting::Sleepers;
use super::writer::Writer;
use crate::changes::Announcement;
use crate::contract::Unavailable;

impl Writer {
    /// Nothing is acknowledged from here on. What readers see stays as of the last commit.
    pub(super) fn fail(self, fault: &Fault) {
        let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
        self.shared.fail(&why);
        let batch = std::mem::take(&mut self.desk.lock().batch.aftermath);
        self.sleepers.into_iter().for_each(Sleepers::wake);
        self.under_way.into_iter().for_each(|aftermath| refuse(aftermath, &why));
        refuse(batch, &why);
    }

    /// Writes what was put off, and leaves a single file behind.
    pub(super) fn close(mut self) {
        let outcome = self.write_all_that_was_put_off();
        if let Err(fault) = &outcome {
            let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
            self.shared.fail(&why);
        }
        let Self { shared, desk, database, lock, sleepers, .. } = self;
        sleepers.into_iter().for_each(Sleepers::wake);
        let closed = shared.close();
        drop(database);
        drop(lock);
        let closing = std::mem::take(&mut desk.lock().closing);
        for reply in closing {
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(_) => Err(closed.clone()),
            };
            let _ = reply.send(answer);
        }
    }

    fn write_all_that_was_put_off(&mut self) -> Result<(), Fault> {
        let desk = Arc::clone(&self.desk);
        while !desk.take()?.unwritten.is_empty() {
            self.finish_batch(true)?;
        }
        desk.take()?.note_all_that_is_unsaved();
        self.finish_batch(false)?;
        self.database.finish()
    }
}

impl Papers {
    fn note_all_that_is_unsaved(&mut self) {
        for slot in self.tables.by_key.values() {
            let session = &mut *slot.lock_packed();
            if session.unsaved {
                session.unpack();
                cleanup::note(session, &mut self.batch);
            }
        }
    }
}

fn refuse(aftermath: Aftermath, why: &Unavailable) {
    for answer in aftermath.answers {
        answer.give(Err(why.clone()));
    }
    aftermath.waiting.end(Err(why.clone()), Announcement::default()).wake();
}
