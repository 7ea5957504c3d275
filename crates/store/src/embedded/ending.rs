//! How the writer ends: in order, or because nothing can be made durable any more.

use super::cleanup;
use super::error::Fault;
use super::writer::Writer;
use crate::contract::Unavailable;

impl Writer {
    /// Nothing is acknowledged from here on. What readers see stays as of the last commit.
    pub(super) fn fail(self, fault: &Fault) {
        let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
        self.shared.fail(&why);
        let under_way = self.under_way.into_iter().flat_map(|aftermath| aftermath.answers);
        for answer in under_way.chain(self.batch.aftermath.answers) {
            answer.give(Err(why.clone()));
        }
    }

    /// Writes what was put off, and leaves a single file behind.
    pub(super) fn close(mut self) {
        let outcome = self.write_all_that_was_put_off();
        if let Err(fault) = &outcome {
            let why = Unavailable(fault.sentence(&self.shared.files.directory).into());
            self.shared.fail(&why);
        }
        let Self { shared, committer, lock, closing, .. } = self;
        let closed = shared.close();
        drop(committer);
        drop(lock);
        for reply in closing {
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(_) => Err(closed.clone()),
            };
            let _ = reply.send(answer);
        }
    }

    fn write_all_that_was_put_off(&mut self) -> Result<(), Fault> {
        while !self.unwritten.is_empty() {
            self.finish_batch(true)?;
        }
        for slot in self.tables.by_key.values() {
            let session = &mut *slot.lock_packed();
            if session.unsaved {
                session.unpack();
                cleanup::note(session, &mut self.batch);
            }
        }
        self.finish_batch(false)?;
        self.committer.database().finish()
    }
}
