"""What an MCP client notices when something is killed: the table of the README. scripts/kill-table runs it."""

import argparse
import concurrent.futures
import json
import sys
import tempfile
import time
from pathlib import Path

from gateways import GATEWAYS, NODE, TESTS
from matrix import HEAD_START, WORK_MS, Client, until

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
README = TESTS.parent / "README.md"
BEGIN, END = "<!-- kill-table: made by scripts/kill-table -->", "<!-- /kill-table -->"
CLIENT = {"command": [NODE, str(TESTS / "matrix/clients/ts1.mjs")]}

ANSWERED = "answered"
TOLD = "an error at once, later calls work"
LATE = "no answer for 60 s, later calls work"
LOST = "**session lost**: later calls fail"
NOTHING = "–"

SCENARIOS = {
    "cut": "the connection breaks in mid-call",
    "server_idle": "`kill -9` of the server, then a call",
    "server_reading": "`kill -9` of the server in mid-call, a tool that only reads",
    "server_writing": "`kill -9` of the server in mid-call, another tool",
    "gateway_idle": "`kill -9` of the gateway, then a call",
    "gateway_reading": "`kill -9` of the gateway in mid-call, a tool that only reads",
}


class Trial:
    """One scenario: a new gateway, a new client, one thing that is killed."""

    def __init__(self, gateway, client):
        self.gateway, self.client = gateway, client

    def run(self, scenario):
        kill = self.gateway.cable.cut if scenario == "cut" else {
            "server": self.gateway.kill_server, "gateway": self.gateway.kill_and_restart
        }[scenario.split("_")[0]]
        if scenario.endswith("idle"):
            kill()
            answer = self.client.call("slow_readonly", ms=10, key="idle")
        else:
            answer = self.mid_call("slow" if scenario.endswith("writing") else "slow_readonly", kill)
        return self.judge(answer)

    def mid_call(self, tool, kill):
        call = self.client.begin(tool, ms=WORK_MS, key="mid")
        until(60, lambda: self.gateway.started(tool, "mid"), f"{tool} does not begin")
        time.sleep(HEAD_START)
        kill()
        return self.client.answer(call)

    def judge(self, answer):
        if answer and "slept" in answer.get("result", ""):
            return ANSWERED
        for _ in range(2):  # a client may report on the first call what broke before
            alive = self.client.call("slow_readonly", ms=0, key="alive")
            if alive and "result" in alive:
                late = not answer or "timed out" in answer.get("error", "").lower()
                return LATE if late else TOLD
        return LOST


def run(name, scenario, options):
    if scenario.startswith("gateway") and not GATEWAYS[name].has_server_behind:
        return NOTHING
    with tempfile.TemporaryDirectory(prefix="kill-table-") as home, open(f"{home}/client.log", "wb") as log:
        gateway = GATEWAYS[name](home, options)
        client = None
        try:
            client = Client(CLIENT, gateway.url, log)
            client.call("slow_readonly", ms=0, key="warm")
            return Trial(gateway, client).run(scenario)
        finally:
            if client:
                client.close()
            gateway.close()


def table(results):
    heads = [f"{name} {gateway.version}".strip() for name, gateway in GATEWAYS.items()]
    rows = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for scenario, words in SCENARIOS.items():
        rows.append(f"| {words} | " + " | ".join(results[name][scenario] for name in GATEWAYS) + " |")
    return "\n".join(rows)


def page(results):
    before, rest = README.read_text().split(BEGIN)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}"


def run_all(names, options):
    cases = [(name, scenario) for scenario in SCENARIOS for name in names]
    results = {name: {} for name in names}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of them wait for a time-out
        running = {pool.submit(run, name, scenario, options): (name, scenario) for name, scenario in cases}
        for done in concurrent.futures.as_completed(running):
            name, scenario = running[done]
            results[name][scenario] = done.result()
            print(f"{name}, {SCENARIOS[scenario]}: {results[name][scenario]}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rejoin", help="the binary")
    parser.add_argument("--proxy", help="the program of PyPI's mcp-proxy")
    parser.add_argument("--only", help="one column, compared with the table in place of writing it")
    parser.add_argument("--check", action="store_true", help="compare the README with the results, run nothing")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.only:
        now = run_all([options.only], options)[options.only]
        wrong = [f"{SCENARIOS[at]}: {now[at]}; the table says {known[options.only][at]}"
                 for at in SCENARIOS if now[at] != known[options.only][at]]
        sys.exit("\n".join(wrong) or 0)
    if not options.check:
        known = run_all(list(GATEWAYS), options)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        README.write_text(page(known))
    if page(known) != README.read_text():
        sys.exit("README.md has another table than mcp-tests/kill-table/results.json: run scripts/kill-table")


if __name__ == "__main__":
    main()
