"""Strands Agents."""
from line import serve
from strands.tools.mcp import MCPClient


async def connect(url):
    with MCPClient(url=url) as client:

        async def call(tool, arguments):
            result = await client.call_tool_async("use-1", tool, arguments)
            if result["status"] != "success":
                raise RuntimeError(str(result["content"]))
            return result["content"][0]["text"]

        yield call


serve(connect)
