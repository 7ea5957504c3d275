"""The client's time line: the wall clock, which goes on while the computer sleeps, but never back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Milliseconds that only grow."""

    def __init__(self, read: Callable[[], float] = time.time) -> None:
        self._read = read
        self._offset = 0
        self._last = 0

    def now(self) -> int:
        """Now. If the clock is set back, time goes on from where it was."""
        read = int(self._read() * 1000) + self._offset
        if read < self._last:
            self._offset += self._last - read
            read = self._last
        self._last = read
        return read
