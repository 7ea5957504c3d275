"""Between the machine and the application: one line of items, handed over in order.

What must wait until the items before it were handled (saving a position, acking it) waits in the same line. So a
program that dies while it works on an event gets that event again, and nothing is acked that was not handled. An item
is handled when the application asks for the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from .incoming import AgentState, Event, Incoming
from .types import Gap

Task = Callable[[], Awaitable[None]]
_Entry = Event | Gap | AgentState | Task


class Line:
    """Items and tasks, in order. `run` moves the line; `take` is the application's end of it."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self._entries: deque[_Entry] = deque()
        self._pushed = asyncio.Event()
        self._offered: Incoming | None = None
        self._offer = asyncio.Event()
        self._in_hand: Incoming | None = None
        self._handled = asyncio.Event()
        self._moved = moved
        self._ending = False
        self._over = False
        #: The seq of the last event that was handled.
        self.handled_seq: int | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: _Entry) -> None:
        """Puts an item, or a task to run after everything before it was handled, at the end."""
        self._entries.append(entry)
        self._pushed.set()

    def end(self) -> None:
        """Nothing comes any more: `run` and `take` end when everything was handled."""
        self._ending = True
        self._pushed.set()

    async def run(self) -> None:
        """Moves the line until it has ended."""
        while await self._wait_for_entry():
            entry = self._entries[0]
            if isinstance(entry, (Event, Gap, AgentState)):
                await self._hand_over(entry)
            else:
                await entry()
            if self._entries and self._entries[0] is entry:
                self._entries.popleft()
            self._moved()
        self._over = True
        self._offer.set()

    async def _wait_for_entry(self) -> bool:
        while not self._entries and not self._ending:
            self._pushed.clear()
            await self._pushed.wait()
        return bool(self._entries)

    async def _hand_over(self, item: Incoming) -> None:
        self._handled.clear()
        self._offered = item
        self._offer.set()
        await self._handled.wait()

    async def take(self) -> Incoming | None:
        """The next item; the one before it counts as handled. None at the end."""
        self._finish_item()
        while self._offered is None:
            if self._over:
                return None
            self._offer.clear()
            await self._offer.wait()
        self._in_hand, self._offered = self._offered, None
        return self._in_hand

    def _finish_item(self) -> None:
        item, self._in_hand = self._in_hand, None
        if item is None:
            return
        if isinstance(item, Event):
            self.handled_seq = item.seq
        elif isinstance(item, Gap) and item.missing:
            self.handled_seq = item.missing.last
        self._handled.set()

    def clear(self) -> list[Incoming]:
        """Forgets what waits, which comes again from the server. The item in hand counts as handled."""
        in_hand = self._in_hand
        self._finish_item()
        items = [entry for entry in self._entries if isinstance(entry, (Event, Gap, AgentState))]
        self._entries.clear()
        self._offered = None
        self._handled.set()
        return [item for item in items if item is not in_hand]
