"""AutoGen."""
from autogen_ext.tools.mcp import McpWorkbench, StreamableHttpServerParams
from line import serve


async def connect(url):
    async with McpWorkbench(StreamableHttpServerParams(url=url, timeout=30, sse_read_timeout=60)) as workbench:

        async def call(tool, arguments):
            result = await workbench.call_tool(tool, arguments)
            if result.is_error:
                raise RuntimeError(result.to_text())
            return result.to_text()

        yield call


serve(connect)
