"""Haystack."""
import asyncio

from haystack_integrations.tools.mcp import MCPToolset, StreamableHttpServerInfo
from line import serve


async def connect(url):
    server = StreamableHttpServerInfo(url=url)
    toolset = await asyncio.to_thread(lambda: MCPToolset(server, invocation_timeout=60, connection_timeout=30))
    await asyncio.to_thread(toolset.warm_up)
    tools = {tool.name: tool for tool in toolset}

    async def call(tool, arguments):
        result = await asyncio.to_thread(tools[tool].invoke, **arguments)
        return result

    yield call


serve(connect)
