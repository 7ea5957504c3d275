"""An agent as a child process of `rejoin --agent '<command>'`: JSON lines on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from .turn import AgentFunction, Line, Turn, cancelled, encode, run_turn, state_of, turn_of

#: The longest line that is read.
_MAX_LINE_BYTES = 64 * 1024 * 1024


def run(function: AgentFunction) -> None:
    """Serves one session until standard input ends."""
    if sys.stdin.isatty():
        print(f"This is an agent. Start it with: rejoin --agent 'python {sys.argv[0]}'", file=sys.stderr)
    asyncio.run(_serve(function))


async def _serve(function: AgentFunction) -> None:
    reader, writer = await _standard_streams()
    await ChildAgent(function, reader, writer).serve()


class ChildAgent:
    """Reads entries, runs turns one after the other, and writes their lines."""

    def __init__(self, function: AgentFunction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._function = function
        self._reader = reader
        self._writer = writer
        self._session_id = ""
        #: The state as the server has it once it has read every line: each turn begins with it.
        self._stored: dict[str, Any] = {}
        self._queue: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        #: The cancellation that stops the turn under way and every message before it.
        self._cancel_up_to = 0

    async def serve(self) -> None:
        """Serves until the input ends. If the worker fails the process ends, so that the server starts another."""
        tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._read())]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self._on_line(json.loads(line))

    def _on_line(self, told: Mapping[str, Any]) -> None:
        event = told.get("event")
        if event == "user.cancel":
            self._cancel_up_to = told["in_seq"]
            if self._turn:
                self._turn.cancel()
        if event in ("session.start", "user.message", "user.cancel"):
            self._queue.put_nowait(told)

    async def _work(self) -> None:
        while True:
            told = await self._queue.get()
            if told["event"] == "session.start":
                await self._start(told["content"])
            elif told["event"] == "user.cancel":
                await self._write(cancelled(told["in_seq"], self._stored))
            elif told["in_seq"] > self._cancel_up_to:
                await self._run_turn(told)

    async def _start(self, content: Mapping[str, Any]) -> None:
        self._session_id = content["session_id"]
        self._stored = state_of(content.get("state"))
        # Says that this agent names the entries it covers; it covers none by this.
        await self._write({"event": "session.state", "content": content.get("state"), "in_seq": 0})

    async def _run_turn(self, told: Mapping[str, Any]) -> None:
        turn = turn_of(told, self._session_id, self._stored)
        self._turn = asyncio.create_task(self._write_lines(turn))
        try:
            await self._turn
        except asyncio.CancelledError:
            if turn.in_seq > self._cancel_up_to:
                raise  # the process ends
        finally:
            self._turn = None

    async def _write_lines(self, turn: Turn) -> None:
        async for line in run_turn(self._function, turn):
            self._stored = line.get("state", self._stored)
            if line["event"] == "session.state":
                self._stored = line["content"]
            await self._write(line)

    async def _write(self, line: Line) -> None:
        self._writer.write(encode(line))
        await self._writer.drain()


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output for the protocol; `print` goes to standard error from here on."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
