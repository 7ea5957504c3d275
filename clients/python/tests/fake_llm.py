"""An OpenAI-compatible endpoint that streams a fixed answer, and continues one that it is told was cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

ANSWER = " ".join(f"word{number}" for number in range(120))
PIECE = 7


class FakeLlm:
    """Where it is, what it was asked, and how much of the answer it may say so far."""

    def __init__(self, delay_s: float) -> None:
        self.base_url = ""
        self.asked: list[list[dict[str, Any]]] = []
        self.delay_s = delay_s
        self._allowed = len(ANSWER)
        self._allowed_more = asyncio.Event()

    def allow(self, characters: int) -> None:
        """Holds the answer back after so many characters, until more are allowed."""
        self._allowed = characters
        self._allowed_more.set()

    async def is_allowed(self, characters: int) -> None:
        while characters > self._allowed:
            self._allowed_more.clear()
            await self._allowed_more.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            request = json.loads(await reader.readexactly(length))
            self.asked.append(request["messages"])
            await self.answer(request["messages"], writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, messages: list[dict[str, Any]], writer: asyncio.StreamWriter) -> None:
        cut_off = "cut off" in messages[-1]["content"]
        rest = ANSWER[len(messages[-2]["content"]) :] if cut_off else ANSWER
        assert not cut_off or ANSWER.startswith(messages[-2]["content"]), messages
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for start in range(0, len(rest), PIECE):
            await self.is_allowed(len(ANSWER) - len(rest) + start)
            choice = {"index": 0, "delta": {"content": rest[start : start + PIECE]}}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "fake", "choices": [choice]}
            writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(self.delay_s)
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()


@asynccontextmanager
async def fake_llm(delay_s: float = 0.01) -> AsyncIterator[FakeLlm]:
    """Serves on loopback."""
    llm = FakeLlm(delay_s)
    server = await asyncio.start_server(llm.serve, "127.0.0.1", 0)
    async with server:
        llm.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield llm
