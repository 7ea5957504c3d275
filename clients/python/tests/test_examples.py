"""The programs in examples/python do what they say, also when they, or the server, are killed in the middle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fake_llm import ANSWER, PIECE, FakeLlm, fake_llm
from processes import Uvicorn, kill_agents_of
from support import SOURCE, Server, events_until

from rejoin_client import Event, Session

AHEAD = 5 * PIECE  # how far the model may be ahead of the client while something is killed
EXAMPLES = Path(__file__).resolve().parents[3] / "examples/python"


def run(test) -> None:
    asyncio.run(asyncio.wait_for(test, 180))


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("REJOIN_SEED", time.time_ns()))
    print(f"REJOIN_SEED={seed}")
    return random.Random(seed)


def command(program: str) -> str:
    return f"exec {sys.executable} {EXAMPLES / program}"


@pytest.mark.parametrize(("program", "kills"), [("chat_agent.py", 10), ("pydantic_ai_agent.py", 3)])
def test_chat_agent_killed_at_random_says_its_whole_answer_once(
    program: str, kills: int, tmp_path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with fake_llm() as llm:
            monkeypatch.setenv("OPENAI_BASE_URL", llm.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "none")
            async with Server(tmp_path, "--agent", command(program)) as server, Session(server.url) as session:

                async def kill(kill: int) -> None:
                    await asyncio.sleep(chance.random() * 0.05)
                    if kill % 3 == 0:
                        await server.restart()
                    else:
                        await kill_agents_of(server.pid, program)

                await session.send("Tell me a story")
                assert await said_while(session, llm, kill, kills, chance) == ANSWER

    run(test())


async def said_while(session: Session, llm: FakeLlm, kill, kills: int, chance: random.Random) -> str:
    """What the agent said while something was killed now and then."""
    said, killed, next_kill = "", 0, 3
    llm.allow(AHEAD)
    async for item in session:
        assert isinstance(item, Event), item
        if item.name == "agent.final_answer":
            assert item.content == said
            assert killed == kills
            return said
        assert item.name == "agent.answer_delta", item
        said += item.content
        if killed < kills and item.seq >= next_kill:
            killed += 1
            next_kill = item.seq + chance.randint(1, 9)
            await kill(killed)
        # An agent that has finished is not started again, so the answer must not end before the last kill.
        llm.allow(len(said) + AHEAD if killed < kills else len(ANSWER))
    raise AssertionError("the session stopped")


def test_question_after_a_cancelled_answer_is_asked_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fake_llm() as llm:
            monkeypatch.setenv("OPENAI_BASE_URL", llm.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "none")
            server = Server(tmp_path, "--agent", command("chat_agent.py"))
            async with server, Session(server.url) as session:
                await session.send("Tell me a story")
                await events_until(session, lambda event: event.name == "agent.answer_delta")
                await session.cancel()
                await events_until(session, lambda event: event.name == "agent.cancelled")
                await session.send("Tell me another one")
                events = await events_until(session, lambda event: event.name == "agent.final_answer")
                assert events[-1].content == ANSWER
                assert llm.asked[-1][-1]["content"] == "Tell me another one"

    run(test())


def test_fastapi_application_and_server_killed_in_the_middle_count_each_number_once(
    tmp_path: Path, chance: random.Random
) -> None:
    async def test() -> None:
        async with Uvicorn(EXAMPLES, "fastapi_app:app") as application:
            assert b"fine" in await asyncio.to_thread(lambda: urllib.request.urlopen(application.url).read())
            agent = f"{application.url}/agent/"
            async with Server(tmp_path, "--agent", agent) as server, Session(server.url) as session:
                await session.send(100)
                said = ""
                for killed in (application, server, application, server, application):
                    until = len(said) + chance.randint(10, 50)
                    async for item in session:
                        assert isinstance(item, Event), item
                        said += item.content
                        if len(said) > until:
                            break
                    await killed.restart()
                events = await events_until(session, lambda event: event.name == "agent.final_answer")
                said += "".join(event.content for event in events[:-1])
                assert said == "".join(f"{number} " for number in range(1, 101))
                assert events[-1].content == said
                assert events[-1].metadata["turns_in_this_session"] == 1

    run(test())


def test_cancel_ends_a_turn_of_a_web_application_and_the_next_begins_at_the_beginning(tmp_path: Path) -> None:
    async def test() -> None:
        async with Uvicorn(EXAMPLES, "fastapi_app:app") as application:
            agent = f"{application.url}/agent/"
            async with Server(tmp_path, "--agent", agent) as server, Session(server.url) as session:
                await session.send(100_000)
                await events_until(session, lambda event: event.content == "3 ")
                await session.cancel()
                await events_until(session, lambda event: event.name == "agent.cancelled")
                await session.send(2)
                events = await events_until(session, lambda event: event.name == "agent.final_answer")
                assert [event.content for event in events[:-1]] == ["1 ", "2 "]

    run(test())


def test_client_killed_in_the_middle_prints_the_rest_when_started_again(tmp_path: Path) -> None:
    async def test() -> None:
        application = Uvicorn(EXAMPLES, "fastapi_app:app")
        server = Server(tmp_path / "data", "--agent", f"{application.url}/agent/")
        async with application, server:
            first = await printed(tmp_path, server, ["60"], until="20 ")
            second = await printed(tmp_path, server, [], until=None)
            whole = "".join(f"{number} " for number in range(1, 61)) + "\n"
            # What it had in hand when it was killed comes again; nothing is missing and nothing else comes twice.
            assert whole.startswith(first)
            assert whole.endswith(second)
            assert len(first) + len(second) >= len(whole), f"{first} | {second}"

    run(test())


def test_client_that_missed_the_end_of_an_answer_prints_it_and_the_answer_to_its_question(tmp_path: Path) -> None:
    async def test() -> None:
        application = Uvicorn(EXAMPLES, "fastapi_app:app")
        server = Server(tmp_path / "data", "--agent", f"{application.url}/agent/")
        async with application, server:
            await printed(tmp_path, server, ["40"], until="20 ")
            second = await printed(tmp_path, server, ["3"], until=None)
            assert second.endswith("39 40 \n1 2 3 \n"), second

    run(test())


WHOLE = """
from rejoin_client import Emit, agent

@agent
async def whole(turn):
    yield Emit("agent.final_answer", f"You said: {turn.content}")

whole.run()
"""


def test_client_prints_an_answer_that_comes_without_pieces_once(tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "whole.py"
        program.write_text(WHOLE)
        async with Server(tmp_path / "data", "--agent", f"exec {sys.executable} {program}") as server:
            assert await printed(tmp_path, server, ["Hello"], until=None) == "You said: Hello\n"

    run(test())


async def printed(directory: Path, server: Server, arguments: list[str], until: str | None) -> str:
    """What the client prints; it is killed once it has printed `until`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "client.py"), *arguments),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCE, "SERVER": server.url},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    text = ""
    while piece := await process.stdout.read(1):
        text += piece.decode()
        if until and until in text:
            process.send_signal(signal.SIGKILL)
            break
    await process.wait()
    return text


SIGNED = """
from rejoin_client import Emit, agent

@agent
async def hello(turn):
    yield Emit("agent.final_answer", "Hello")

app = hello.asgi(secret="a secret of both")
"""


def test_web_application_with_a_secret_takes_signed_requests_only(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "signed.py").write_text(SIGNED)
        async with Uvicorn(tmp_path, "signed:app") as application:
            request = urllib.request.Request(application.url, data=b"{}", method="POST")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(urllib.request.urlopen, request)
            options = ("--agent", application.url, "--agent-secret", "a secret of both")
            async with Server(tmp_path / "data", *options) as server, Session(server.url) as session:
                await session.send("Hello?")
                events = await events_until(session, lambda event: event.name == "agent.final_answer")
                assert [event.content for event in events] == ["Hello"]

    run(test())
