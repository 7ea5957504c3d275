"""Frames of the server, parsed into what the machine understands.

Whatever a broken server sends ends here: a frame that makes no sense is read as nothing, never in part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .codes import known
from .limits import HEARTBEAT_INTERVAL, MAX_ATTEMPTS, MAX_RETRY_AFTER, MAX_SAFE_INTEGER
from .types import Frame, Gap, Range, is_object


@dataclass(frozen=True)
class Confirmation:
    """What both forms of confirmation say."""

    session_id: str
    epoch: str
    gap: Gap | None
    token: str | None


@dataclass(frozen=True)
class ServerHello:
    """The first frame of a connection."""

    backoff: tuple[int, ...]
    max_attempts: int
    heartbeat_interval: int


@dataclass(frozen=True)
class SessionCreated:
    """Attached to a new session, or to the old one."""

    confirmation: Confirmation
    resumed: bool
    replay_from: int


@dataclass(frozen=True)
class StateRestored:
    """Attached to a session made from the saved state."""

    confirmation: Confirmation


@dataclass(frozen=True)
class AgentEvent:
    """An event of the out log."""

    seq: int
    frame: Frame


@dataclass(frozen=True)
class GapNotice:
    """Events are gone."""

    gap: Gap


@dataclass(frozen=True)
class StateExported:
    """The agent's state, sealed and in clear."""

    signed_state: str
    seq: int
    frame: Frame


@dataclass(frozen=True)
class Heartbeat:
    """The server lives; `head` is the seq of its newest event."""

    head: int
    token: str | None


@dataclass(frozen=True)
class MessageAccepted:
    """A message is in the in log."""

    message_id: str
    in_seq: int


@dataclass(frozen=True)
class Refusal:
    """The server refused something."""

    code: str
    retry_after: int | None
    message_id: str | None
    message: str


@dataclass(frozen=True)
class Authenticated:
    """The server took the credential."""


@dataclass(frozen=True)
class ReplayComplete:
    """Everything up to the head at the time of attaching was sent."""


@dataclass(frozen=True)
class SupersededNotice:
    """Another connection has the session."""


@dataclass(frozen=True)
class DrainingNotice:
    """The server is about to go down."""


@dataclass(frozen=True)
class SessionEnded:
    """The session was ended."""


Told = (
    ServerHello
    | SessionCreated
    | StateRestored
    | AgentEvent
    | GapNotice
    | StateExported
    | Heartbeat
    | MessageAccepted
    | Refusal
    | Authenticated
    | ReplayComplete
    | SupersededNotice
    | DrainingNotice
    | SessionEnded
)


class _BadFrame(Exception):
    """The frame makes no sense."""


def read(frame: object) -> list[Told]:
    """What a frame says: several things if it is a batch, nothing if it makes no sense.

    Whatever has a `seq` is an event of the out log, whatever its name.
    """
    try:
        if not is_object(frame) or not isinstance(frame.get("event"), str):
            return []
        if frame.get("seq") is not None:
            return [_event(frame)]
        reader = _READERS.get(frame["event"])
        return reader(frame, _object(frame.get("metadata"))) if reader else []
    except _BadFrame:
        return []


def retry_after_in(reason: str) -> int | None:
    """`retry_after_ms` in the reason of a close frame."""
    try:
        parsed = json.loads(reason)
    except ValueError:
        return None
    return _millis(_object(parsed).get("retry_after_ms"))


def _hello(frame: Frame, _metadata: Frame) -> list[Told]:
    content = _object(frame.get("content"))
    steps: Any = content.get("reconnect_backoff")
    backoff = tuple(step for step in map(_seconds, _list(steps)) if step is not None)
    attempts = content.get("max_reconnect_attempts")
    interval = _seconds(content.get("heartbeat_interval_seconds"))
    return [
        ServerHello(
            backoff=backoff,
            max_attempts=int(attempts) if attempts is not None and _is_integer(attempts) else MAX_ATTEMPTS,
            heartbeat_interval=HEARTBEAT_INTERVAL if interval is None else interval,
        )
    ]


def _heartbeat(_frame: Frame, metadata: Frame) -> list[Told]:
    head = metadata.get("seq")
    return [Heartbeat(0 if head is None else _number(head, 0), _text(metadata.get("reconnect_token")))]


def _accepted(frame: Frame, _metadata: Frame) -> list[Told]:
    content = _object(frame.get("content"))
    return [MessageAccepted(_need(_text(content.get("message_id"))), _number(content.get("in_seq"), 0))]


def _session_created(frame: Frame, metadata: Frame) -> list[Told]:
    session_id = frame.get("session_id")
    if session_id is None:
        session_id = _object(frame.get("content")).get("session_id")
    confirmation = _confirmation(session_id, metadata)
    return [SessionCreated(confirmation, metadata.get("resumed") is True, _number(metadata.get("replay_from"), 1))]


def _state_restored(_frame: Frame, metadata: Frame) -> list[Told]:
    return [StateRestored(_confirmation(metadata.get("new_session_id"), metadata))]


def _state_exported(frame: Frame, metadata: Frame) -> list[Told]:
    return [StateExported(_need(_text(metadata.get("signed_state"))), _number(metadata.get("seq"), 0), frame)]


def _refusal(frame: Frame, metadata: Frame) -> list[Told]:
    return [
        Refusal(
            code=known(metadata.get("error_code")),
            retry_after=_millis(metadata.get("retry_after_ms")),
            message_id=_text(metadata.get("message_id")),
            message=_text(frame.get("content")) or "",
        )
    ]


def _notice(frame: Frame, metadata: Frame) -> list[Told]:
    code = metadata.get("code")
    if code == "gap":
        return [GapNotice(_gap(metadata))]
    if code == "replay":
        return _batch(_object(frame.get("content")).get("events"))
    simple: dict[object, Told] = {
        "replay_complete": ReplayComplete(),
        "superseded": SupersededNotice(),
        "draining": DrainingNotice(),
    }
    return [simple[code]] if isinstance(code, str) and code in simple else []


_READERS: dict[str, Callable[[Frame, Frame], list[Told]]] = {
    "system.connected": _hello,
    "system.authenticated": lambda _frame, _metadata: [Authenticated()],
    "system.heartbeat": _heartbeat,
    "system.accepted": _accepted,
    "system.notice": _notice,
    "agent.session_created": _session_created,
    "agent.state_restored": _state_restored,
    "agent.state_exported": _state_exported,
    "agent.error": _refusal,
    "error.recovery_failed": _refusal,
    "agent.session_ended": lambda _frame, _metadata: [SessionEnded()],
}


def _event(frame: Frame) -> AgentEvent:
    return AgentEvent(_number(frame.get("seq"), 1), frame)


def _batch(events: Any) -> list[Told]:
    """Replayed events. One that makes no sense spoils the batch, or it would leave a hole that is noticed late."""
    if not isinstance(events, list):
        raise _BadFrame
    told: list[Told] = []
    for frame in _list(events):
        if not is_object(frame) or not isinstance(frame.get("event"), str):
            raise _BadFrame
        told.append(_event(frame))
    return told


def _confirmation(session_id: object, metadata: Frame) -> Confirmation:
    given = metadata.get("gap")
    gap = None if given is None else _gap(_object(given))
    if gap is not None and gap.missing is not None:
        # A confirmation does not say what the state makes up for: all of it counts as lost.
        gap = Gap(gap.reason, gap.missing, lost=gap.missing)
    return Confirmation(
        session_id=_need(_text(session_id)),
        epoch=_need(_text(metadata.get("epoch"))),
        gap=gap,
        token=_text(metadata.get("reconnect_token")),
    )


def _gap(ends: Frame) -> Gap:
    """Where the server can't say what is missing, both ends are null."""
    if ends.get("from") is None and ends.get("to") is None:
        return Gap("position_unknown")
    lost = ends.get("lost")
    return Gap("evicted", _range(ends), _range(_object(lost)) if lost else None)


def _range(ends: Frame) -> Range:
    first, last = _number(ends.get("from"), 1), _number(ends.get("to"), 1)
    if first > last:
        raise _BadFrame
    return Range(first, last)


def _is_integer(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value == int(value) and abs(value) <= MAX_SAFE_INTEGER


def _number(value: Any, least: int) -> int:
    if not _is_integer(value) or value < least:
        raise _BadFrame
    return int(value)


def _millis(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(min(value, MAX_RETRY_AFTER)) if math.isfinite(value) and value >= 0 else None


def _seconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return _millis(value * 1000)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _need(value: str | None) -> str:
    if value is None:
        raise _BadFrame
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _object(value: object) -> Frame:
    return value if is_object(value) else {}
