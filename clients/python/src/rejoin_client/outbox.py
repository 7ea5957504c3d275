"""Messages of the application that the server has not answered.

They are sent again after every attachment, in order, under the same ids; the server enters each once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Sent(Enum):
    """What the server may know of a message."""

    NO = auto()
    """Nothing."""
    ON_ITS_WAY = auto()
    """It was written to the present connection."""
    UNANSWERED = auto()
    """It was written before, and may have arrived."""


@dataclass
class Letter:
    """A message to the agent, or a cancellation (which has no content)."""

    message_id: str
    is_cancel: bool
    content: Any
    size: int
    sent: Sent = Sent.NO
    doubtful: bool = False
    """Whether an earlier attempt may have arrived; only an acceptance settles that."""


class Outbox:
    """Keeps messages until they are answered, within bounds."""

    def __init__(self, in_flight: int, max_letters: int, max_bytes: int) -> None:
        self._in_flight = max(1, in_flight)
        self._max_letters = max_letters
        self._max_bytes = max_bytes
        self._letters: dict[str, Letter] = {}
        self._bytes = 0
        self._held_until: int | None = None
        #: How often in a row the server had no room.
        self.holds = 0

    def push(self, message_id: str, is_cancel: bool, content: Any) -> bool:
        """Keeps a message; one with an id that is kept already is the same. False if there is no room."""
        if message_id in self._letters:
            return True
        size = 0 if is_cancel else len(json.dumps(content, ensure_ascii=False).encode())
        too_large = bool(self._letters) and self._bytes + size > self._max_bytes
        if too_large or len(self._letters) >= self._max_letters:
            return False
        self._bytes += size
        self._letters[message_id] = Letter(message_id, is_cancel, content, size)
        return True

    def next(self, now: int) -> Letter | None:
        """The next message to write now."""
        if self._held_until is not None and now < self._held_until:
            return None
        self._held_until = None
        if len(self._on_their_way()) >= self._in_flight:
            return None
        waiting = (letter for letter in self._letters.values() if letter.sent is not Sent.ON_ITS_WAY)
        letter = next(waiting, None)
        if letter:
            letter.sent = Sent.ON_ITS_WAY
        return letter

    def due(self) -> int | None:
        """When something is to be sent that could not be before."""
        return self._held_until if self._letters else None

    def disconnected(self) -> None:
        """The connection broke: answers to what was on its way will not come."""
        for letter in self._on_their_way():
            letter.sent, letter.doubtful = Sent.UNANSWERED, True

    def accepted(self, message_id: str) -> bool:
        """The server has it. False if it is not kept (any more)."""
        self.holds = 0
        return self.remove(message_id)

    def remove(self, message_id: str) -> bool:
        """Takes a message out. False if it is not kept (any more)."""
        letter = self._letters.pop(message_id, None)
        self._bytes -= letter.size if letter else 0
        return letter is not None

    def hold(self, message_id: str, until: int, sent: Sent) -> None:
        """The server did not take it now; nothing is sent before `until`."""
        self.holds += 1
        self._held_until = max(self._held_until or 0, until)
        letter = self._letters.get(message_id)
        if letter:
            letter.doubtful = letter.doubtful or sent is Sent.UNANSWERED
            letter.sent = Sent.UNANSWERED if letter.doubtful else sent

    def oldest_on_its_way(self) -> str | None:
        """The message that the server's next answer is about: it answers in order."""
        on_their_way = self._on_their_way()
        return on_their_way[0].message_id if on_their_way else None

    def largest_on_its_way(self) -> str | None:
        """The message on its way that most likely went over the limit of a frame."""
        largest: Letter | None = None
        for letter in self._on_their_way():
            if largest is None or letter.size >= largest.size:
                largest = letter
        return largest.message_id if largest else None

    def take_unanswered(self) -> list[str]:
        """The session is gone: takes out, and names, the messages that may have reached it."""
        self.disconnected()
        reached = [letter.message_id for letter in self._letters.values() if letter.sent is Sent.UNANSWERED]
        for message_id in reached:
            self.remove(message_id)
        return reached

    def take_all(self) -> list[str]:
        """Nothing is sent any more: takes out, and names, the rest."""
        rest = list(self._letters)
        self._letters.clear()
        self._bytes = 0
        return rest

    def _on_their_way(self) -> list[Letter]:
        return [letter for letter in self._letters.values() if letter.sent is Sent.ON_ITS_WAY]
