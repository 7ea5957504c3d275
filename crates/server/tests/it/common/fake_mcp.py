# An MCP server on standard input and output that does what the calls it gets ask for, and notes every line it
# is told.
import json, os, sys, threading, time

home = sys.argv[1]
lock = threading.Lock()
answers = {}


def note(line):
    with open(os.path.join(home, "told"), "a") as file:
        file.write(line)


def say(message):
    with lock:
        sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        sys.stdout.flush()


def reply(request, result):
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})


def wait_for(condition):
    while not condition():
        time.sleep(0.002)


def progress(request, number):
    token = request["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": number}
    say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def call(request):
    wish = request["params"].get("arguments", {})
    text = "x" * wish.get("big", 0)
    for message in wish.get("say", []):
        say(message)
    for number in range(wish.get("progress", 0)):
        progress(request, number + 1)
    if "ask" in wish:
        say({"jsonrpc": "2.0", "id": wish["ask"], "method": "sampling/createMessage", "params": {}})
        wait_for(lambda: wish["ask"] in answers)
        text = json.dumps(answers[wish["ask"]])
    if "gate" in wish:
        wait_for(lambda: os.path.exists(os.path.join(home, wish["gate"])))
    reply(request, {"content": [{"type": "text", "text": text}]})
    for message in wish.get("later", []):
        say(message)


def on_request(request):
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        info = {"name": "fake", "version": "1"}
        capabilities = {"tools": {}, "logging": {}}
        reply(request, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
    elif request["method"] == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
    elif request["method"] == "x/raw":
        say('{"z": 1.50,"jsonrpc":"2.0" , "result": {"b":"\\u00e9", "a" :1e2}, "id":%s}' % json.dumps(request["id"]))
    else:
        reply(request, {})


for line in iter(sys.stdin.readline, ""):
    note(line)
    message = json.loads(line)
    if "method" in message and "id" in message:
        on_request(message)
    elif "id" in message:
        answers[message["id"]] = message.get("result")
