"""The client's brain: what to send, what to ignore and when to wait, without any IO.

A :class:`Machine` is told what happened and says what to do. Its driver owns the socket, the clock, the randomness
and the storage, and repeats: carry out every output of :meth:`Machine.take_outputs` in order; wait for the first of
the socket, the application and :meth:`Machine.next_deadline`; call the method for what happened.

There is one socket at a time. Each :class:`~.types.Connect` is answered by one ``opened`` or ``connect_failed``; each
socket that was opened ends with one ``closed``, also when :class:`~.types.Close` asked for it. ``Stopped`` is the last
status. The Rust and JavaScript clients decide the same: all pass the cases in ``conformance/``.
"""

from __future__ import annotations

from typing import Any

from . import frames as told_as
from .asking import Asking
from .base import InAsking, InAttached, InConnecting, InWaiting, MachineOptions
from .codes import Recovery, is_about_state, outcome_is_unknown, recovery
from .delivery import Ack, Counts, Verdict
from .outbox import Sent
from .types import Accepted, CaughtUp, Deliver, Gap, GivenUp, Output, Refused, Saved, TellGap, TellState


class Machine(Asking):
    """The client's side of one session, and of those that follow it if it is lost."""

    def __init__(self, options: MachineOptions | None = None, saved: Saved | None = None) -> None:
        """A client that goes on from what was saved, or begins. It wants a socket at once."""
        super().__init__(options, saved)
        self._connect()

    # --- What happens -----------------------------------------------------------------------------

    def opened(self, now: int) -> None:
        """The socket is open, and authenticated where that is done by frame."""
        if isinstance(self._phase, InConnecting):
            self._heard_at = now
            self._ask(now)
        self._do_what_is_due(now)

    def connect_failed(self, random: int, now: int) -> None:
        """No socket could be had. `random` is 32 random bits."""
        if isinstance(self._phase, InConnecting):
            self._wait(None, random, now)
        self._do_what_is_due(now)

    def closed(self, code: int | None, retry_after: int | None, random: int, now: int) -> None:
        """The socket is gone; without a code if no close frame came."""
        self._on_closed(code, retry_after, random, now)
        self._do_what_is_due(now)

    def frame(self, frame: object, now: int) -> None:
        """A frame came. Whatever is due is done after each thing it says: a batch is acked like single events."""
        self.heard(now)
        for told in told_as.read(frame):
            if isinstance(self._phase, InAsking):
                self._on_answer(self._phase, told, now)
            elif isinstance(self._phase, InAttached):
                self._on_attached(told, now)
            self._do_what_is_due(now)
        self._do_what_is_due(now)

    def heard(self, now: int) -> None:
        """The server was heard of: a ping."""
        if isinstance(self._phase, (InAsking, InAttached)):
            self._heard_at = now

    def tick(self, now: int) -> None:
        """Time has passed."""
        self._do_what_is_due(now)

    def wake(self, now: int) -> None:
        """The computer woke up or is online again: a wait is cut short, a silent connection is not trusted."""
        phase = self._phase
        if isinstance(phase, InWaiting):
            until = min(phase.until, max(phase.not_before, now))
            self._phase = InWaiting(until, phase.not_before)
        elif isinstance(phase, (InAsking, InAttached)) and 0 < self._heartbeat_interval < now - self._heard_at:
            self._abandon(None, at_once=True)
        self._do_what_is_due(now)

    def send(self, message_id: str, content: Any, now: int) -> None:
        """The application wants to tell the agent something."""
        self._post(message_id, False, content)
        self._do_what_is_due(now)

    def cancel(self, message_id: str, now: int) -> None:
        """The application wants the agent to stop what it is doing."""
        self._post(message_id, True, None)
        self._do_what_is_due(now)

    def request_state(self, now: int) -> None:
        """The application wants the agent's state: now, or as soon as there is a connection."""
        if not self._is_over():
            self._wants_state = True
            if isinstance(self._phase, InAttached):
                self._write("user.request_state")
        self._do_what_is_due(now)

    def end(self, now: int) -> None:
        """The application wants the session ended: now, or as soon as there is a connection."""
        if not self._is_over():
            self._wants_end = True
            self._give_up_all()
            if isinstance(self._phase, InAttached):
                self._write("user.end_session")
            elif self.session_id is None and not isinstance(self._phase, InAsking):
                self._stop("ended")
        self._do_what_is_due(now)

    # --- What to do -------------------------------------------------------------------------------

    def take_outputs(self) -> list[Output]:
        """Everything there is to do since this was last called."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def next_deadline(self) -> int | None:
        """When ``tick`` is due if nothing else happens before."""
        phase = self._phase
        if isinstance(phase, InWaiting):
            return phase.until
        if isinstance(phase, InAsking):
            return self._silence_ends()
        if isinstance(phase, InAttached):
            times = (self._silence_ends(), self._delivery.ack_due(), self._outbox.due())
            return min((time for time in times if time is not None), default=None)
        return None

    @property
    def counts(self) -> Counts:
        """What happened to the events so far."""
        return self._delivery.counts

    # --- While attached ---------------------------------------------------------------------------

    def _on_attached(self, told: told_as.Told, now: int) -> None:
        untold = self._delivery.untold(told.gap if isinstance(told, told_as.GapNotice) else None)
        if untold:
            self._on_gap(untold, now)
        if isinstance(told, told_as.AgentEvent):
            self._on_event(told, now)
        elif isinstance(told, told_as.GapNotice):
            self._on_gap(told.gap, now)
        elif isinstance(told, told_as.ReplayComplete):
            self._on_replay_complete()
        elif isinstance(told, told_as.StateExported):
            self._on_state(told)
        elif isinstance(told, told_as.Heartbeat):
            self._on_heartbeat(told)
        elif isinstance(told, told_as.MessageAccepted):
            if self._outbox.accepted(told.message_id):
                self._outputs.append(Accepted(told.message_id, told.in_seq))
        elif isinstance(told, told_as.Refusal):
            self._on_refused(told, now)
        else:
            self._on_any_time(told, now)

    def _on_event(self, told: told_as.AgentEvent, now: int) -> None:
        verdict = self._delivery.event(told.seq, now)
        if verdict is Verdict.TELL:
            self._outputs.append(Deliver(told.frame))
        elif verdict is Verdict.NEW_HOLE:
            self._acknowledge(self._delivery.ack(True))

    def _on_gap(self, gap: Gap, now: int) -> None:
        verdict = self._delivery.gap(gap, now)
        if verdict is Verdict.NEW_HOLE:
            self._acknowledge(self._delivery.ack(True))
        elif isinstance(verdict, Gap):
            self._outputs.append(TellGap(verdict))
            self._save()

    def _on_replay_complete(self) -> None:
        """Told once an attachment: events sent again because of a hole also end with this."""
        if self._catching_up:
            self._outputs.append(CaughtUp())
        self._catching_up = False

    def _on_state(self, told: told_as.StateExported) -> None:
        self._wants_state = False
        self._snapshot = {"signed_state": told.signed_state, "seq": told.seq}
        self._outputs.append(TellState(told.frame, self._delivery.state_fills_gap()))
        self._save()

    def _on_heartbeat(self, told: told_as.Heartbeat) -> None:
        if told.token is not None:
            self._token = told.token
            self._save()
        self._acknowledge(self._delivery.heartbeat(told.head))

    def _on_refused(self, refusal: told_as.Refusal, now: int) -> None:
        code, advice = refusal.code, recovery(refusal.code)
        if advice is Recovery.CREATE_NEW_SESSION and not is_about_state(code):
            self._outbox.disconnected()
            return self._lost("reconnect", code, now)
        if code == "SESSION_NOT_OWNED":  # attached as this client believes, not as the server does
            return self._abandon(refusal.retry_after)
        message_id = refusal.message_id or self._message_meant_by(code)
        if message_id is None:
            self._wants_state = False
            self._outputs.append(Refused(code, refusal.message))
        elif advice is not Recovery.RETRY_LATER:
            self._give_up(message_id, "refused", code)
        else:
            wait = self._backoff.step(self._outbox.holds) if refusal.retry_after is None else refusal.retry_after
            sent = Sent.UNANSWERED if outcome_is_unknown(code) else Sent.NO
            self._outbox.hold(message_id, now + wait, sent)

    def _message_meant_by(self, code: str) -> str | None:
        """The message that a refusal without a message id is about.

        The server answers in order. Of what else is sent while attached nothing can have the wrong shape or size,
        and sending a message again does no harm.
        """
        shape = code in ("INVALID_MESSAGE", "MESSAGE_TOO_LARGE", "ID_INVALID")
        if shape or recovery(code) is Recovery.RETRY_LATER:
            return self._outbox.oldest_on_its_way()
        return None

    def _acknowledge(self, ack: Ack) -> None:
        """Saved first: what is acked may be gone when this client comes back."""
        self._save()
        if isinstance(self._phase, InAttached):
            self._write(
                "user.ack",
                metadata={
                    "last_seq": ack.last_seq,
                    "received_count": ack.received_count,
                    "gap_detected": ack.gap_detected,
                },
            )

    def _post(self, message_id: str, is_cancel: bool, content: Any) -> None:
        if self._is_over():
            self._outputs.append(GivenUp(message_id, "not_sent"))
        elif not self._outbox.push(message_id, is_cancel, content):
            self._outputs.append(GivenUp(message_id, "outbox_full"))

    def _send_letters(self, now: int) -> None:
        while letter := self._outbox.next(now):
            if letter.is_cancel:
                self._write("user.cancel", message_id=letter.message_id)
            else:
                self._write("user.message", message_id=letter.message_id, content=letter.content)

    def _do_what_is_due(self, now: int) -> None:
        phase = self._phase
        if isinstance(phase, InWaiting):
            if phase.until <= now:
                self._connect()
        elif isinstance(phase, (InAsking, InAttached)):
            silence_ends = self._silence_ends()
            if silence_ends is not None and silence_ends <= now:
                self._abandon(None)
            elif isinstance(phase, InAttached):
                if self._delivery.is_ack_due(now):
                    self._acknowledge(self._delivery.ack(False))
                self._send_letters(now)
