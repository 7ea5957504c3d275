"""What an application gets from a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .types import Frame, Gap, is_object


@dataclass(frozen=True)
class Event:
    """An event of the agent."""

    name: str
    content: Any
    seq: int
    metadata: Mapping[str, Any]
    frame: Frame
    """The whole envelope as it came."""

    @property
    def replayed(self) -> bool:
        """Whether it was sent after a reconnect and not live."""
        return self.metadata.get("replayed") is True


@dataclass(frozen=True)
class AgentState:
    """The agent's state as of event `seq`."""

    state: Any
    seq: int
    signed_state: str
    fills_gap: bool
    """Whether it stands in for the gap that was told right before it."""


Incoming = Event | Gap | AgentState


def event_of(frame: Frame) -> Event:
    """An event of the out log, from its frame."""
    metadata = frame.get("metadata")
    return Event(
        name=frame["event"],
        content=frame.get("content"),
        seq=frame["seq"],
        metadata=metadata if is_object(metadata) else {},
        frame=frame,
    )


def state_of(frame: Frame, fills_gap: bool) -> AgentState:
    """A state, from the frame `agent.state_exported`."""
    metadata = frame["metadata"]
    return AgentState(metadata.get("session_state"), metadata["seq"], metadata["signed_state"], fills_gap)
