"""An agent that does as the messages it gets tell it, and notes every line it is told.

A message's content may be an object with
  say     events to print; the last one covers the message unless `cover` is false
  count   how many events agent.thinking to print first
  bytes   how many bytes of content each of those has besides its number
  state   a state to store with the last event
  raw     lines to print as they are, before everything else
  wait    a file: goes on only when it is there (or this agent's home is gone)
  needs   a file: dies (by SIGKILL) before anything else if it is not there
  then    "die" (by SIGKILL) or "hang" (until the input ends)
"""
import json
import os
import signal
import sys
import time

home = sys.argv[1]


def note(name, text):
    with open(os.path.join(home, name), "a") as file:
        file.write(text)


def wait_for(path):
    while not os.path.exists(path):
        if not os.path.exists(home):
            sys.exit(1)
        time.sleep(0.005)


def events(message, wish):
    padding = "x" * wish.get("bytes", 0)
    said = [
        {"event": "agent.thinking", "content": "thought %d %s" % (number, padding)}
        for number in range(1, wish.get("count", 0) + 1)
    ] + wish.get("say", [])
    if said and "state" in wish:
        said[-1]["state"] = wish["state"]
    if said and wish.get("cover", True):
        said[-1].setdefault("in_seq", message["in_seq"])
    return said


note("pids", "%d\n" % os.getpid())
for line in iter(sys.stdin.readline, ""):
    note("told", line)
    message = json.loads(line)
    if message["event"] == "user.cancel":
        print(json.dumps({"event": "agent.cancelled", "in_seq": message["in_seq"]}), flush=True)
    wish = message.get("content")
    if message["event"] != "user.message" or not isinstance(wish, dict):
        continue
    if "needs" in wish and not os.path.exists(wish["needs"]):
        os.kill(os.getpid(), signal.SIGKILL)
    if "wait" in wish:
        wait_for(wish["wait"])
    for raw in wish.get("raw", []):
        print(raw)
    for event in events(message, wish):
        print(json.dumps(event))
    sys.stdout.flush()
    if wish.get("then") == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if wish.get("then") == "hang":
        sys.stdin.read()
