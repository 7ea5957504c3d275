//! What to ask for on a new socket, and what to fall back to when it is refused: the session itself,
//! then one that goes on from the snapshot, then a new one.
//!
//! Each step only ever leads to a later one, so a socket sees at most four requests.

use std::time::Duration;

use super::connection::Phase;
use super::{Client, ClientCommand, Joined, Secret, Status, StopReason};
use crate::codes::{ErrorCode, Recovery};
use crate::ids::SessionId;
use crate::limits;
use crate::position::{Epoch, Seq};
use crate::resume::Gap;
use crate::time::Timestamp;

/// What the server is asked for on a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The session from before.
    Reconnect {
        /// Whether a reconnect token was shown.
        with_token: bool,
    },
    /// One that goes on from the snapshot.
    Restore,
    /// A new one.
    Create,
}

/// A session as the server confirms it.
pub(super) struct SessionConfirmed {
    pub(super) session_id: SessionId,
    pub(super) epoch: Epoch,
    pub(super) gap: Option<Gap>,
    pub(super) token: Option<Secret>,
}

impl Client {
    /// Asks for the best that can be had with what is known.
    pub(super) fn ask(&mut self, now: Timestamp) {
        let (last_seq, epoch) = (self.delivery.last_seq(), self.delivery.epoch().cloned());
        let (request, command) = if let Some(session_id) = self.session_id.clone() {
            let token = self.token_to_show(now);
            let with_token = token.is_some();
            let command = ClientCommand::Reconnect { session_id, last_seq, epoch, token };
            (Request::Reconnect { with_token }, command)
        } else if let Some(snapshot) = &self.snapshot {
            let signed_state = snapshot.signed_state.clone();
            self.status(Status::Restoring);
            (Request::Restore, ClientCommand::RestoreState { signed_state, last_seq, epoch })
        } else {
            (Request::Create, ClientCommand::CreateSession)
        };
        if std::mem::replace(&mut self.asked, true) {
            self.late_ask_until = Some(now + limits::LATE_ASK);
        }
        self.phase = Phase::Asking(request);
        self.command(command);
    }

    /// The token, unless showing it would look like a theft: one that was shown before and not
    /// answered is taken for a lost reply only for a while, afterwards all tokens are revoked.
    fn token_to_show(&mut self, now: Timestamp) -> Option<Secret> {
        let shown = self.token_shown_at.filter(|_| self.token.is_some());
        if shown.is_some_and(|at| now.since(at) >= limits::TOKEN_GRACE) {
            self.token = None;
            self.token_shown_at = None;
            self.save();
        } else if self.token.is_some() {
            self.token_shown_at = Some(shown.unwrap_or(now));
        }
        self.token.clone()
    }

    /// What was asked for is refused.
    pub(super) fn on_request_refused(
        &mut self,
        request: Request,
        code: ErrorCode,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) {
        self.asked = false;
        if !may_have_used_token(code) {
            self.token_shown_at = None;
        }
        match (request, code.recovery()) {
            (Request::Reconnect { with_token: true }, Recovery::AuthenticateAgain)
                if is_about_token(code) =>
            {
                self.token = None;
                self.save();
                self.ask(now);
            }
            (
                Request::Reconnect { .. } | Request::Restore,
                Recovery::CreateNewSession | Recovery::ExportStateAgain | Recovery::FixRequest,
            ) => self.lost(request, code, now),
            (Request::Create, Recovery::FixRequest) | (_, Recovery::AuthenticateAgain) => {
                self.stop(StopReason::Refused { code });
            }
            (_, Recovery::RetryLater)
            | (Request::Create, Recovery::CreateNewSession | Recovery::ExportStateAgain) => {
                if self.backoff.refused() {
                    self.stop(StopReason::Refused { code });
                } else {
                    self.abandon(retry_after, false);
                }
            }
        }
    }

    /// What was asked for, or was attached to, is not there any more: on to the next best.
    pub(super) fn lost(&mut self, request: Request, code: ErrorCode, now: Timestamp) {
        if self.wants_end {
            return self.stop(StopReason::Ended);
        }
        self.session_id = None;
        self.token = None;
        if request == Request::Restore {
            self.snapshot = None;
        }
        self.save();
        if self.snapshot.is_none() {
            self.status(Status::Expired { code });
            if !self.options.create_when_lost {
                return self.stop(StopReason::Lost { code });
            }
        }
        self.ask(now);
    }

    /// Attached to a session that was there before, or to a new one.
    pub(super) fn on_session_created(
        &mut self,
        confirmed: SessionConfirmed,
        resumed: bool,
        replay_from: Seq,
        now: Timestamp,
    ) {
        if resumed {
            let (epoch, gap) = (confirmed.epoch.clone(), confirmed.gap);
            self.delivery.resumed(epoch, replay_from, gap, now);
            return self.attach(confirmed, Joined::Resumed);
        }
        self.delivery.created(confirmed.epoch.clone(), replay_from);
        self.snapshot = None;
        self.give_up_unanswered();
        self.attach(confirmed, Joined::Created);
    }

    /// Attached to a session that goes on from the snapshot, which has thereby done its work.
    pub(super) fn on_state_restored(&mut self, confirmed: SessionConfirmed, now: Timestamp) {
        self.delivery.restored(confirmed.epoch.clone(), confirmed.gap, now);
        self.snapshot = None;
        self.attach(confirmed, Joined::Restored);
    }

    fn attach(&mut self, confirmed: SessionConfirmed, how: Joined) {
        let SessionConfirmed { session_id, token, .. } = confirmed;
        self.phase = Phase::Attached;
        self.session_id = Some(session_id.clone());
        self.token = token;
        self.token_shown_at = None;
        self.asked = false;
        self.catching_up = how != Joined::Created;
        self.backoff.reset();
        // Told before it is saved: a run that ends in between must be told again.
        self.status(Status::Connected { session_id: session_id.clone(), how });
        self.save();
        if self.wants_end {
            self.command(ClientCommand::EndSession { session_id });
        } else if self.wants_state {
            self.command(ClientCommand::RequestState { session_id });
        }
    }
}

fn is_about_token(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::TokenInvalid | ErrorCode::TokenExpired | ErrorCode::TokenReused)
}

/// Whether the server may have used the token up all the same, as it does not know itself.
fn may_have_used_token(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::DatabaseUnavailable | ErrorCode::InternalError)
}
