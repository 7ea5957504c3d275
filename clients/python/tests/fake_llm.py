"""An OpenAI-compatible endpoint that streams a fixed answer, and goes on where an assistant's words end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

ANSWER = " ".join(f"word{number}" for number in range(120))
PIECE = 7


@asynccontextmanager
async def fake_llm(delay_s: float = 0.01) -> AsyncIterator[str]:
    """Serves on loopback; yields its base URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            request = json.loads(await reader.readexactly(length))
            await answer(request["messages"], writer, delay_s)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def answer(messages: list[dict[str, str]], writer: asyncio.StreamWriter, delay_s: float) -> None:
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    prefix = said[-1] if said and ANSWER.startswith(said[-1]) else ""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    rest = ANSWER[len(prefix) :]
    for start in range(0, len(rest), PIECE):
        choice = {"index": 0, "delta": {"content": rest[start : start + PIECE]}}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "fake", "choices": [choice]}
        writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await writer.drain()
        await asyncio.sleep(delay_s)
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
