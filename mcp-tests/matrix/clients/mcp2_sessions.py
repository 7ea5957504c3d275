"""The official Python SDK, version 2, told to use revisions with sessions."""
from line import serve
from mcp import Client


async def connect(url):
    async with Client(url, mode="legacy") as client:
        yield client.call_tool


serve(connect)
