//! The readers of connections. Between a commit and a look at it, and between a look and its answer, anything
//! else may happen.

use rejoin_core::reader::{Reader, ReaderOutput};
use rejoin_core::state::{Attached, Detach, Enter, Entered};

use super::*;

/// The reader of a connection, and what is on its way to it.
pub(super) struct ReaderEnd {
    reader: Reader,
    session: SessionId,
    /// The session has changed, and the reader has not been told.
    changed: bool,
    /// What it has asked, in order.
    questions: VecDeque<ReaderOutput>,
    /// What the disk has answered, as of then.
    looks: VecDeque<ReaderInput>,
    /// Messages that were answered, and the client has not been told.
    answers: VecDeque<(MessageId, Result<Entered, EnterRefused>)>,
}

impl Server {
    /// The disk has answered an attach.
    pub(super) fn reader_attached(
        &mut self,
        attachment: AttachmentId,
        answer: Result<Attached, AttachRefused>,
        around: &mut Around<'_>,
    ) {
        let connection = self.connection_of(attachment);
        match (answer, connection) {
            (Err(_), None) => {}
            (Err(refused), Some(connection)) => {
                if let Some(end) = self.connections.get_mut(&connection) {
                    (end.session, end.attachment) = (None, None);
                }
                self.tell_refused(connection, &refused);
            }
            // It left before the disk answered.
            (Ok(attached), None) => {
                detach(&attached.record, Some(attached.record.generation), around);
            }
            (Ok(attached), Some(connection)) => {
                let session = attached.record.id().clone();
                let Some(end) = self.connections.get_mut(&connection) else { return };
                let asked = end.asked.clone();
                let reader = Reader::attached(attached, asked, settings(), around.now);
                end.reader = Some(ReaderEnd {
                    reader,
                    session,
                    // What was committed since the attach was is not missed.
                    changed: true,
                    questions: VecDeque::new(),
                    looks: VecDeque::new(),
                    answers: VecDeque::new(),
                });
                self.carry_out_reader(connection, around);
            }
        }
    }

    /// A commit has changed a session.
    pub(crate) fn session_changed(&mut self, id: &SessionId) {
        let readers = self.connections.values_mut().filter_map(|end| end.reader.as_mut());
        readers.filter(|end| end.session == *id).for_each(|end| end.changed = true);
    }

    /// One of the things that are on their way to a reader arrives; says whether there was one.
    pub(crate) fn reader_moves(&mut self, connection: u64, around: &mut Around<'_>) -> bool {
        let Some(end) = self.connections.get_mut(&connection) else { return false };
        let Some(ends) = end.reader.as_mut() else { return false };
        let ways = [
            !ends.questions.is_empty(),
            !ends.looks.is_empty(),
            !ends.answers.is_empty(),
            ends.changed,
        ];
        let open: Vec<usize> = (0..4).filter(|way| ways[*way]).collect();
        if open.is_empty() {
            return false;
        }
        match open[around.random.below(open.len())] {
            0 => self.answer_question(connection, around),
            1 => {
                if let Some(look) = ends.looks.pop_front() {
                    self.feed_reader(connection, look, around);
                }
            }
            2 => self.tell_answer(connection, around),
            _ => {
                ends.changed = false;
                self.feed_reader(connection, ReaderInput::Changed, around);
            }
        }
        true
    }

    fn answer_question(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(ends) = self.reader_end(connection) else { return };
        let id = &ends.session;
        let input = match ends.questions.pop_front() {
            Some(ReaderOutput::Read { after }) => {
                ReaderInput::Page { after, page: around.disk.read(id, after) }
            }
            Some(_) => {
                let record = around.disk.sessions.get(id).map(|session| session.record());
                ReaderInput::Looked(record.map(Box::new))
            }
            None => return,
        };
        ends.looks.push_back(input);
    }

    /// Everything has come to rest: nobody is attached who was superseded, or whose session is over.
    pub(crate) fn check_readers(&self, disk: &Disk) {
        let readers = self.connections.values().filter_map(|end| end.reader.as_ref());
        for ReaderEnd { reader, session, .. } in readers {
            let Some(session) = disk.sessions.get(session) else {
                panic!("P5: a client is attached to a session that is forgotten")
            };
            let (record, mine) = (session.record(), reader.generation());
            assert!(record.is_active(), "P5: a client is attached to a session that is over");
            assert_eq!(mine, Some(record.generation), "P5: a client that was superseded stays");
        }
    }

    /// The client hears of a message first, its reader then.
    fn tell_answer(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(ends) = self.reader_end(connection) else { return };
        let Some((message_id, result)) = ends.answers.pop_front() else { return };
        let in_seq = result.as_ref().ok().map(|entered| entered.in_seq);
        if let Some(end) = self.connections.get_mut(&connection) {
            end.entered_unsaid.retain(|word| word != message_id.as_str());
        }
        self.say_entered(connection, message_id, result);
        self.feed_reader(connection, ReaderInput::Answered(in_seq), around);
    }

    fn reader_end(&mut self, connection: u64) -> Option<&mut ReaderEnd> {
        self.connections.get_mut(&connection)?.reader.as_mut()
    }

    pub(super) fn feed_reader(
        &mut self,
        connection: u64,
        input: ReaderInput,
        around: &mut Around<'_>,
    ) {
        if let Some(ends) = self.reader_end(connection) {
            ends.reader.handle(input, around.now);
            self.carry_out_reader(connection, around);
        }
    }

    fn carry_out_reader(&mut self, connection: u64, around: &mut Around<'_>) {
        loop {
            let Some(ends) = self.reader_end(connection) else { return };
            let (id, Some(output)) = (ends.session.clone(), ends.reader.poll_output()) else {
                return;
            };
            match output {
                ReaderOutput::Read { .. } | ReaderOutput::Look => ends.questions.push_back(output),
                ReaderOutput::Ack(ack) => around.disk.ask(&id, Write::Ack(ack)),
                ReaderOutput::Tell(tell) => self.tell_to(connection, &id, tell, around),
                ReaderOutput::HeartbeatMissed => {}
                ReaderOutput::Leave(reason) => self.reader_leaves(connection, reason, around),
            }
        }
    }

    fn reader_leaves(&mut self, connection: u64, reason: LeaveReason, around: &mut Around<'_>) {
        if reason == LeaveReason::Closed(CloseCode::HeartbeatLost) {
            self.reader_gone(connection, around);
        }
        if let Some(end) = self.connections.get_mut(&connection) {
            end.reader = None;
        }
        self.leave_connection(connection, reason);
    }

    /// A client has gone: the disk learns it, whatever its reader was doing.
    pub(super) fn reader_gone(&mut self, connection: u64, around: &mut Around<'_>) {
        let Some(end) = self.connections.get_mut(&connection) else { return };
        if let Some(ends) = end.reader.take().filter(|ends| !ends.reader.is_over()) {
            detach(ends.reader.record(), ends.reader.generation(), around);
        }
    }

    pub(super) fn post(
        &mut self,
        connection: u64,
        kind: EntryKind,
        message_id: MessageId,
        content: Body,
        around: &mut Around<'_>,
    ) {
        let Some(ends) = self.reader_end(connection) else {
            return self.refuse(connection, ErrorCode::SessionNotOwned);
        };
        let (id, generation) = (ends.session.clone(), ends.reader.generation());
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let digest = Some(MessageDigest::of(message_id.as_str(), &content));
        let enter = Box::new(Enter {
            generation,
            kind,
            digest,
            size: u32::try_from(content.len()).unwrap_or(u32::MAX),
            body: content,
            max_waiting_bytes: settings().max_waiting_bytes,
            keep_for: settings().lifetime.session_ttl,
            now: around.now,
        });
        self.posted.insert(ticket, (connection, message_id));
        self.feed_reader(connection, ReaderInput::Posted, around);
        around.disk.ask(&id, Write::Enter { ticket, enter });
        if around.random.one_in(2)
            && let Some(entry) = around.disk.foresee(&id)
        {
            self.feed(&id, WorkerInput::Entering(entry), around);
        }
    }

    /// The disk has answered a message; says whether it was of a reader's client.
    pub(super) fn post_answered(
        &mut self,
        ticket: Ticket,
        answer: &Result<Entered, EnterRefused>,
        id: &SessionId,
        around: &mut Around<'_>,
    ) {
        let Some((connection, message_id)) = self.posted.remove(&ticket) else { return };
        if let Some(session) = around.disk.sessions.get(id)
            && session.record().is_active()
        {
            self.live(&session.record());
        }
        let Some(end) = self.connections.get_mut(&connection) else { return };
        let Some(ends) = end.reader.as_mut().filter(|ends| ends.session == *id) else { return };
        if answer.as_ref().is_ok_and(|entered| !entered.duplicate) {
            end.entered_unsaid.push(message_id.as_str().to_owned());
        }
        ends.answers.push_back((message_id, answer.clone()));
    }
}

fn detach(record: &Record, generation: Option<rejoin_core::Generation>, around: &mut Around<'_>) {
    let (Some(generation), now) = (generation, around.now) else { return };
    let detach = Detach { generation, lifetime: settings().lifetime, now };
    around.disk.ask(record.id(), Write::Detach(detach));
}
