"""The OpenAI Agents SDK."""
from agents.mcp import MCPServerStreamableHttp
from line import serve


async def connect(url):
    async with MCPServerStreamableHttp(params={"url": url, "timeout": 30}, client_session_timeout_seconds=60) as server:
        yield server.call_tool


serve(connect)
