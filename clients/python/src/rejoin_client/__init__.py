"""Connections drop; sessions should not.

A client for Rejoin that comes back by itself, :class:`Session`, and a helper to write agents, :func:`agent`.
"""

from .agent import Agent, Emit, Turn, Yielded, agent
from .base import MachineOptions
from .errors import SessionError
from .incoming import AgentState, Event, Incoming
from .keep import FileKeep, Keep, MemoryKeep
from .session import Session
from .types import (
    Accepted,
    Connected,
    Connecting,
    ConnectionLost,
    Expired,
    Gap,
    Range,
    Reconnecting,
    Restoring,
    Saved,
    Status,
    Stopped,
)

__all__ = [
    "Accepted",
    "Agent",
    "AgentState",
    "Connected",
    "Connecting",
    "ConnectionLost",
    "Emit",
    "Event",
    "Expired",
    "FileKeep",
    "Gap",
    "Incoming",
    "Keep",
    "MachineOptions",
    "MemoryKeep",
    "Range",
    "Reconnecting",
    "Restoring",
    "Saved",
    "Session",
    "SessionError",
    "Status",
    "Stopped",
    "Turn",
    "Yielded",
    "agent",
]
