"""A chat agent on any OpenAI-compatible endpoint. An answer that is cut short by a crash goes on where it was.

pip install ../../clients/python openai
OPENAI_API_KEY=... rejoin --agent 'python chat_agent.py'
"""

import os

from openai import AsyncOpenAI
from rejoin_client import Emit, Turn, agent

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")
GO_ON = "Your answer was cut off. Continue exactly where it ends; do not repeat anything."


@agent
async def chat(turn: Turn):
    messages = turn.state.setdefault("messages", [])
    if not turn.progress:  # a new turn, not one that was cut short
        messages.append({"role": "user", "content": turn.content})
    prefix = turn.progress.setdefault("answer", "")
    cut_off = [{"role": "assistant", "content": prefix}, {"role": "user", "content": GO_ON}]
    asked = messages + (cut_off if prefix else [])
    stream = await AsyncOpenAI().chat.completions.create(model=MODEL, messages=asked, stream=True)
    async for chunk in stream:
        if chunk.choices and (piece := chunk.choices[0].delta.content):
            turn.progress["answer"] += piece
            yield piece
    answer = turn.progress["answer"]
    messages.append({"role": "assistant", "content": answer})
    yield Emit("agent.final_answer", answer)


if __name__ == "__main__":
    chat.run()
