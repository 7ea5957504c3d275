"""An agent inside a FastAPI application that has routes of its own.

pip install ../../clients/python fastapi uvicorn
uvicorn fastapi_app:app --port 8000
rejoin --agent http://127.0.0.1:8000/agent/
"""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from rejoin_client import Emit, Turn, Yielded, agent

app = FastAPI()


@app.get("/")
def status() -> dict[str, str]:
    return {"status": "fine"}


@agent
async def counter(turn: Turn) -> AsyncIterator[Yielded]:
    """Counts to the number that it is told, and goes on after a crash where it was."""
    for number in range(turn.progress.get("counted", 0) + 1, int(turn.content) + 1):
        await asyncio.sleep(0.05)  # work that takes its time
        turn.progress["counted"] = number
        yield f"{number} "
    turn.state["turns"] = turn.state.get("turns", 0) + 1
    whole = "".join(f"{number} " for number in range(1, int(turn.content) + 1))
    yield Emit("agent.final_answer", whole, {"turns_in_this_session": turn.state["turns"]})


# The slash at the end of the URL matters: FastAPI redirects without it, and Rejoin follows no redirects.
app.mount("/agent", counter.asgi())
