"""LangChain's adapters for MCP, with a session that is kept."""
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from line import serve


async def connect(url):
    client = MultiServerMCPClient({"rejoin": {"url": url, "transport": "streamable_http"}})
    async with client.session("rejoin") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call(tool, arguments):
            content = await tools[tool].ainvoke(arguments)
            return content[0]["text"] if isinstance(content, list) else content

        yield call


serve(connect)
