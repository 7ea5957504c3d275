"""Processes of the tests: those below a server, and web applications run by uvicorn. All of them can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from support import SOURCE, START_TIMEOUT_S


def processes_of(server: int, program: str) -> list[int]:
    """The processes below the server whose command line names the program."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            is_agent = entry.name.isdigit() and program.encode() in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if is_agent and int(entry.name) != server and is_below(int(entry.name), server):
            found.append(int(entry.name))
    return found


def is_below(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        try:
            process = int((Path("/proc") / str(process) / "stat").read_text().rsplit(") ", 1)[1].split()[1])
        except (OSError, ValueError):
            return False
    return False


async def kill_agents_of(server: int, program: str) -> None:
    """kill -9, once there is one: the last may have been killed just now."""
    while not (agents := processes_of(server, program)):
        await asyncio.sleep(0.01)
    for process in agents:
        os.kill(process, signal.SIGKILL)


class Uvicorn:
    """A web application in a process of its own, on the same port in all its lives."""

    def __init__(self, directory: Path, app: str) -> None:
        self._directory = directory
        self._app = app
        self._process: asyncio.subprocess.Process | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Uvicorn:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "uvicorn", self._app, "--port", str(self._port), "--log-level", "warning"),
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )
        await asyncio.wait_for(self._listens(), START_TIMEOUT_S)

    async def _listens(self) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                return writer.close()
            except OSError:
                assert self._process and self._process.returncode is None, "the application does not start"
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()
