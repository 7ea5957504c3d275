//! What happened, told to the brain in its words.

use std::mem;

use rejoin_core::client::{Input, ServerEvent};
use tokio::time::Instant;

use super::link::{Link, LinkNews};
use super::wishes::Wish;
use super::{Command, Driver, Happened};
use crate::frames::{self, Frame};
use crate::socket::{Ending, Heard, OpenError, Socket};

impl Driver {
    pub(super) fn digest(&mut self, happened: Happened) {
        if !self.handover.has_room() {
            self.tell(Input::Heard); // as far as anybody can say who does not listen
        }
        match happened {
            Happened::Told(event) => self.on_told(event),
            Happened::Link(LinkNews::Opened(opened)) => self.on_opened(opened),
            Happened::Link(LinkNews::Heard(heard)) => self.on_heard(heard),
            Happened::Commanded(command) => self.on_command(command),
            Happened::Wished => self.on_wishes(),
            Happened::Handled(handled) => self.handover.handled(handled),
            Happened::Due => self.tell(Input::Tick),
            Happened::Quiet => self.show_alive(),
        }
    }

    fn tell(&mut self, input: Input) {
        self.brain.handle(input, self.clock.now());
    }

    fn on_told(&mut self, event: ServerEvent) {
        if let ServerEvent::Connected { heartbeat_interval, .. } = &event {
            self.heartbeat_interval = *heartbeat_interval;
        }
        self.tell(Input::Received(event));
    }

    fn on_opened(&mut self, opened: Result<Box<Socket>, OpenError>) {
        self.link = Link::None; // the attempt is over, whatever came of it, and must not be polled again
        match opened {
            Ok(socket) => {
                self.link = Link::Open(socket);
                self.connection += 1;
                self.shown_alive_at = Instant::now();
                self.tell(Input::Opened);
            }
            Err(OpenError::Failed(reason)) => {
                tracing::debug!(reason, "no connection could be had");
                self.tell(Input::ConnectFailed { random: random() });
            }
            Err(OpenError::Refused(ending)) => self.on_ended(ending),
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Text(text) => match frames::read(&text) {
                Ok(Frame::Told(events)) => self.inbox.extend(events),
                Ok(Frame::Authenticated | Frame::Unknown) => self.tell(Input::Heard),
                Err(reason) => {
                    tracing::warn!(%reason, bytes = text.len(), "a bad frame is ignored");
                    self.tell(Input::Heard);
                }
            },
            Heard::Binary => {
                tracing::warn!("a binary frame is ignored");
                self.tell(Input::Heard);
            }
            Heard::Life => self.tell(Input::Heard),
            Heard::Ended(ending) => self.on_ended(ending),
        }
    }

    pub(super) fn on_ended(&mut self, ending: Ending) {
        let Ending { code, retry_after } = ending;
        self.drop_link();
        self.tell(Input::Closed { code, retry_after, random: random() });
    }

    fn on_command(&mut self, command: Command) {
        let Command { message_id, content, receipt } = command;
        self.receipts.expect(message_id.clone(), receipt);
        self.tell(match content {
            Some(content) => Input::Send { message_id, content },
            None => Input::Cancel { message_id },
        });
    }

    fn on_wishes(&mut self) {
        for wish in self.wishes.take() {
            match wish {
                Wish::State => self.tell(Input::RequestState),
                Wish::End => self.tell(Input::End),
                Wish::Wake => self.tell(Input::Wake),
                Wish::Cut if self.link.is_open() => self.on_ended(Ending::default()),
                Wish::Cut => {}
            }
        }
    }

    /// What it has not told yet will be told again on the next one.
    fn drop_link(&mut self) {
        self.inbox.clear();
        if let Link::Open(socket) = mem::replace(&mut self.link, Link::None) {
            socket.drop_now();
        }
    }
}

/// Spreads clients out, and nothing more: without the system's randomness the clock will do.
fn random() -> u32 {
    getrandom::u32().unwrap_or_else(|_| {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.subsec_nanos().wrapping_mul(0x9E37_79B9)
    })
}
