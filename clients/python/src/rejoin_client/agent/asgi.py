"""An agent as an ASGI application for `rejoin --agent http://...`.

Each entry comes as a POST; the response is a stream of JSON lines, one an event. When the connection ends, the turn is
cancelled: Rejoin delivers the message again, with the state as of the last event that it stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .turn import AgentFunction, Line, cancelled, encode, run_turn, state_of, turn_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, SendMessage], Awaitable[None]]

#: The largest request that is read.
_MAX_REQUEST_BYTES = 64 * 1024 * 1024

#: What an entry has. A cancellation has no content.
_MEMBERS = ("session_id", "event", "in_seq", "message_id", "content", "state")
_OPTIONAL = ("message_id", "content", "state")

#: How old a signature may be.
_SIGNATURE_AGE_S = 300

#: A time in a signature: seconds since 1970.
_STAMP = re.compile("[0-9]{1,12}")


def asgi_app(function: AgentFunction, secret: str | None) -> AsgiApp:
    """The application. With a secret (`agent_secret` of the server), unsigned requests are rejected."""

    async def app(scope: Message, receive: Receive, send: SendMessage) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if scope["method"] != "POST":
            await _answer(send, 405, "the agent takes POST requests only")
        elif body is None:
            await _answer(send, 413, "the request is too large")
        elif secret is not None and not is_signed(_header(scope, b"rejoin-signature"), body, secret, time.time()):
            await _answer(send, 401, "the request is not signed with the agent's secret")
        elif (entry := _entry(body)) is None:
            await _answer(send, 400, "this is no message of Rejoin's")
        else:
            await _serve(function, entry, receive, send)

    return app


async def _serve(function: AgentFunction, entry: Message, receive: Receive, send: SendMessage) -> None:
    headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    writing = asyncio.create_task(_write_lines(function, entry, send))
    hang_up = asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait({writing, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            return
        writing.result()
        await send({"type": "http.response.body", "body": b""})
    finally:
        for task in (writing, hang_up):
            task.cancel()
        await asyncio.gather(writing, hang_up, return_exceptions=True)


async def _write_lines(function: AgentFunction, entry: Message, send: SendMessage) -> None:
    async def write(line: Line) -> None:
        await send({"type": "http.response.body", "body": encode(line), "more_body": True})

    stored = state_of(entry["state"])
    if entry["event"] == "user.cancel":
        return await write(cancelled(entry["in_seq"], stored))
    async for line in run_turn(function, turn_of(entry, entry["session_id"], stored)):
        await write(line)


def _entry(body: bytes) -> dict[str, Any] | None:
    """What Rejoin posts, with every member; nothing if it is something else."""
    try:
        told: Any = json.loads(body)
        return {member: told.get(member) if member in _OPTIONAL else told[member] for member in _MEMBERS}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _MAX_REQUEST_BYTES:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


async def _answer(send: SendMessage, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode()})


async def _lifespan(receive: Receive, send: SendMessage) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _header(scope: Message, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def is_signed(header: str, body: bytes, secret: str, now: float) -> bool:
    """Whether `Rejoin-Signature` (`t=<unix>,v1=<hex HMAC-SHA256 of "t.body">`) is good and fresh."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    stamp, given = parts.get("t", ""), parts.get("v1", "")
    if not _STAMP.fullmatch(stamp) or abs(now - int(stamp)) > _SIGNATURE_AGE_S:
        return False
    expected = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), given.encode())  # of text it takes ASCII only
