"""Google's Agent Development Kit."""
from types import SimpleNamespace

from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from line import serve


async def connect(url):
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=url, timeout=30))
    tools = {tool.name: tool for tool in await toolset.get_tools()}

    async def call(tool, arguments):
        result = await tools[tool]._run_async_impl(args=arguments, tool_context=context, credential=None)
        if "error" in result or result.get("isError"):
            raise RuntimeError(str(result))
        return result["content"][0]["text"]

    context = SimpleNamespace(_invocation_context=None, state={})
    yield call
    await toolset.close()


serve(connect)
