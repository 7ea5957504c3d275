"""The official Python SDK, version 1, over `/sse`."""
from line import serve
from mcp import ClientSession
from mcp.client.sse import sse_client


async def connect(url):
    async with sse_client(url) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session.call_tool


serve(connect)
