"""A session that outlives its connections, as applications see it.

:class:`Session` carries out what :class:`~.machine.Machine` decides: it owns the socket, the timer, the storage and the
line to the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

from .base import MachineOptions
from .clock import Clock
from .errors import SessionError
from .incoming import AgentState, Event, Incoming, event_of, state_of
from .keep import Keep, MemoryKeep
from .limits import CONNECT_TIMEOUT_S, SLEEP_CHECK, SLEEP_SLACK, WINDOW_ITEMS
from .line import Line
from .machine import Machine
from .socket import Socket, Token
from .types import (
    Accepted,
    Close,
    Connect,
    Connected,
    Connecting,
    Deliver,
    Frame,
    Gap,
    GivenUp,
    Output,
    Refused,
    Save,
    Saved,
    SavedPosition,
    Send,
    Status,
    Stopped,
    TellGap,
    TellState,
    TellStatus,
)


class Session:
    """One session with an agent. Use it as a context manager and iterate over it::

        async with Session("ws://127.0.0.1:8181/ws", keep=FileKeep("session.json")) as session:
            await session.send("Plan a trip to Lisbon")
            async for incoming in session:
                print(incoming)

    An item counts as handled when the loop asks for the next one: a program that dies before that gets it again.
    """

    def __init__(
        self,
        url: str,
        *,
        keep: Keep | None = None,
        token: Token = None,
        from_beginning: bool = False,
        options: MachineOptions | None = None,
        on_status: Callable[[Status], None] | None = None,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        window: int = WINDOW_ITEMS,
    ) -> None:
        """`token` is an API key or JSON web token, or a function that gives one for each connection.

        `from_beginning` delivers everything that the server still holds, not only what was not handled yet.
        `window` is how many items may wait for a slow application before the connection is let go.
        """
        self._url = url
        self._keep: Keep = keep or MemoryKeep()
        self._token = token
        self._from_beginning = from_beginning
        self._options = options or MachineOptions()
        self._on_status = on_status
        self._connect_timeout = connect_timeout
        self._window = window
        self._status: Status = Connecting()
        self._clock = Clock()
        self._line = Line(self._open_socket)
        self._machine: Machine | None = None
        self._socket: Socket | None = None
        self._wants_socket = False
        self._keep_failed = False
        self._left = False
        self._letters: dict[str, asyncio.Future[Accepted]] = {}
        self._state_wanted: list[asyncio.Future[AgentState]] = []
        self._happened = asyncio.Event()
        self._first_connected: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- For applications -------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """How the session is doing."""
        return self._status

    @property
    def session_id(self) -> str | None:
        """The session's id, once there is one."""
        return self._machine.session_id if self._machine else None

    async def __aenter__(self) -> Session:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins, in the background: it connects and keeps trying for as long as that makes sense."""
        if self._machine:
            return
        saved = await self._load()
        if saved and saved["position"] and self._from_beginning:
            saved = _at(saved, 0)
        self._first_connected = asyncio.get_running_loop().create_future()
        self._machine = Machine(self._options, saved)
        self._tasks = [asyncio.create_task(self._line.run()), asyncio.create_task(self._run(self._machine))]

    async def connected(self) -> None:
        """Waits until the session is connected for the first time."""
        await self.start()
        assert self._first_connected is not None
        await asyncio.shield(self._first_connected)

    async def send(self, content: Any, *, message_id: str | None = None) -> Accepted:
        """Tells the agent something; returns when the server has stored it.

        Connections that break in between do no harm: it is sent until it is answered. With a `message_id` of your
        own, sending it again, also after a restart of the program, enters it once.
        """
        if content is None:
            raise TypeError("a message is any JSON but null")
        copy = json.loads(json.dumps(content))  # the caller may go on changing its own
        return await self._post(message_id, lambda m, id_, now: m.send(id_, copy, now))

    async def cancel(self, *, message_id: str | None = None) -> Accepted:
        """Wants the agent to stop what it is doing."""
        return await self._post(message_id, lambda m, id_, now: m.cancel(id_, now))

    async def request_state(self) -> AgentState:
        """Asks for the agent's state. It is also kept, to restore the session from."""
        machine = self._running()
        future: asyncio.Future[AgentState] = asyncio.get_running_loop().create_future()
        self._state_wanted.append(future)
        machine.request_state(self._clock.now())
        self._carry_out()
        return await future

    async def end(self) -> None:
        """Ends the session on the server, with its logs and its state; returns when that has happened."""
        await self.start()
        if self._machine and not isinstance(self._status, Stopped):
            self._machine.end(self._clock.now())
            self._carry_out()
        while not isinstance(self._status, Stopped):
            await self._next_happening()

    async def close(self) -> None:
        """Goes away. The session stays on the server; what the application has in hand counts as handled."""
        if not self._machine:
            return
        self._left = True
        self._drop_socket()
        self._machine.closed(None, None, 0, self._clock.now())
        saved = _up_to(self._machine.saved, self._line.clear(), self._line.handled_seq)
        if not isinstance(self._status, Stopped):
            self._finish(Stopped("left"))
        if saved:
            self._line.push(lambda: self._save(saved))
        self._line.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """The computer woke up or is online again: a wait is cut short, a silent connection is not trusted."""
        if self._machine:
            self._machine.wake(self._clock.now())
            self._carry_out()

    def cut(self) -> None:
        """Drops the connection as a broken network would; the session comes back by itself."""
        if self._machine and self._socket:
            self._drop_socket()
            self._machine.closed(None, None, _random(), self._clock.now())
            self._carry_out()

    def __aiter__(self) -> AsyncIterator[Incoming]:
        return self

    async def __anext__(self) -> Incoming:
        await self.start()
        item = await self._line.take()
        if item is None:
            raise StopAsyncIteration
        return item

    # --- The machine's driver ---------------------------------------------------------------------

    async def _load(self) -> Saved | None:
        try:
            return await self._keep.load()
        except (OSError, ValueError) as error:
            # Beginning anew because a disk did not answer would abandon a session that lives.
            raise SessionError("storage") from error

    async def _run(self, machine: Machine) -> None:
        """Tells the machine of the time, and of a computer that was asleep."""
        self._carry_out()
        while not isinstance(self._status, Stopped):
            now = self._clock.now()
            due = machine.next_deadline()
            wait = SLEEP_CHECK if due is None else max(0, min(due - now, SLEEP_CHECK))
            await self._next_happening(wait / 1000)
            later = self._clock.now()
            if later - now > wait + SLEEP_SLACK:
                machine.wake(later)
            machine.tick(later)
            self._carry_out()
        self._line.end()

    async def _next_happening(self, timeout: float | None = None) -> None:
        self._happened.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._happened.wait(), timeout)

    def _carry_out(self) -> None:
        """Does everything the machine says, also what comes up meanwhile; nothing after `close`."""
        machine = self._running()
        if self._left:
            return
        while outputs := machine.take_outputs():
            for output in outputs:
                self._do(machine, output)
        self._open_socket()
        self._happened.set()

    def _do(self, machine: Machine, output: Output) -> None:
        if isinstance(output, Connect):
            self._wants_socket = True
        elif isinstance(output, Close):
            self._drop_socket()
            machine.closed(None, None, _random(), self._clock.now())
        elif isinstance(output, Send):
            self._write(output.frame)
        elif isinstance(output, Save):
            saved = output.saved
            self._line.push(lambda: self._save(saved))
        elif isinstance(output, Deliver):
            self._give(event_of(output.frame))
        elif isinstance(output, TellGap):
            self._give(output.gap)
        elif isinstance(output, TellState):
            self._on_state(state_of(output.frame, output.fills_gap))
        elif isinstance(output, (Accepted, GivenUp)):
            self._answer(output)
        elif isinstance(output, Refused):
            self._refuse_state(SessionError("refused", output.code))
        elif isinstance(output, TellStatus):
            self._on_new_status(output.status)

    def _give(self, item: Incoming) -> None:
        """If the application is far behind, the connection is let go until it has caught up."""
        self._line.push(item)
        if len(self._line) > 2 * self._window and self._socket:
            asyncio.get_running_loop().call_soon(self.cut)

    def _write(self, frame: Frame) -> None:
        """An ack waits until what it covers was handled and saved; on another socket it would be wrong."""
        socket = self._socket
        if socket is None:
            return
        if frame["event"] != "user.ack":
            return socket.send(frame)

        async def ack() -> None:
            if self._socket is socket and (not self._keep_failed or frame["metadata"]["gap_detected"]):
                socket.send(frame)

        self._line.push(ack)

    async def _save(self, saved: Saved) -> None:
        """What can't be saved is not acked; it is tried again with the next save."""
        try:
            await self._keep.save(saved)
            self._keep_failed = False
        except OSError:
            self._keep_failed = True

    # --- The socket -------------------------------------------------------------------------------

    def _open_socket(self) -> None:
        if self._wants_socket and not isinstance(self._status, Stopped) and len(self._line) <= self._window:
            self._wants_socket = False
            self._socket = Socket(self._url, self._token, self._connect_timeout, self)

    def _drop_socket(self) -> None:
        self._wants_socket = False
        if self._socket:
            self._socket.drop()
        self._socket = None

    def on_opened(self, socket: Socket) -> None:
        """The socket is open."""
        if socket is self._socket:
            self._running().opened(self._clock.now())
            self._carry_out()

    def on_frame(self, socket: Socket, frame: object) -> None:
        """A frame came."""
        if socket is self._socket:
            self._running().frame(frame, self._clock.now())
            self._carry_out()

    def on_closed(self, socket: Socket, code: int | None, retry_after: int | None) -> None:
        """The socket is gone."""
        if socket is self._socket:
            self._socket = None
            self._running().closed(code, retry_after, _random(), self._clock.now())
            self._carry_out()

    # --- What the application is told -------------------------------------------------------------

    def _on_new_status(self, status: Status) -> None:
        if isinstance(status, Stopped):
            return self._finish(status)
        self._set_status(status)
        if isinstance(status, Connected) and self._first_connected and not self._first_connected.done():
            self._first_connected.set_result(None)

    def _on_state(self, state: AgentState) -> None:
        for future in self._state_wanted:
            if not future.done():
                future.set_result(state)
        self._state_wanted.clear()
        if state.fills_gap:
            self._give(state)

    def _finish(self, status: Stopped) -> None:
        self._set_status(status)
        error = SessionError("stopped", status.code or status.reason)
        if self._first_connected and not self._first_connected.done():
            self._first_connected.set_exception(error)
            self._first_connected.exception()  # perhaps nobody waits for it
        for letter in self._letters.values():
            if not letter.done():
                letter.set_exception(error)
        self._letters.clear()
        self._refuse_state(error)
        self._happened.set()

    def _set_status(self, status: Status) -> None:
        self._status = status
        if self._on_status:
            self._on_status(status)

    def _refuse_state(self, error: SessionError) -> None:
        for future in self._state_wanted:
            if not future.done():
                future.set_exception(error)
        self._state_wanted.clear()

    async def _post(self, message_id: str | None, post: Callable[[Machine, str, int], None]) -> Accepted:
        await self.start()
        if isinstance(self._status, Stopped):
            raise SessionError("not_sent")
        message_id = message_id or f"msg_{secrets.token_hex(16)}"
        if message_id not in self._letters:
            self._letters[message_id] = asyncio.get_running_loop().create_future()
        letter = self._letters[message_id]
        post(self._running(), message_id, self._clock.now())
        self._carry_out()
        return await asyncio.shield(letter)

    def _answer(self, answer: Accepted | GivenUp) -> None:
        letter = self._letters.pop(answer.message_id, None)
        if letter is None or letter.done():
            return
        if isinstance(answer, Accepted):
            letter.set_result(answer)
        else:
            letter.set_exception(SessionError(answer.reason, answer.code))
            letter.exception()  # perhaps nobody waits for it

    def _running(self) -> Machine:
        if self._machine is None:
            raise SessionError("stopped", "start() was not called")
        return self._machine


def _random() -> int:
    return random.getrandbits(32)


def _up_to(saved: Saved, unhandled: list[Incoming], handled_seq: int | None) -> Saved | None:
    """What to keep of a session that is left with items unhandled; None if nobody can say how far it came."""
    position = saved["position"]
    if not unhandled or position is None:
        return saved
    first = unhandled[0]
    seq = first.seq - 1 if isinstance(first, Event) else handled_seq
    same_log = all(not isinstance(item, Gap) or item.missing for item in unhandled)
    if not same_log or seq is None:
        return None
    return _at(saved, seq)


def _at(saved: Saved, seq: int) -> Saved:
    """The same, with the position at another event of the same log."""
    position = saved["position"]
    moved: SavedPosition | None = {"epoch": position["epoch"], "seq": seq} if position else None
    copy = saved.copy()
    copy["position"] = moved
    return copy
