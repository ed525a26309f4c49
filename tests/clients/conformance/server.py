"""Serves the conformance suite's fixtures through our own transport code: the same `serve_http` as the product's.

`python -m clients.conformance.server` with the product's environment.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from clients.conformance import dialogs, resources, tools
from mcp_exec.config import load_config
from mcp_exec.http.serve import serve_http
from mcp_exec.logs import configure_logs

TOOLS = {**tools.TOOLS, **dialogs.TOOLS}


class Idle:
    """Nothing to drain, nothing to count."""

    draining = False

    async def drain(self, seconds: float) -> None:
        self.draining = True

    def render(self) -> bytes:
        return b""


def build() -> Server[Any]:
    bus = InMemorySubscriptionBus()
    events = {"test_trigger_tool_change": ToolsListChanged, "test_trigger_prompt_change": PromptsListChanged}

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        listed = {**{name: schema for name, (schema, _) in TOOLS.items()}, **dict.fromkeys(events, tools.NOTHING)}
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=f"For {name}.", input_schema=schema)
                for name, schema in sorted(listed.items())
            ]
        )

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        if params.name in events:
            await bus.publish(events[params.name]())
            return tools.text("published")
        if params.name not in TOOLS:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        return await TOOLS[params.name][1](context, params)

    server: Server[Any] = Server(
        "conformance",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources.list_resources,
        on_list_resource_templates=resources.list_templates,
        on_read_resource=resources.read,
        on_subscribe_resource=resources.subscribe,
        on_unsubscribe_resource=resources.subscribe,
        on_list_prompts=resources.list_prompts,
        on_get_prompt=resources.get_prompt,
        on_completion=resources.complete,
        on_subscriptions_listen=ListenHandler(bus),
        get_tool_input_schema=lambda name: TOOLS[name][0] if name in TOOLS else None,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, resources.subscribe)
    return server


if __name__ == "__main__":
    config = load_config(os.environ)
    configure_logs(config.log_level)
    idle = Idle()
    asyncio.run(serve_http(config, build(), idle, idle))
