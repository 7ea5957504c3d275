"""Which names events may have. The server drops lines under any other name, so agents are told at once."""

from __future__ import annotations

import re

#: Printable ASCII without blank, quotation mark and backslash.
_NAME = re.compile(r"[!#-\[\]-~]{1,128}")

#: Names that only the server and clients use.
_OF_OTHERS = ("system.", "session.", "user.")
_RESERVED = {
    "agent.session_created",
    "agent.session_ended",
    "agent.state_exported",
    "agent.state_restored",
    "agent.error",
    "error.recovery_failed",
}


def check_event_name(name: str) -> None:
    """Raises `ValueError` for a name that the server would not take."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"an event's name is 1 to 128 printable ASCII characters, not {name!r}")
    if name.startswith(_OF_OTHERS) or name in _RESERVED:
        raise ValueError(f"the event name {name!r} is reserved for the server and clients")
