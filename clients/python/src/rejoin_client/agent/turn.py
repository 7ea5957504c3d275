"""One turn of an agent: a message comes in, an async generator yields events, state is saved along the way."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from .names import check_event_name

#: How long the runner waits to see whether an event was the last of its turn. The last one carries the final state, so
#: that both are stored in one commit.
_LOOK_AHEAD_S = 0.005

#: The name of an event that was yielded as a plain string.
TEXT_EVENT = "agent.answer_delta"

#: Where the stored state keeps the progress of the turn under way.
_TURN = "_turn"


@dataclass
class Turn:
    """What an agent gets for one message."""

    content: Any
    """What the client sent."""
    message_id: str
    """The id that its client gave it, or the server."""
    in_seq: int
    """The message's number in the in log."""
    session_id: str
    state: dict[str, Any]
    """The agent's memory, any JSON. Change it freely: it is saved with every event you yield, in one commit with that
    event. A turn that was cut short by a crash runs again, with the state as of the last event that was stored."""
    progress: dict[str, Any] = field(default_factory=dict[str, Any])
    """What this turn has done so far: saved like the state, empty when a turn begins, there again when the turn runs
    again after a crash, and dropped when the turn ends, is cancelled or fails."""


@dataclass(frozen=True)
class Emit:
    """An event with a name of its own; a plain string is an `agent.answer_delta`."""

    event: str
    content: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        check_event_name(self.event)


#: What an agent may yield.
Yielded = str | Emit

#: An agent: an async generator function that runs one turn.
AgentFunction = Callable[[Turn], AsyncIterator[Yielded]]

#: One line to the server, as JSON.
Line = dict[str, Any]


def turn_of(entry: Mapping[str, Any], session_id: str, stored: Mapping[str, Any]) -> Turn:
    """The turn that an entry begins, or begins again."""
    state: dict[str, Any] = json.loads(_dumps(stored))  # a copy: what is not stored yet can be lost
    under_way: dict[str, Any] = state.pop(_TURN, {})
    progress: dict[str, Any] = under_way["progress"] if under_way.get("in_seq") == entry["in_seq"] else {}
    return Turn(entry.get("content"), entry.get("message_id") or "", entry["in_seq"], session_id, state, progress)


async def run_turn(function: AgentFunction, turn: Turn) -> AsyncIterator[Line]:
    """Runs a turn; yields its lines. The last line covers the message.

    An exception of the agent ends the turn with `agent.failed`: the same message would probably fail again.
    """
    saved = _snapshot(turn)
    covered = False
    items = _Ahead(_iterator(function(turn)))
    try:
        async for item in items:
            # Before the agent runs on: what it does next, also to what it yielded, belongs to the next event.
            line, state = _line(item), _snapshot(turn)
            covered = await items.is_last()
            if covered:
                turn.progress = {}
                state = _snapshot(turn)
            if state != saved:
                line["state"] = json.loads(state)
                saved = state
            if covered:
                line["in_seq"] = turn.in_seq
            yield line
        if not covered:
            saved = _dumps(turn.state)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        covered = True
        yield {**_failure(error, turn.in_seq), **_without_progress(json.loads(saved))}
    finally:
        await items.close()
    if not covered:
        yield {"event": "session.state", "content": json.loads(saved), "in_seq": turn.in_seq}


class _Ahead:
    """Iterates over an async generator and can tell whether the item in hand was the last.

    All of the generator runs in one task: cancel scopes, time-outs and context variables, which libraries hold open
    across a `yield`, belong to the task that they were entered in.
    """

    _END = object()

    def __init__(self, items: AsyncIterator[Yielded]) -> None:
        self._wanted: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._next: asyncio.Future[Any] | None = None
        self._task = asyncio.create_task(self._run(items))

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

    def _step(self) -> asyncio.Future[Any]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._wanted.put_nowait(self._next)
        return self._next

    async def _run(self, items: AsyncIterator[Yielded]) -> None:
        """Makes one step of the generator whenever one is wanted, and ends it where it is when it is cancelled."""
        try:
            while True:
                step = await self._wanted.get()
                try:
                    step.set_result(await items.__anext__())
                except StopAsyncIteration:
                    return step.set_result(self._END)
                except Exception as error:
                    return step.set_exception(error)
                except BaseException:
                    step.cancel()
                    raise
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    async def close(self) -> None:
        """Ends the generator where it is; its `finally` blocks run."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._next and self._next.done() and not self._next.cancelled():
            self._next.exception()  # an error that nobody asked for


def _iterator(returned: Any) -> AsyncIterator[Yielded]:
    """What the agent's function returned; if it is nothing to iterate over, an iterator that says so in the turn."""
    if isinstance(returned, AsyncIterator):
        return cast(AsyncIterator[Yielded], returned)
    if inspect.iscoroutine(returned):
        returned.close()  # nobody will await it

    async def wrong() -> AsyncIterator[Yielded]:
        raise TypeError(f"an agent is an async generator function; this one returned {returned!r}")
        yield ""

    return wrong()


def _snapshot(turn: Turn) -> str:
    if not turn.progress:
        return _dumps(turn.state)
    return _dumps({**turn.state, _TURN: {"in_seq": turn.in_seq, "progress": turn.progress}})


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _without_progress(stored: Mapping[str, Any]) -> Line:
    """The member that drops a turn's progress from the stored state, if it has any."""
    return {"state": {key: value for key, value in stored.items() if key != _TURN}} if _TURN in stored else {}


def _line(item: Any) -> Line:
    """The event as it is now: a copy. What is no event, or no JSON, fails in the agent's turn, not in the transport."""
    if isinstance(item, str):
        return {"event": TEXT_EVENT, "content": item}
    if not isinstance(item, Emit):
        raise TypeError(f"an agent yields strings or Emit(name, content), not {item!r}")
    line: Line = {"event": item.event, "content": item.content}
    if item.metadata:
        line["metadata"] = dict(item.metadata)
    copy: Line = json.loads(json.dumps(line, allow_nan=False))
    return copy


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


def cancelled(in_seq: int, stored: Mapping[str, Any]) -> Line:
    """The line that answers a cancellation, and covers everything before it."""
    line: Line = {"event": "agent.cancelled", "content": "Cancelled", "in_seq": in_seq}
    return {**line, **_without_progress(stored)}


def encode(line: Line) -> bytes:
    """The line's bytes. Half a surrogate pair, which a model may stream, has none: it becomes a question mark."""
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
