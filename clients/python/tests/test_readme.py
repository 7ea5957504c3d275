"""The programs of the README do what it says."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from support import SOURCE, Server

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_client_of_the_readme_talks_to_agent_of_the_readme(tmp_path: Path) -> None:
    agent = next(program for program in PROGRAMS if "echo.run()" in program)
    client = next(program for program in PROGRAMS if "FileKeep" in program)
    (tmp_path / "echo.py").write_text(agent)

    async def test() -> None:
        command = f"{sys.executable} {tmp_path / 'echo.py'}"
        async with Server(tmp_path / "data", "--agent", command) as server:
            (tmp_path / "client.py").write_text(client.replace("ws://127.0.0.1:8181/ws", server.url))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "client.py"),
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": SOURCE},
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
            assert said.decode().splitlines() == [
                "agent.answer_delta You said: ",
                "agent.answer_delta Plan a trip to Lisbon",
                "agent.final_answer That was message 1.",
            ]

    asyncio.run(asyncio.wait_for(test(), 60))
