"""One turn of an agent: a message comes in, an async generator yields events, state is saved along the way."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

#: How long the runner waits to see whether an event was the last of its turn. The last one carries the final state, so
#: that both are stored in one commit.
_LOOK_AHEAD_S = 0.005

#: The name of an event that was yielded as a plain string.
TEXT_EVENT = "agent.answer_delta"


@dataclass
class Turn:
    """What an agent gets for one message."""

    content: Any
    """What the client sent."""
    message_id: str
    in_seq: int
    """The message's number in the in log."""
    session_id: str
    state: dict[str, Any]
    """The agent's memory. Change it freely: it is saved with every event you yield, in one commit with that event. A
    turn that was cut short by a crash runs again, with the state as of the last event that was stored."""


@dataclass(frozen=True)
class Emit:
    """An event with a name of its own; a plain string is an `agent.answer_delta`."""

    event: str
    content: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


#: What an agent may yield.
Yielded = str | Emit

#: An agent: an async generator function that runs one turn.
AgentFunction = Callable[[Turn], AsyncGenerator[Yielded, None]]

#: One line to the server, as JSON.
Line = dict[str, Any]


async def run_turn(function: AgentFunction, turn: Turn) -> AsyncIterator[Line]:
    """Runs a turn; yields its lines. The last line covers the message.

    An exception of the agent ends the turn with `agent.failed`: the same message would probably fail again.
    """
    saved = _snapshot(turn.state)
    covered = False
    items = _Ahead(function(turn))
    try:
        async for item in items:
            state = _snapshot(turn.state)  # before the agent runs on: what it does next belongs to the next event
            covered = await items.is_last()
            if covered:
                state = _snapshot(turn.state)
            line = _line(item)
            if state != saved:
                line["state"] = json.loads(state)
                saved = state
            if covered:
                line["in_seq"] = turn.in_seq
            yield line
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        covered = True
        yield _failure(error, turn.in_seq)
    finally:
        await items.close()
    if not covered:
        yield {"event": "session.state", "content": turn.state, "in_seq": turn.in_seq}


class _Ahead:
    """Iterates over an async generator and can tell whether the item in hand was the last."""

    _END = object()

    def __init__(self, items: AsyncGenerator[Yielded, None]) -> None:
        self._items = items
        self._next: asyncio.Task[Any] | None = None

    def __aiter__(self) -> _Ahead:
        return self

    async def __anext__(self) -> Yielded:
        item = await self._step()
        self._next = None
        if item is self._END:
            raise StopAsyncIteration
        result: Yielded = item
        return result

    async def is_last(self) -> bool:
        """Whether the generator ends within a few milliseconds."""
        step = self._step()
        await asyncio.wait({step}, timeout=_LOOK_AHEAD_S)
        return step.done() and step.exception() is None and step.result() is self._END

    def _step(self) -> asyncio.Task[Any]:
        if self._next is None:
            self._next = asyncio.create_task(self._advance())
        return self._next

    async def _advance(self) -> Any:
        try:
            return await self._items.__anext__()
        except StopAsyncIteration:
            return self._END

    async def close(self) -> None:
        """Ends the generator where it is; its `finally` blocks run."""
        if self._next and not self._next.done():
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self._items.aclose()


def _snapshot(state: Mapping[str, Any]) -> str:
    return json.dumps(state, sort_keys=True)


def _line(item: Yielded) -> Line:
    if isinstance(item, str):
        return {"event": TEXT_EVENT, "content": item}
    line: Line = {"event": item.event, "content": item.content}
    if item.metadata:
        line["metadata"] = dict(item.metadata)
    return line


def _failure(error: Exception, in_seq: int) -> Line:
    return {
        "event": "agent.failed",
        "content": f"{type(error).__name__}: {error}",
        "metadata": {"error_code": "AGENT_FAILED"},
        "in_seq": in_seq,
    }


def state_of(stored: Any) -> dict[str, Any]:
    """The agent's memory from what the server has stored; a state that is no object was not made by this helper."""
    return cast(dict[str, Any], stored) if isinstance(stored, dict) else {}


def cancelled(in_seq: int) -> Line:
    """The line that answers a cancellation, and covers everything before it."""
    return {"event": "agent.cancelled", "content": "Cancelled", "in_seq": in_seq}
