"""Agents written with the helper, as a child process and over HTTP, against a real server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from fake_llm import ANSWER, fake_llm
from support import Server, events_until

from rejoin_client import Event, Session
from rejoin_client.agent import asgi
from rejoin_client.agent.turn import Emit, Turn, run_turn

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/python"
KILLS = 10


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


def agents_of(server: int) -> list[int]:
    """The processes below the server that run the chat agent."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_agent = entry.name.isdigit() and b"chat_agent.py" in (entry / "cmdline").read_bytes()
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


def test_chat_agent_killed_ten_times_says_its_whole_answer_once(tmp_path: Path) -> None:
    async def test() -> None:
        chance = random.Random(int(os.environ.get("REJOIN_SEED", time.time_ns())))
        async with fake_llm() as base_url:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("OPENAI_BASE_URL", base_url)
                patch.setenv("OPENAI_API_KEY", "none")
                command = f"exec {sys.executable} {EXAMPLES / 'chat_agent.py'}"
                async with Server(tmp_path, "--agent", command) as server, Session(server.url) as session:
                    await session.send("Tell me a story")
                    assert await said_while_killing(session, server, chance) == ANSWER

    run(test())


async def said_while_killing(session: Session, server: Server, chance: random.Random) -> str:
    """What the agent said; it is killed now and then, the server included."""
    said, kills, next_kill = "", 0, 3
    async for item in session:
        assert isinstance(item, Event), item
        if item.name == "agent.final_answer":
            assert item.content == said
            assert kills == KILLS
            return said
        assert item.name == "agent.answer_delta", item
        said += item.content
        if kills < KILLS and item.seq >= next_kill:
            kills += 1
            next_kill = item.seq + chance.randint(1, 9)
            await asyncio.sleep(chance.random() * 0.05)
            if kills % 3 == 0:
                await server.restart()
            else:
                while not (agents := agents_of(server.pid)):
                    await asyncio.sleep(0.01)  # the last one was killed just now
                for process in agents:
                    os.kill(process, signal.SIGKILL)
    raise AssertionError("the session stopped")


def test_signature_is_checked() -> None:
    body, secret = b'{"a":1}', "s3cret"
    good = hmac.new(secret.encode(), b"1000." + body, hashlib.sha256).hexdigest()
    assert asgi.is_signed(f"t=1000,v1={good}", body, secret, 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body + b" ", secret, 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body, "other", 1010)
    assert not asgi.is_signed(f"t=1000,v1={good}", body, secret, 2000)
    assert not asgi.is_signed("", body, secret, 1010)
