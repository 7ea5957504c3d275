"""Write an agent as an async generator; Rejoin keeps its state and restarts it where it was.

::

    @agent
    async def echo(turn: Turn):
        turn.state["count"] = turn.state.get("count", 0) + 1
        yield f"You said: {turn.content}"

    if __name__ == "__main__":
        echo.run()          # rejoin --agent 'python echo.py'

    app = echo.asgi()       # uvicorn echo:app, then rejoin --agent http://127.0.0.1:8000
"""

from __future__ import annotations

import inspect

from . import child
from .asgi import AsgiApp, asgi_app
from .turn import AgentFunction, Emit, Turn, Yielded

__all__ = ["Agent", "Emit", "Turn", "Yielded", "agent"]


class Agent:
    """An agent that can run as a child process or as a web application."""

    def __init__(self, function: AgentFunction) -> None:
        self.function = function

    def run(self) -> None:
        """Serves one session over standard input and output, as a child of `rejoin --agent '<command>'`."""
        child.run(self.function)

    def asgi(self, *, secret: str | None = None) -> AsgiApp:
        """An ASGI application for `rejoin --agent http://...`; `secret` is the server's `agent_secret`."""
        return asgi_app(self.function, secret)


def agent(function: AgentFunction) -> Agent:
    """Turns an async generator function, which runs one turn, into an agent."""
    untyped: object = function
    if inspect.iscoroutinefunction(untyped) or inspect.isgeneratorfunction(untyped):
        missing = "async" if inspect.isgeneratorfunction(untyped) else "yield"
        raise TypeError(f"@agent takes an async generator function, and {function.__name__} has no `{missing}`")
    return Agent(function)
