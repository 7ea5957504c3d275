"""What every part of the machine shares: its state, the life of its socket, and the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .backoff import Backoff
from .codes import MESSAGE_TOO_BIG, SESSION_ENDED, SUPERSEDED, means_stop
from .delivery import Delivery
from .limits import HEARTBEAT_INTERVAL, MAX_UNACCEPTED, MAX_UNACCEPTED_BYTES, SILENT_INTERVALS
from .outbox import Outbox
from .types import (
    Close,
    Connect,
    Connecting,
    ConnectionLost,
    Frame,
    GivenUp,
    GivenUpReason,
    Output,
    Reconnecting,
    Save,
    Saved,
    Send,
    Status,
    Stopped,
    StopReason,
    TellStatus,
    nothing_saved,
)

Request = Literal["reconnect", "restore", "create"]


@dataclass(frozen=True)
class MachineOptions:
    """What an application can set."""

    create_when_lost: bool = True
    """Create a new session when the old one is gone and can't be restored."""
    messages_in_flight: int = 1
    """Messages on their way at the same time; with 1 they reach the agent in order whatever happens."""
    max_unaccepted: int = MAX_UNACCEPTED
    """Messages kept for sending; beyond that they are given up at once."""
    max_unaccepted_bytes: int = MAX_UNACCEPTED_BYTES
    """Bytes of messages kept for sending; a larger single message is kept alone."""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """``content`` of ``user.create_session``: client_id, app_version, ..."""


@dataclass(frozen=True)
class InConnecting:
    pass


@dataclass(frozen=True)
class InAsking:
    request: Request
    with_token: bool


@dataclass(frozen=True)
class InAttached:
    session_id: str


@dataclass(frozen=True)
class InClosing:
    retry_after: int | None
    at_once: bool


@dataclass(frozen=True)
class InWaiting:
    until: int
    not_before: int


@dataclass(frozen=True)
class InStopped:
    pass


Phase = InConnecting | InAsking | InAttached | InClosing | InWaiting | InStopped


class Base:
    """The state of a client, and the life of its socket: opened, closed, waited for, given up."""

    def __init__(self, options: MachineOptions | None = None, saved: Saved | None = None) -> None:
        """A client that goes on from what was saved, or begins. It wants a socket at once."""
        self.options = options or MachineOptions()
        #: What was last given out to be kept.
        self.saved: Saved = saved or nothing_saved()
        #: The session to come back to; none before the first, and after one was lost.
        self.session_id = self.saved["session_id"]
        self._token = self.saved["token"]
        self._snapshot = self.saved["snapshot"]
        #: Whether the server was asked for the session and has not answered: perhaps by the run before.
        self._asked = self.session_id is not None
        #: When the token was first shown to a server that has not answered since.
        self._token_shown_at: int | None = None
        #: Until when a request on an abandoned socket may still reach the server, as if from another client.
        self._late_ask_until: int | None = None
        self._delivery = Delivery(self.saved["position"])
        options = self.options
        self._outbox = Outbox(options.messages_in_flight, options.max_unaccepted, options.max_unaccepted_bytes)
        self._backoff = Backoff()
        self._heartbeat_interval = HEARTBEAT_INTERVAL
        self._heard_at = 0
        self._wants_state = False
        self._wants_end = False
        self._catching_up = False
        self._outputs: list[Output] = []
        self._phase: Phase = InConnecting()

    # --- The life of a socket ---------------------------------------------------------------------

    def _connect(self) -> None:
        self._phase = InConnecting()
        self._tell(Connecting())
        self._outputs.append(Connect())

    def _on_closed(self, code: int | None, retry_after: int | None, random: int, now: int) -> None:
        phase = self._phase
        if isinstance(phase, (InWaiting, InStopped)):
            return
        if isinstance(phase, (InAsking, InAttached)):
            self._give_up_what_is_too_big(phase, code)
        if isinstance(phase, InAttached):
            self._detached()
        closing = phase if isinstance(phase, InClosing) else InClosing(None, False)
        self._phase = InClosing(retry_after, closing.at_once)  # no socket is left to close
        if code == SUPERSEDED and self._is_late_ask(now):
            return self._wait(retry_after, random, now)
        if code is not None and means_stop(code):
            return self._stop_by_code(code)
        asked = _later(retry_after, closing.retry_after)
        if asked is None and closing.at_once:
            self._connect()
        else:
            self._wait(asked, random, now)

    def _give_up_what_is_too_big(self, phase: InAsking | InAttached, code: int | None) -> None:
        """Otherwise a frame over the limit would be sent, and end the connection, for ever."""
        if code != MESSAGE_TOO_BIG:
            return
        if isinstance(phase, InAsking) and phase.request == "restore":
            self._snapshot = None
            self._save()
        largest = self._outbox.largest_on_its_way()
        if largest is not None:
            self._give_up(largest, "refused", "MESSAGE_TOO_LARGE")

    def _wait(self, retry_after: int | None, random: int, now: int) -> None:
        """Waits before the next attempt. A session that is to be ended and never existed needs none."""
        if self._wants_end and self.session_id is None:
            return self._stop("ended")
        attempt, delay = self._backoff.next(retry_after, random)
        self._phase = InWaiting(now + delay, now + (retry_after or 0))
        self._tell(Reconnecting(attempt, delay))

    def _abandon(self, retry_after: int | None, at_once: bool = False) -> None:
        """Gives this socket up; another is tried when it is closed."""
        if isinstance(self._phase, InAttached):
            self._detached()
        self._phase = InClosing(retry_after, at_once)
        self._outputs.append(Close())

    def _detached(self) -> None:
        self._outbox.disconnected()
        self._save()
        self._tell(ConnectionLost())

    def _is_late_ask(self, now: int) -> bool:
        """Whether this client may have been superseded by itself.

        A request on a socket that was abandoned can reach the server after the request on the next socket. Nothing
        reads that connection, so stopping would leave the session to nothing. Believed once: if it is another
        client after all, that one stays.
        """
        until, self._late_ask_until = self._late_ask_until, None
        return until is not None and now <= until

    def _on_superseded(self, now: int) -> None:
        if self._is_late_ask(now):
            self._abandon(None)
        else:
            self._stop("superseded")

    def _stop_by_code(self, code: int) -> None:
        if code == SUPERSEDED:
            self._stop("superseded")
        elif code == SESSION_ENDED:
            self._stop("ended")
        else:
            self._stop("closed", code)

    def _stop(self, reason: StopReason, code: str | int | None = None) -> None:
        """The end. What was saved stays, unless the session was ended."""
        self._give_up_all()
        if reason == "ended":
            self._forget()
        else:
            self._save()
        if isinstance(self._phase, (InAsking, InAttached)):
            self._outputs.append(Close())
        self._phase = InStopped()
        self._tell(Stopped(reason, code))

    def _forget(self) -> None:
        self.session_id = self._token = self._snapshot = None
        self.saved = nothing_saved()
        self._outputs.append(Save(self.saved))

    def _silence_ends(self) -> int | None:
        interval = self._heartbeat_interval
        return self._heard_at + interval * SILENT_INTERVALS if interval > 0 else None

    # --- Messages ---------------------------------------------------------------------------------

    def _give_up_unanswered(self) -> None:
        """Messages that may have reached a session that is gone are not sent to another: they might act twice."""
        for message_id in self._outbox.take_unanswered():
            self._outputs.append(GivenUp(message_id, "outcome_unknown"))

    def _give_up_all(self) -> None:
        self._give_up_unanswered()
        for message_id in self._outbox.take_all():
            self._outputs.append(GivenUp(message_id, "not_sent"))

    def _give_up(self, message_id: str, reason: GivenUpReason, code: str) -> None:
        if self._outbox.remove(message_id):
            self._outputs.append(GivenUp(message_id, reason, code))

    # --- Helpers ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return isinstance(self._phase, InStopped) or self._wants_end

    def _write(self, event: str, **members: Any) -> None:
        """Sends a frame about the session this client is attached to."""
        assert isinstance(self._phase, InAttached)
        self._send(event, session_id=self._phase.session_id, **members)

    def _send(self, event: str, **members: Any) -> None:
        frame: Frame = {"event": event, **members}
        self._outputs.append(Send(frame))

    def _tell(self, status: Status) -> None:
        self._outputs.append(TellStatus(status))

    def _save(self) -> None:
        """Gives out what is worth keeping, if it has changed."""
        saved: Saved = {
            "session_id": self.session_id,
            "position": self._delivery.position(),
            "token": self._token,
            "snapshot": self._snapshot,
        }
        if saved != self.saved:
            self.saved = saved
            self._outputs.append(Save(saved))


def _later(a: int | None, b: int | None) -> int | None:
    return max((time for time in (a, b) if time is not None), default=None)
