"""Runs the console blocks of pages, each page from top to bottom in an empty directory, and compares what they print.

A line that begins with `$ ` is a command, the lines after it are what it prints; `…` stands for anything. Servers get
free ports in place of 8181 and 8000. Part of scripts/check-docs; static.py explains the words behind a block's language.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from markdown import ROOT, Block, Page, pages

#: What pages install by the name it is published under, and where it is here.
PACKAGES = [("pip install", "rejoin-client", "clients/python"), ("npm install", "rejoin-client", "clients/js")]

COMMAND_TIMEOUT_S = 120
START_TIMEOUT_S = 30


class Mismatch(Exception):
    """A page says something that is not so."""


class Run:
    """One page, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {"8181": free_port(), "8000": free_port()}
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REJOIN_")},
            "HOME": str(directory),
            "REJOIN_LISTEN": f"127.0.0.1:{self.ports['8181']}",
            "REJOIN_DATA_DIR": str(directory / "rejoin"),
            "REJOIN_URL": f"http://127.0.0.1:{self.ports['8181']}",
            "REJOIN_SSE_KEEP_ALIVE": "1s",  # streams that a page cuts with `head` end soon
            "UVICORN_PORT": str(self.ports["8000"]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "ROOT": str(ROOT),
        }

    def moved(self, text: str) -> str:
        """The text with this run's ports."""
        return re.sub(r"(127\.0\.0\.1:|localhost:|--port )(8181|8000)", lambda at: at[1] + self.ports[at[2]], text)

    def block(self, block: Block) -> None:
        if block.word("skip") or block.word("from") or block.word("tested-by"):
            return
        if name := block.word("save"):
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.moved(block.text))
        elif block.language == "toml":
            self.check_settings(block)
        elif block.language == "console":
            self.console(block)

    def check_settings(self, block: Block) -> None:
        path = self.directory / "settings-of-the-page.toml"
        path.write_text(block.text)
        self.command(f"BACKEND_KEY=0123456789abcdef0123 rejoin check-config --config '{path}'")

    def console(self, block: Block) -> None:
        for command, printed in commands_of(self.moved(block.text)):
            if "serve" in block.words:
                self.serve(command, printed)
            else:
                compare(command, printed, self.command(as_installed(command)))

    def command(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            text=True,
        )
        if done.returncode != 0:
            raise Mismatch(f"$ {command}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def serve(self, command: str, printed: str) -> None:
        """Starts a server; one of the same program that runs already ends before."""
        program = command.split()[0]
        self.end(program)
        log = self.directory / f"{program}.out"
        with log.open("wb") as output, log.with_suffix(".log").open("wb") as errors:
            self.servers[program] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        port = self.ports["8181" if program == "rejoin" else "8000"]
        wait_for(lambda: self.answers(program, port), lambda: f"$ {command}\ndoes not listen:\n{log.read_text()}")
        if program == "rejoin":
            self.check_pages(port)
        wait_for(lambda: matches(printed, log.read_text()), lambda: difference(command, printed, log.read_text()))

    def check_pages(self, port: str) -> None:
        """Pages tell their readers to open /play; a binary can be built without what is served there."""
        for path in ("/", "/play", "/assets/client/index.js"):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).close()
            except urllib.error.HTTPError as error:
                raise Mismatch(f"this rejoin has no pages: {path} is answered with {error.code}") from None

    def answers(self, program: str, port: str) -> bool:
        if (ended := self.servers[program].poll()) is not None:
            raise Mismatch(f"{program} ended with {ended}: {(self.directory / f'{program}.log').read_text()}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def end(self, program: str) -> None:
        server = self.servers.pop(program, None)
        if server and server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)  # its own session: nobody else is in its group
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def end_all(self) -> None:
        for program in list(self.servers):
            self.end(program)


def commands_of(text: str) -> list[tuple[str, str]]:
    """Each command of a block with what it prints. Lines that begin with `> ` go on with a command."""
    commands: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], ""))
        elif line.startswith("> ") and commands and not commands[-1][1]:
            commands[-1] = (f"{commands[-1][0]}\n{line[2:]}", "")
        elif commands:
            commands[-1] = (commands[-1][0], f"{commands[-1][1]}{line}\n")
    return commands


def compare(command: str, printed: str, output: str) -> None:
    if not matches(printed, output):
        raise Mismatch(difference(command, printed, output))


def matches(printed: str, output: str) -> bool:
    if not printed.strip():
        return True  # the page does not show it
    pattern = "".join(pattern_of(line.rstrip()) for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())) is not None


def pattern_of(line: str) -> str:
    """Any number of lines for a line that is `…`, anything in its line for a `…` in another."""
    return r"(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"


def as_installed(command: str) -> str:
    """The command with the packages of this repository in place of published ones."""
    command = command.replace("../rejoin/clients/", f"{ROOT}/clients/")  # beside a clone
    for installer, package, source in PACKAGES:
        command = re.sub(rf"({installer} .*?)\b{package}\b", rf"\g<1>'{ROOT / source}'", command)
    return command


def difference(command: str, printed: str, output: str) -> str:
    return f"$ {command}\nthe page shows:\n{printed}\nit printed:\n{output}"


def wait_for(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise Mismatch(otherwise())
        time.sleep(0.05)


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run_page(page: Page) -> None:
    with tempfile.TemporaryDirectory(prefix="rejoin-docs-") as directory:
        run = Run(Path(directory))
        try:
            for block in page.blocks:
                try:
                    run.block(block)
                except (Mismatch, subprocess.TimeoutExpired) as problem:
                    raise SystemExit(f"{block.place}:\n{problem}") from None
        finally:
            run.end_all()


def main() -> None:
    wanted = sys.argv[1:]
    for page in pages():
        name = str(page.path.relative_to(ROOT))
        if wanted and name not in wanted:
            continue
        began = time.monotonic()
        run_page(page)
        if page.blocks:
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
