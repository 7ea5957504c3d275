"""An answer of 20,000 small pieces, told while no client is there, comes back whole with default settings."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path

from support import Server, events_until

from rejoin_client import FileKeep, Session

PIECES = 20_000

TALKER = """
from rejoin_client import Emit, agent

@agent
async def talk(turn):
    for number in range(turn.content):
        yield f"t{number + 1} "
    yield Emit("agent.final_answer")  # the pieces are the answer

talk.run()
"""


def test_answer_told_while_the_client_is_away_is_whole(tmp_path: Path) -> None:
    async def test() -> None:
        program = tmp_path / "talker.py"
        program.write_text(TALKER)
        keep = FileKeep(tmp_path / "session.json")
        async with Server(tmp_path / "data", "--agent", f"exec {sys.executable} {program}") as server:
            async with Session(server.url, keep=keep) as session:
                await session.send(PIECES)
                session_id = session.session_id
            while await newest_event(server, session_id) <= PIECES:
                await asyncio.sleep(0.1)
            async with Session(server.url, keep=keep) as session:
                events = await events_until(session, lambda event: event.name == "agent.final_answer")
            assert [event.content for event in events[:-1]] == [f"t{number} " for number in range(1, PIECES + 1)]

    asyncio.run(asyncio.wait_for(test(), 180))


async def newest_event(server: Server, session_id: str | None) -> int:
    url = f"{server.http}/api/sessions/{session_id}/health"
    return json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()))["newest_event_seq"] or 0
