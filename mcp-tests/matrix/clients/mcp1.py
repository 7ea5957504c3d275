"""The official Python SDK, version 1."""
from line import serve
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def connect(url):
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield session.call_tool


serve(connect)
