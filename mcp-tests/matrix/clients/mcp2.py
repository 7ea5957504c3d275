"""The official Python SDK, version 2, as it is by default: it asks for the newest revision."""
from line import serve
from mcp import Client


async def connect(url):
    async with Client(url) as client:
        yield client.call_tool


serve(connect)
