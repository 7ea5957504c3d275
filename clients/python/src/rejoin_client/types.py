"""What the machine says: outputs to carry out, statuses, gaps, and what to keep between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeGuard

#: One frame of the protocol, as parsed JSON.
Frame = Mapping[str, Any]


def is_object(value: object) -> TypeGuard[Frame]:
    """Whether a JSON value is an object."""
    return isinstance(value, Mapping)


How = Literal["created", "resumed", "restored"]
StopReason = Literal["ended", "superseded", "closed", "refused", "lost", "left"]
GivenUpReason = Literal["refused", "not_sent", "outcome_unknown", "outbox_full"]


@dataclass(frozen=True)
class Range:
    """Events `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class Gap:
    """Events that the application did not get and will not get.

    With reason `position_unknown` the server can't say which, and `missing` is None. `lost` is the part that the
    agent's state, which follows, does not make up for.
    """

    reason: Literal["evicted", "position_unknown"]
    missing: Range | None = None
    lost: Range | None = None


class SavedPosition(TypedDict):
    """Everything up to and including `seq` of this epoch was delivered."""

    epoch: str
    seq: int


class SavedSnapshot(TypedDict):
    """A sealed state of the agent, as of event `seq`."""

    signed_state: str
    seq: int


class Saved(TypedDict):
    """What a client keeps between runs. It holds credentials."""

    session_id: str | None
    position: SavedPosition | None
    token: str | None
    snapshot: SavedSnapshot | None


def nothing_saved() -> Saved:
    """What a client starts with."""
    return {"session_id": None, "position": None, "token": None, "snapshot": None}


# --- Statuses -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connecting:
    """A connection is being opened."""


@dataclass(frozen=True)
class Connected:
    """Attached to a session."""

    session_id: str
    how: How


@dataclass(frozen=True)
class ConnectionLost:
    """The connection broke; another one follows."""


@dataclass(frozen=True)
class Reconnecting:
    """Waiting before the next attempt."""

    attempt: int
    delay_ms: int


@dataclass(frozen=True)
class Restoring:
    """The session is gone; a new one is being made from the saved state."""


@dataclass(frozen=True)
class Expired:
    """The session is gone and can't be restored."""

    code: str


@dataclass(frozen=True)
class Stopped:
    """The end: the client does not try again."""

    reason: StopReason
    code: str | int | None = None


Status = Connecting | Connected | ConnectionLost | Reconnecting | Restoring | Expired | Stopped


# --- Outputs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connect:
    """Open a socket."""


@dataclass(frozen=True)
class Close:
    """Drop the socket without waiting for the server; `closed` follows."""


@dataclass(frozen=True)
class Send:
    """Write a frame."""

    frame: Frame


@dataclass(frozen=True)
class Deliver:
    """Hand an event to the application."""

    frame: Frame


@dataclass(frozen=True)
class TellGap:
    """Tell the application that events are gone."""

    gap: Gap


@dataclass(frozen=True)
class TellState:
    """Hand the agent's state to the application."""

    frame: Frame
    fills_gap: bool


@dataclass(frozen=True)
class Accepted:
    """A message is in the in log, once."""

    message_id: str
    in_seq: int


@dataclass(frozen=True)
class GivenUp:
    """A message will not be sent again."""

    message_id: str
    reason: GivenUpReason
    code: str | None = None


@dataclass(frozen=True)
class Refused:
    """The server refused something that is not a message."""

    code: str
    message: str


@dataclass(frozen=True)
class TellStatus:
    """Tell the application how the session is doing."""

    status: Status


@dataclass(frozen=True)
class CaughtUp:
    """Everything that was missed has been delivered."""


@dataclass(frozen=True)
class Draining:
    """The server is about to go down."""


@dataclass(frozen=True)
class Save:
    """Keep this."""

    saved: Saved


Output = (
    Connect
    | Close
    | Send
    | Deliver
    | TellGap
    | TellState
    | Accepted
    | GivenUp
    | Refused
    | TellStatus
    | CaughtUp
    | Draining
    | Save
)
