"""FastMCP's client."""
from fastmcp import Client
from line import serve


async def connect(url):
    async with Client(url) as client:
        yield client.call_tool


serve(connect)
