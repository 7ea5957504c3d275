"""One WebSocket: opened within a bound, authenticated by frame where that is wanted, and dropped at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from .frames import Authenticated, read, retry_after_in
from .limits import CLOSE_TIMEOUT_S, MAX_FRAME_BYTES
from .types import Frame

#: A credential, or a function that gives one: it is called for every connection.
Token = str | Callable[[], str | Awaitable[str | None] | None] | None


class SocketListener(Protocol):
    """What a socket tells: perhaps `opened`, then frames, and at last one `closed`."""

    def on_opened(self, socket: Socket) -> None: ...

    def on_frame(self, socket: Socket, frame: object) -> None: ...

    def on_closed(self, socket: Socket, code: int | None, retry_after: int | None) -> None: ...


class Socket:
    """One connection to the server, in a task of its own."""

    def __init__(self, url: str, token: Token, timeout: float, listener: SocketListener) -> None:
        self._url = url
        self._token = token
        self._timeout = timeout
        self._listener = listener
        self._connection: ClientConnection | None = None
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    def send(self, frame: Frame) -> None:
        """Writes a frame. What can't be written is sent again on the next socket, as far as it must be."""
        self._outgoing.put_nowait(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))

    def drop(self) -> None:
        """Lets the connection go without waiting for the server. Nothing is told any more."""
        self._task.cancel()

    async def dropped(self) -> None:
        """Waits until a dropped socket is gone."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        code: int | None = None
        retry_after: int | None = None
        try:
            await self._serve()
        except ConnectionClosed as closed:
            if closed.rcvd is not None:
                code, retry_after = closed.rcvd.code, retry_after_in(closed.rcvd.reason)
        except (OSError, EOFError, WebSocketException, asyncio.TimeoutError):
            pass  # no connection, or a broken one: the machine tries again
        self._listener.on_closed(self, code, retry_after)

    async def _serve(self) -> None:
        connection = await self._open()
        writer = asyncio.create_task(self._write_all(connection))
        try:
            async for text in connection:
                self._listener.on_frame(self, _parse(text))
            await connection.recv()  # raises the close that ended the loop
        finally:
            writer.cancel()
            connection.transport.abort()

    async def _open(self) -> ClientConnection:
        async with _timeout(self._timeout):
            connection = await connect(
                self._url,
                open_timeout=None,
                ping_interval=None,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=MAX_FRAME_BYTES,
                compression=None,
            )
            try:
                ahead = await self._authenticate(connection)
            except BaseException:
                connection.transport.abort()
                raise
        self._listener.on_opened(self)
        for frame in ahead:
            self._listener.on_frame(self, frame)
        return connection

    async def _authenticate(self, connection: ClientConnection) -> list[object]:
        """Shows the credential and waits until it is taken; returns the frames that came meanwhile."""
        token = self._token() if callable(self._token) else self._token
        if token is not None and not isinstance(token, str):
            token = await token
        if token is None:
            return []
        await connection.send(json.dumps({"event": "user.authenticate", "content": {"token": token}}))
        ahead: list[object] = []
        async for text in connection:
            frame = _parse(text)
            ahead.append(frame)
            if any(isinstance(told, Authenticated) for told in read(frame)):
                return ahead
        await connection.recv()
        return ahead

    async def _write_all(self, connection: ClientConnection) -> None:
        while True:
            text = await self._outgoing.get()
            try:
                await connection.send(text)
            except ConnectionClosed:
                return


def _parse(text: str | bytes) -> Any:
    if not isinstance(text, str):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


class _timeout:
    """`asyncio.timeout` for Python 3.10."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._fired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None

        def fire() -> None:
            self._fired = True
            task.cancel()

        self._timer = asyncio.get_running_loop().call_later(self._seconds, fire)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._fired and isinstance(error, asyncio.CancelledError):
            raise asyncio.TimeoutError from error
