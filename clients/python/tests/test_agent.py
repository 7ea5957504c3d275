"""Agents written with the helper, as a child process and over HTTP, against a real server."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import hmac
import json
import sys
from pathlib import Path

import pytest
from support import Server, events_until

from rejoin_client import Session
from rejoin_client import agent as decorate
from rejoin_client.agent import asgi
from rejoin_client.agent.turn import Emit, Turn, cancelled, encode, run_turn, turn_of


def run(test) -> None:
    asyncio.run(asyncio.wait_for(test, 180))


def turn(state: dict) -> Turn:
    return Turn("Hello", "m1", 7, "sess_one", state)


async def lines_of(function, state: dict | None = None) -> list[dict]:
    return [line async for line in run_turn(function, turn({} if state is None else state))]


def test_last_event_carries_the_final_state_and_covers_the_message() -> None:
    async def agent(turn: Turn):
        turn.state["step"] = 1
        yield "a"
        turn.state["step"] = 2
        yield Emit("agent.final_answer", "b", {"kind": "short"})
        turn.state["step"] = 3

    assert asyncio.run(lines_of(agent)) == [
        {"event": "agent.answer_delta", "content": "a", "state": {"step": 1}},
        {
            "event": "agent.final_answer",
            "content": "b",
            "metadata": {"kind": "short"},
            "state": {"step": 3},
            "in_seq": 7,
        },
    ]


def test_state_of_an_event_does_not_run_ahead_of_it() -> None:
    async def agent(turn: Turn):
        for piece in "abc":
            turn.state["said"] = turn.state.get("said", "") + piece
            yield piece

    lines = asyncio.run(lines_of(agent))
    assert [line["state"]["said"] for line in lines] == ["a", "ab", "abc"]


def test_event_is_what_was_yielded_although_the_agent_changes_it_afterwards() -> None:
    async def agent(turn: Turn):
        found: list[int] = []
        about = {"found": 0}
        for number in range(3):
            found.append(number)
            about["found"] = len(found)
            yield Emit("agent.tool_result", found, about)
        found.clear()

    lines = asyncio.run(lines_of(agent))
    assert [line["content"] for line in lines] == [[0], [0, 1], [0, 1, 2]]
    assert [line["metadata"]["found"] for line in lines] == [1, 2, 3]


@pytest.mark.parametrize("wrong", [42, None, {"event": "agent.final_answer"}, b"bytes"])
def test_wrong_yield_is_named_in_the_failure(wrong: object) -> None:
    async def agent(turn: Turn):
        yield wrong

    (line,) = asyncio.run(lines_of(agent))
    assert line["event"] == "agent.failed"
    assert line["content"] == f"TypeError: an agent yields strings or Emit(name, content), not {wrong!r}"


def test_what_is_no_async_generator_is_refused_where_it_is_decorated() -> None:
    async def no_yield(turn: Turn):
        return "Hello"

    def no_async(turn: Turn):
        yield "Hello"

    def neither(turn: Turn):
        return "Hello"

    for wrong in (no_yield, no_async):
        with pytest.raises(
            TypeError, match=rf"@agent takes an async generator.*{wrong.__name__} has no `(yield|async)`"
        ):
            decorate(wrong)
    (line,) = asyncio.run(lines_of(neither))
    assert line["event"] == "agent.failed"
    assert "async generator" in line["content"] and "returned 'Hello'" in line["content"]


def test_turn_with_a_slow_end_is_covered_by_a_line_of_its_own() -> None:
    async def agent(turn: Turn):
        yield "a"
        await asyncio.sleep(0.2)
        turn.state["done"] = True

    lines = asyncio.run(lines_of(agent))
    assert lines[-1] == {"event": "session.state", "content": {"done": True}, "in_seq": 7}


def test_silent_turn_covers_its_message() -> None:
    async def agent(turn: Turn):
        if False:
            yield ""

    assert asyncio.run(lines_of(agent)) == [{"event": "session.state", "content": {}, "in_seq": 7}]


def test_exception_ends_the_turn_with_a_failure() -> None:
    async def agent(turn: Turn):
        yield "a"
        raise ValueError("no")

    lines = asyncio.run(lines_of(agent))
    assert lines[-1]["event"] == "agent.failed"
    assert lines[-1]["in_seq"] == 7


async def saying(turn: Turn):
    """Says three pieces; its progress is what it has said."""
    for piece in "abc"[len(turn.progress.get("said", "")) :]:
        turn.progress["said"] = turn.progress.get("said", "") + piece
        yield piece


def entry(in_seq: int) -> dict:
    return {"in_seq": in_seq, "message_id": "m", "content": "Hello"}


def test_progress_is_there_when_the_turn_runs_again_and_in_no_other_turn() -> None:
    lines = asyncio.run(lines_of(saying))
    assert "_turn" in lines[1]["state"]
    assert lines[2]["state"] == {}, "the end of the turn drops it"
    again = turn_of(entry(7), "sess_one", lines[1]["state"])
    assert again.progress == {"said": "ab"}
    assert again.state == {}
    assert turn_of(entry(8), "sess_one", lines[1]["state"]).progress == {}


def test_failed_and_cancelled_turns_leave_no_progress_and_no_state_that_was_not_stored() -> None:
    async def agent(turn: Turn):
        turn.progress["said"] = "a"
        turn.state["kept"] = True
        yield "a"
        turn.state["lost"] = True
        raise ValueError("no")

    lines = asyncio.run(lines_of(agent))
    assert lines[-1]["event"] == "agent.failed"
    assert lines[-1]["state"] == {"kept": True}
    assert cancelled(8, lines[0]["state"])["state"] == {"kept": True}
    assert "state" not in cancelled(8, {"kept": True})


@pytest.mark.parametrize("content", [float("nan"), {1, 2}, {"a": object()}])
def test_content_that_is_no_json_fails_its_turn(content: object) -> None:
    async def agent(turn: Turn):
        yield Emit("agent.said", content)

    assert [line["event"] for line in asyncio.run(lines_of(agent))] == ["agent.failed"]


@pytest.mark.parametrize(
    "name", ["", "a b", "session.state", "user.message", "system.x", "agent.error", "é", "x" * 129]
)
def test_event_name_that_the_server_does_not_take_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="event"):
        Emit(name)


def test_half_a_surrogate_pair_does_not_end_the_agent() -> None:
    assert json.loads(encode({"event": "agent.said", "content": "a\ud83d"}))["content"] == "a?"


def test_whole_turn_runs_in_one_task_and_one_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    tasks = set()
    ended = []

    async def agent(turn: Turn):
        token = variable.set("set")
        try:
            for piece in "abc":
                tasks.add(asyncio.current_task())
                yield piece
                await asyncio.sleep(0.01)
        finally:
            variable.reset(token)  # fails in another context
            ended.append(asyncio.current_task())

    async def cut_short() -> None:
        lines = run_turn(agent, turn({}))
        await lines.__anext__()
        await lines.aclose()

    lines = asyncio.run(lines_of(agent))
    assert lines[-1]["event"] != "agent.failed"
    assert tasks == set(ended)
    tasks.clear()
    ended.clear()
    asyncio.run(cut_short())
    assert tasks == set(ended), "a turn that is cut short ends in its task too"


CANCEL_AGENT = """
import asyncio
from rejoin_client import agent

@agent
async def slow(turn):
    print("this goes to the log")
    turn.state["turns"] = turn.state.get("turns", 0) + 1
    yield f"working on {turn.content}"
    if turn.content == "for ever":
        await asyncio.sleep(3600)
    yield f"turn {turn.state['turns']} done"

slow.run()
"""


def test_cancel_stops_the_turn_under_way_and_the_next_message_runs(tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "slow.py"
        program.write_text(CANCEL_AGENT)
        command = f"{sys.executable} {program}"
        async with Server(tmp_path / "data", "--agent", command) as server, Session(server.url) as session:
            await session.send("for ever")
            await events_until(session, lambda event: event.content == "working on for ever")
            await session.cancel()
            await events_until(session, lambda event: event.name == "agent.cancelled")
            await session.send("something short")
            events = await events_until(session, lambda event: str(event.content).endswith("done"))
            assert events[-1].content == "turn 2 done"

    run(test())


def test_signature_is_checked() -> None:
    body, secret = b'{"a":1}', "s3cret"
    good = hmac.new(secret.encode(), b"1000." + body, hashlib.sha256).hexdigest()
    assert asgi.is_signed(f"t=1000,v1={good}", body, secret, 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body + b" ", secret, 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body, "other", 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body, secret, 2000)
    assert not asgi.is_signed("", body, secret, 1010)


@pytest.mark.parametrize("stamp", ["²", "1000²", "9" * 400, "9" * 5000, "-1000", "1000.0", " 1000"])
def test_time_that_is_no_number_of_seconds_is_not_signed(stamp: str) -> None:
    good = hmac.new(b"s3cret", f"{stamp}.".encode(), hashlib.sha256).hexdigest()
    assert not asgi.is_signed(f"t={stamp},v1={good}", b"", "s3cret", 1010)


def test_signature_that_is_no_ascii_is_not_signed() -> None:
    assert not asgi.is_signed("t=1000,v1=\xe9\xff", b"", "s3cret", 1010)
