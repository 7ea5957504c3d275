"""CrewAI's tools."""
import asyncio

from crewai_tools import MCPServerAdapter
from line import serve


async def connect(url):
    adapter = await asyncio.to_thread(lambda: MCPServerAdapter({"url": url, "transport": "streamable-http"}))
    tools = {tool.name: tool for tool in adapter.tools}

    async def call(tool, arguments):
        return await asyncio.to_thread(lambda: tools[tool]._run(**arguments))

    yield call
    await asyncio.to_thread(adapter.stop)


serve(connect)
