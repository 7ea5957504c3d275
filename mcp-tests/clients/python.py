"""The official Python client. The line protocol is described in line.mjs."""

import asyncio
import json
import os
import sys
import warnings
from contextlib import AsyncExitStack

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.sse import sse_client

warnings.filterwarnings("ignore")  # of methods that the newest revision no longer has
INFO = types.Implementation(name=os.environ.get("CLIENT_NAME", "rejoin-test-client"), version="1.0.0")
MODE = sys.argv[1] if len(sys.argv) > 1 else "auto"


def say(line):
    print(json.dumps(line), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def elicit(_context, params):
    say({"event": "asked", "method": "elicitation/create", "params": plain(params)})
    return types.ElicitResult(action="accept", content={"answer": "yes"})


async def sample(_context, params):
    say({"event": "asked", "method": "sampling/createMessage", "params": plain(params)})
    content = types.TextContent(type="text", text="hello")
    return types.CreateMessageResult(role="assistant", model="a-test", content=content)


async def hear(message):
    if isinstance(message, Exception):
        say({"event": "complaint", "message": str(message)})
    else:
        say({"event": "notification", **plain(message)})


def make(kind, url):
    server = sse_client(url) if kind == "sse" else url
    return Client(
        server, mode=MODE, client_info=INFO, elicitation_callback=elicit, sampling_callback=sample, message_handler=hear
    )


async def call(client, request):
    async def progressed(progress, total, message):
        params = {"progress": progress, "total": total, "message": message}
        say({"event": "progress", "id": request["id"], "params": params})

    timeout = request.get("timeout_ms")
    return await client.call_tool(
        request["name"],
        request.get("arguments"),
        read_timeout_seconds=timeout / 1000 if timeout else None,
        progress_callback=progressed if request.get("progress") else None,
    )


OPERATIONS = {
    "call": call,
    "list_tools": lambda client, _: client.list_tools(),
    "list_prompts": lambda client, _: client.list_prompts(),
    "list_resources": lambda client, _: client.list_resources(),
    "read": lambda client, request: client.read_resource(request["uri"]),
    "set_level": lambda client, request: client.set_logging_level(request["level"]),
}


async def perform(client, request):
    try:
        result = await OPERATIONS[request["op"]](client, request)
        say({"id": request["id"], "result": plain(result)})
    except MCPError as error:
        said = {"code": error.error.code, "message": error.error.message, "data": error.error.data}
        say({"id": request["id"], "error": said})
    except Exception as error:  # whatever it is, the test wants to know
        say({"id": request["id"], "error": {"message": f"{type(error).__name__}: {error}"}})


async def connect(stack, request):
    try:
        client = await stack.enter_async_context(make(request.get("transport"), request["url"]))
        say({"event": "connected", "revision": client.protocol_version})
        return client
    except BaseException as error:
        say({"event": "failed", "message": f"{type(error).__name__}: {error}"})
        raise


async def main():
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client, tasks = None, set()
    async with AsyncExitStack() as stack:
        while line := await lines.readline():
            request = json.loads(line)
            if request["op"] == "close":
                break
            if request["op"] == "connect":
                client = await connect(stack, request)
            else:  # several at once
                tasks.add(asyncio.create_task(perform(client, request)))
    say({"event": "closed"})


asyncio.run(main())
