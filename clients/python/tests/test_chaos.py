"""Fifty clients, a network that breaks, a server that is killed: no event is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from support import Server

from rejoin_client import Event, Session

CLIENTS = 50
KILLS = 10
MESSAGES = 6
EVENTS_PER_MESSAGE = 20

COUNTING_AGENT = f"""
from rejoin_client import Emit, agent

@agent
async def count(turn):
    done = turn.state.get("done", 0)  # of this message, if the turn was cut short
    for number in range(done, {EVENTS_PER_MESSAGE}):
        turn.state["done"] = number + 1
        yield Emit("agent.count", {{"message": turn.content, "number": number}})
    turn.state["done"] = 0
    yield Emit("agent.counted", turn.content)

count.run()
"""


def test_fifty_clients_lose_double_and_reorder_nothing_over_ten_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("REJOIN_SEED", time.time_ns()))
    print(f"REJOIN_SEED={seed}")
    asyncio.run(asyncio.wait_for(storm(tmp_path, random.Random(seed)), 300))


async def storm(directory: Path, chance: random.Random) -> None:
    program = directory / "count.py"
    program.write_text(COUNTING_AGENT)
    async with Server(directory / "data", "--agent", f"exec {sys.executable} {program}") as server:
        clients = [asyncio.create_task(client(server.url, random.Random(chance.random()))) for _ in range(CLIENTS)]
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            await server.restart()
        for got in await asyncio.gather(*clients):
            assert got == expected()


def expected() -> list[object]:
    return [
        item
        for message in range(MESSAGES)
        for item in [*({"message": message, "number": n} for n in range(EVENTS_PER_MESSAGE)), message]
    ]


async def client(url: str, chance: random.Random) -> list[object]:
    """Sends its messages and takes every event, while its connection is cut now and then."""
    got: list[object] = []
    async with Session(url) as session:
        sending = asyncio.create_task(send_all(session))
        cutting = asyncio.create_task(cut_now_and_then(session, chance))
        async for item in session:
            assert isinstance(item, Event), item
            assert item.seq == len(got) + 1
            got.append(item.content)
            if len(got) == MESSAGES * (EVENTS_PER_MESSAGE + 1):
                break
        cutting.cancel()
        await sending
    return got


async def send_all(session: Session) -> None:
    for message in range(MESSAGES):
        await session.send(message)


async def cut_now_and_then(session: Session, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.expovariate(0.5))
        session.cut()
