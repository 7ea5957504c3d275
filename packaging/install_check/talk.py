"""A server that is run as a newcomer would run it, and what the check asks of it."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = 60  # seconds that a server may take to say where it listens, installation included
STOP = 30

# Under which path the server has which folder.
PAGES = {"home": "dashboard/home", "play": "dashboard/play", "shared": "dashboard/shared", "client": "clients/js/src"}


class Server:
    """A command that ends in a running server. Used as a context, it is stopped with SIGTERM; it must then exit with
    `stopped`, and the server with it."""

    def __init__(self, command: list, cwd: Path, env: dict, key: str | None = None, stopped: int = 0):
        self.key, self.stopped, self.output, self.url = key, stopped, [], None
        self.listens = threading.Event()
        data = cwd / "data"
        command = [str(part) for part in command] + ["--listen", "127.0.0.1:0", "--data-dir", str(data),
                                                     "--drain-timeout", "1s"]
        started = time.monotonic()
        self.process = subprocess.Popen(command, cwd=cwd, env=env, text=True, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.listens.wait(START) or self.url is None:
            self._kill()
            raise SystemExit(f"{command} did not come to listen:\n{''.join(self.output)}")
        self.seconds = time.monotonic() - started

    def _read(self) -> None:
        for line in self.process.stdout:
            self.output.append(line)
            if found := re.search(r"listening on\s+(http://\S+)", line):
                self.url = found[1]
                self.listens.set()
        self.listens.set()

    def _kill(self) -> None:
        """Ends the process and everything that it has started, which are a process group of their own."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self.process.terminate()
                code = self.process.wait(STOP)
                assert code == self.stopped, f"it exited with {code}:\n{''.join(self.output)}"
                self.reader.join(STOP)
                assert not self.reader.is_alive(), "the server outlived the command that started it"
        finally:
            self._kill()

    def call(self, method: str, path: str, body=None, headers=None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} | (headers or {})
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def check(server: Server) -> None:
    """The server is ready, has all pages, and an agent that answers."""
    assert server.call("GET", "/readyz")[0] == 200
    check_pages(server)
    check_agent(server)


def check_pages(server: Server) -> None:
    for page in ["/", "/play"]:
        status, content = server.call("GET", page)
        assert status == 200 and b"<html" in content, f"{page}: {status}"
    for name, folder in PAGES.items():
        for file in sorted((ROOT / folder).iterdir()):
            status, content = server.call("GET", f"/assets/{name}/{file.name}")
            assert status == 200, f"{folder}/{file.name} is not in the binary: {status}"
            assert content == file.read_bytes(), f"{folder}/{file.name} is another in the binary"


def check_agent(server: Server) -> None:
    status, made = server.call("POST", "/api/sessions", {})
    assert status == 201, made
    session = f"/api/sessions/{json.loads(made)['session_id']}"
    status, sent = server.call("POST", f"{session}/messages", {"content": "Are you there?"})
    assert status == 200, sent
    events = json.loads(server.call("GET", f"{session}/events?after=0&wait=20s")[1])["events"]
    assert events and events[0]["seq"] == 1 and events[0]["event"].startswith("agent."), events


def check_mcp(server: Server, tool: str) -> None:
    """The MCP server behind it has `tool`."""
    headers = {"Accept": "application/json, text/event-stream"}
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    http = urllib.request.Request(f"{server.url}/mcp", json.dumps(request).encode(),
                                  headers | {"Content-Type": "application/json"})
    with urllib.request.urlopen(http, timeout=30) as answer:
        headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        answer.read()
    server.call("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    tools = server.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers)[1].decode()
    assert f'"{tool}"' in tools, tools
