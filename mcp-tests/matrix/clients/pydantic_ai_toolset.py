"""Pydantic AI."""
from line import serve
from pydantic_ai.mcp import MCPToolset


async def connect(url):
    async with MCPToolset(url) as toolset:
        yield toolset.direct_call_tool


serve(connect)
