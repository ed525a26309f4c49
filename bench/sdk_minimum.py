"""The least that a server of the SDK's can be: one tool that answers at once. What starting costs at best."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_ANSWER: dict[str, Any] = {"stdout": "42\n", "stderr": "", "exit_code": 0}


async def _list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="exec", input_schema={"type": "object"})])


async def _call_tool(_context: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="42")], structured_content=_ANSWER)


async def _serve() -> None:
    server: Server[Any] = Server("minimum", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
