"""A real server to test against: `REJOIN_BIN` names the binary."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rejoin_client import Event, Session

BINARY = os.environ.get("REJOIN_BIN", str(Path(__file__).resolve().parents[3] / "target/debug/rejoin"))
SOURCE = str(Path(__file__).resolve().parents[1] / "src")
START_TIMEOUT_S = 30


class Server:
    """A server process on a data directory; it can be killed and started again on the same port."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self._data = data
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._listen = "127.0.0.1:0"

    @property
    def url(self) -> str:
        return f"ws://{self._listen}/ws"

    @property
    def http(self) -> str:
        return f"http://{self._listen}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        environment.pop("REJOIN_BIN", None)
        self._process = await asyncio.create_subprocess_exec(
            *(BINARY, "--listen", self._listen, "--data-dir", str(self._data), *self._arguments),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr,
        )
        await asyncio.wait_for(self._listening(), START_TIMEOUT_S)
        self._reading = asyncio.create_task(self._read_on())

    async def _listening(self) -> None:
        assert self._process and self._process.stdout
        while line := await self._process.stdout.readline():
            if found := re.search(rb"http://(127\.0\.0\.1:\d+)", line):
                self._listen = found[1].decode()
                return
        raise RuntimeError("the server did not start")

    async def _read_on(self) -> None:
        assert self._process and self._process.stdout
        while await self._process.stdout.readline():
            pass

    async def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._reading:
            await self._reading

    async def restart(self) -> None:
        await self.kill()
        await self.start()


async def events_until(session: Session, last: Callable[[Event], bool]) -> list[Event]:
    """The events up to and including the one that is the last."""
    events: list[Event] = []
    async for item in session:
        assert isinstance(item, Event), item
        events.append(item)
        if last(item):
            return events
    raise AssertionError(f"the session stopped: {session.status}")
