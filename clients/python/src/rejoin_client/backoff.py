"""When to try again: longer each time, never all clients at once, never earlier than the server asks."""

from __future__ import annotations

from collections.abc import Sequence

from .limits import BACKOFF, BACKOFF_STEPS, MAX_ATTEMPTS


class Backoff:
    """Counts failed attempts since the last attachment and says how long to wait because of them."""

    def __init__(self) -> None:
        self._steps: Sequence[int] = BACKOFF
        self._max_attempts = MAX_ATTEMPTS
        self._failures = 0
        self._refusals = 0

    def configure(self, steps: Sequence[int], max_attempts: int) -> None:
        """The server says how it wants clients to wait."""
        if steps:
            self._steps = steps[:BACKOFF_STEPS]
        self._max_attempts = max_attempts

    def reset(self) -> None:
        """An attachment succeeded."""
        self._failures = 0
        self._refusals = 0

    def refused(self) -> bool:
        """The server refused to attach this client; true once that happened often enough to stop.

        Only refusals count: a server that can't be reached, or that closes with "come back", is tried for ever.
        """
        self._refusals += 1
        return self._refusals >= self._max_attempts

    def next(self, retry_after: int | None, random: int) -> tuple[int, int]:
        """An attempt failed: the number of the next attempt and the wait before it.

        The jitter spans the whole step, so that clients come back spread out after a server crash. A wait that
        the server asked for comes on top, because it told all clients the same.
        """
        jitter = self.step(self._failures) * random // 2**32
        self._failures += 1
        return self._failures, (retry_after or 0) + jitter

    def step(self, failures: int) -> int:
        """The step after so many failures; the last one repeats."""
        return self._steps[min(failures, len(self._steps) - 1)]
