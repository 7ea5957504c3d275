"""LlamaIndex."""
from line import serve
from llama_index.tools.mcp import BasicMCPClient


async def connect(url):
    yield BasicMCPClient(url).call_tool


serve(connect)
