"""smolagents, by way of mcpadapt."""
import asyncio

from line import serve
from smolagents import MCPClient


async def connect(url):
    made = await asyncio.to_thread(
        lambda: MCPClient({"url": url, "transport": "streamable-http"}, structured_output=False)
    )
    tools = {tool.name: tool for tool in made.get_tools()}

    async def call(tool, arguments):
        return await asyncio.to_thread(lambda: tools[tool].forward(**arguments))

    yield call
    await asyncio.to_thread(made.disconnect)


serve(connect)
