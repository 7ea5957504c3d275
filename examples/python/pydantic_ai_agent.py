"""A Pydantic AI agent behind Rejoin: an answer that is cut short by a crash goes on where it was.

pip install ../../clients/python 'pydantic-ai-slim[openai]'
OPENAI_API_KEY=... rejoin --agent 'python pydantic_ai_agent.py'
"""

import os
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from rejoin_client import Emit, Turn, Yielded, agent

GO_ON = "Your answer was cut off. Continue exactly where it ends; do not repeat anything."

assistant = Agent(OpenAIChatModel(os.environ.get("MODEL", "gpt-4.1-mini")), instructions="Be concise.")


@agent
async def chat(turn: Turn) -> AsyncIterator[Yielded]:
    history = ModelMessagesTypeAdapter.validate_python(turn.state.get("history", []))
    prefix = turn.progress.setdefault("answer", "")
    asked, before = (GO_ON, exchange(history, turn.content, prefix)) if prefix else (turn.content, history)
    async with assistant.run_stream(asked, message_history=before) as run:
        async for piece in run.stream_text(delta=True, debounce_by=None):
            turn.progress["answer"] += piece
            yield piece
    answer = turn.progress["answer"]
    said = exchange(history, turn.content, answer)
    turn.state["history"] = ModelMessagesTypeAdapter.dump_python(said, mode="json")
    yield Emit("agent.final_answer", answer)


def exchange(history: list[ModelMessage], question: str, answer: str) -> list[ModelMessage]:
    return [*history, ModelRequest([UserPromptPart(question)]), ModelResponse([TextPart(answer)])]


if __name__ == "__main__":
    chat.run()
