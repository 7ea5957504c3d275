"""Where a client keeps what it needs to come back after a restart.

That is the session's id, the position, the reconnect token and the signed state: credentials, so a file is readable by
its owner only.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Protocol

from .types import Saved


class Keep(Protocol):
    """A place that outlives a session. One session uses it at a time."""

    async def load(self) -> Saved | None:
        """What was saved last. An error stops the session: beginning anew would abandon one that lives."""
        ...

    async def save(self, saved: Saved) -> None:
        """Keeps this in place of what was kept before, all or nothing.

        When it returns, the server may be told to forget what it covers.
        """
        ...


class MemoryKeep:
    """Keeps in memory, for sessions that need not outlive the program."""

    def __init__(self, saved: Saved | None = None) -> None:
        self._saved = saved

    async def load(self) -> Saved | None:
        """What was saved last."""
        return self._saved

    async def save(self, saved: Saved) -> None:
        """Keeps it."""
        self._saved = saved


class FileKeep:
    """Keeps in a file that only its owner can read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    async def load(self) -> Saved | None:
        """What the file holds; None if there is no file."""
        return await asyncio.to_thread(self._read)

    async def save(self, saved: Saved) -> None:
        """Writes a new file beside the old one, flushes it and puts it in place."""
        await asyncio.to_thread(self._write, saved)

    def _read(self) -> Saved | None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        saved: Saved = json.loads(text)
        return saved

    def _write(self, saved: Saved) -> None:
        beside = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
