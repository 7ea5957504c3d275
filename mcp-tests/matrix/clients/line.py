"""What the drivers of the matrix have in common. One JSON object a line:

in    {"id": 1, "tool": "slow", "arguments": {…}}
out   {"event": "ready"}, then for each call {"id": 1, "result": "its text"} or {"id": 1, "error": "what was told"}

A driver is given the server's URL. It makes its client once, as the client's own documentation does, and keeps it: a
client whose object can't be used any more is dead, and so is a driver that ends by itself.
"""

import asyncio
import contextlib
import json
import sys
import warnings

warnings.filterwarnings("ignore")
OUT = sys.stdout
sys.stdout = sys.stderr  # what libraries print is no answer


def say(line):
    print(json.dumps(line), file=OUT, flush=True)


def text_of(result):
    """The text of a tool's result, in whatever form a library gives it; an error if it says that it is one."""
    if getattr(result, "isError", None) or getattr(result, "is_error", None):
        raise RuntimeError(str(result))
    content = getattr(result, "content", result)
    if isinstance(content, (list, tuple)) and content:
        content = content[0]
    return str(getattr(content, "text", content))


async def perform(call, request):
    try:
        say({"id": request["id"], "result": text_of(await call(request["tool"], request["arguments"]))})
    except Exception as error:  # whatever it is: the caller was told something
        say({"id": request["id"], "error": f"{type(error).__name__}: {error}"[:500]})


async def run(connect):
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tasks = set()
    async with contextlib.asynccontextmanager(connect)(sys.argv[1]) as call:
        say({"event": "ready"})
        while line := await lines.readline():
            task = asyncio.create_task(perform(call, json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


def serve(connect):
    """Drives a client that `connect(url)`, an asynchronous generator, yields as `call(tool, arguments)`."""
    asyncio.run(run(connect))
