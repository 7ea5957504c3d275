"""Asking for a session on a new socket, and falling back when it is refused.

The session itself, then one made from the snapshot, then a new one. Each step only ever leads to a later one, so a
socket sees at most four requests.
"""

from __future__ import annotations

from typing import Any

from . import frames as told_as
from .base import Base, InAsking, InAttached, Request
from .codes import Recovery, is_about_token, outcome_is_unknown, recovery
from .limits import LATE_ASK, TOKEN_GRACE
from .types import Connected, Draining, Expired, How, Restoring


class Asking(Base):
    """What a client asks for, and what it does with the answer."""

    def _ask(self, now: int) -> None:
        """Asks for the best that can be had: the session, one made from the snapshot, a new one."""
        request: Request = "create"
        token: str | None = None
        if self.session_id is not None:
            request, token = "reconnect", self._token_to_show(now)
            self._send("user.reconnect", session_id=self.session_id, content=self._where(token))
        elif self._snapshot is not None:
            request = "restore"
            self._tell(Restoring())
            signed_state = self._snapshot["signed_state"]
            self._send("user.reconnect_with_state", signed_state=signed_state, content=self._where(None))
        else:
            self._send("user.create_session", content=dict(self.options.about))
        if self._asked:
            self._late_ask_until = now + LATE_ASK
        self._asked = True
        self._phase = InAsking(request, token is not None)

    def _where(self, token: str | None) -> dict[str, Any]:
        """The position. The replay is asked for in batches: one frame an event costs more than the event."""
        where: dict[str, Any] = {"last_seq": self._delivery.last_seq, "batch": True}
        if self._delivery.epoch is not None:
            where["epoch"] = self._delivery.epoch
        if token is not None:
            where["reconnect_token"] = token
        return where

    def _token_to_show(self, now: int) -> str | None:
        """The token, unless showing it again would look like a theft and revoke all tokens."""
        if self._token is None:
            return None
        if self._token_shown_at is None:
            self._token_shown_at = now
        elif now - self._token_shown_at >= TOKEN_GRACE:
            self._token = self._token_shown_at = None
            self._save()
        return self._token

    def _on_answer(self, asked: InAsking, told: told_as.Told, now: int) -> None:
        """Only a confirmation or a refusal is an answer; everything else is not for this client yet."""
        if isinstance(told, told_as.SessionCreated):
            self._on_session_created(told, now)
        elif isinstance(told, told_as.StateRestored):
            self._delivery.restored(told.confirmation.epoch, told.confirmation.gap, now)
            self._snapshot = None
            self._attach(told.confirmation, "restored")
        elif isinstance(told, told_as.Refusal):
            if told.message_id is None:
                self._on_request_refused(asked, told, now)
        else:
            self._on_any_time(told, now)

    def _on_session_created(self, told: told_as.SessionCreated, now: int) -> None:
        confirmation = told.confirmation
        if told.resumed:
            self._delivery.resumed(confirmation.epoch, told.replay_from, confirmation.gap, now)
            return self._attach(confirmation, "resumed")
        self._delivery.created(confirmation.epoch, told.replay_from)
        self._snapshot = None
        self._give_up_unanswered()
        self._attach(confirmation, "created")

    def _attach(self, confirmation: told_as.Confirmation, how: How) -> None:
        self._phase = InAttached(confirmation.session_id)
        self.session_id = confirmation.session_id
        self._token = confirmation.token
        self._token_shown_at = None
        self._asked = False
        self._catching_up = how != "created"
        self._backoff.reset()
        # Told before it is saved: a run that ends in between must be told again.
        self._tell(Connected(confirmation.session_id, how))
        self._save()
        if self._wants_end:
            self._write("user.end_session")
        elif self._wants_state:
            self._write("user.request_state")

    def _on_request_refused(self, asked: InAsking, refusal: told_as.Refusal, now: int) -> None:
        code = refusal.code
        self._asked = False
        if not outcome_is_unknown(code):
            self._token_shown_at = None
        advice = recovery(code)
        if advice is Recovery.AUTHENTICATE_AGAIN:
            if not asked.with_token or not is_about_token(code):
                return self._stop("refused", code)
            self._token = None
            self._save()
            return self._ask(now)
        if advice is not Recovery.RETRY_LATER and asked.request != "create":
            return self._lost(asked.request, code, now)
        if advice is Recovery.FIX_REQUEST or self._backoff.refused():
            return self._stop("refused", code)
        self._abandon(refusal.retry_after)

    def _lost(self, request: Request, code: str, now: int) -> None:
        """What was asked for, or was attached to, is gone: on to the next best."""
        if self._wants_end:
            return self._stop("ended")
        self.session_id = self._token = None
        if request == "restore":
            self._snapshot = None
        self._save()
        if self._snapshot is None:
            self._tell(Expired(code))
            if not self.options.create_when_lost:
                return self._stop("lost", code)
        self._ask(now)

    def _on_any_time(self, told: told_as.Told, now: int) -> None:
        """What means the same whether attached or not."""
        if isinstance(told, told_as.ServerHello):
            self._backoff.configure(told.backoff, told.max_attempts)
            self._heartbeat_interval = told.heartbeat_interval
        elif isinstance(told, told_as.SupersededNotice):
            self._on_superseded(now)
        elif isinstance(told, told_as.SessionEnded):
            self._stop("ended")
        elif isinstance(told, told_as.DrainingNotice):
            self._outputs.append(Draining())
