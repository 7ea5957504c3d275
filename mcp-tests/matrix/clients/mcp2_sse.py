"""The official Python SDK, version 2, over `/sse`."""
from line import serve
from mcp import Client
from mcp.client.sse import sse_client


async def connect(url):
    async with Client(sse_client(url), mode="legacy") as client:
        yield client.call_tool


serve(connect)
