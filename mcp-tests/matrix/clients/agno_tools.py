"""Agno."""
from agno.tools.mcp import MCPTools
from line import serve


async def connect(url):
    async with MCPTools(url=url, transport="streamable-http", timeout_seconds=60) as tools:

        async def call(tool, arguments):
            return await tools.session.call_tool(tool, arguments)

        yield call


serve(connect)
