"""mcp-use."""
from line import serve
from mcp_use import MCPClient


async def connect(url):
    client = MCPClient({"mcpServers": {"rejoin": {"url": url}}})
    session = await client.create_session("rejoin")
    yield session.call_tool
    await client.close_all_sessions()


serve(connect)
