"""Semantic Kernel."""
from line import serve
from semantic_kernel.connectors.mcp import MCPStreamableHttpPlugin


async def connect(url):
    async with MCPStreamableHttpPlugin(name="rejoin", url=url, request_timeout=60) as plugin:

        async def call(tool, arguments):
            return str((await plugin.call_tool(tool, **arguments))[0].text)

        yield call


serve(connect)
