"""Asks the agent of a Rejoin server a question and prints its answer as it comes.

pip install ../../clients/python
python client.py "How are you?"

Stop it in the middle and start it again without a question: the rest of the answer comes, and nothing of it twice.
"""

import asyncio
import os
import sys

from rejoin_client import Event, FileKeep, Gap, Session, Status

SERVER = os.environ.get("SERVER", "ws://127.0.0.1:8181/ws")

ENDS = ("agent.final_answer", "agent.failed", "agent.cancelled")


def show(status: Status) -> None:
    print(f"[{type(status).__name__}]", file=sys.stderr)


async def main(question: str) -> None:
    async with Session(SERVER, keep=FileKeep("session.json"), on_status=show) as session:
        asked = (await session.send(question)).message_id if question else None
        pieces = 0
        async for incoming in session:
            if isinstance(incoming, Gap):
                print("\n(some of it is gone)")
            elif isinstance(incoming, Event) and incoming.name == "agent.answer_delta":
                print(incoming.content, end="", flush=True)
                pieces += 1
            elif isinstance(incoming, Event) and incoming.name in ENDS:
                # The whole answer, which the pieces have said already; or there were none.
                is_said = incoming.name == "agent.final_answer" and pieces > 0
                print("" if is_said else incoming.content)
                pieces = 0
                if asked in (None, incoming.metadata.get("message_id")):
                    break  # else it was the end of an answer that an earlier run has not seen


asyncio.run(main(" ".join(sys.argv[1:])))
