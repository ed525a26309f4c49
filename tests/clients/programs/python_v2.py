"""The official Python SDK since 2.0: one client for both families of revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from tour import ASKED, main


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self._client.call_tool("exec", arguments)).model_dump(by_alias=True, mode="json")

    async def cancel(self, arguments: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        call = asyncio.create_task(self._client.call_tool("exec", arguments))
        await go()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call


async def target(stack: AsyncExitStack) -> Any:
    if ASKED["transport"] == "stdio":
        program, *arguments = ASKED["command"]
        return StdioServerParameters(command=program, args=arguments, env=ASKED["env"])
    if ASKED["transport"] == "sse":
        return sse_client(ASKED["url"], headers=ASKED["headers"])
    http = await stack.enter_async_context(create_mcp_http_client(headers=ASKED["headers"]))
    return streamable_http_client(ASKED["url"], http_client=http)


@asynccontextmanager
async def connect() -> AsyncIterator[Session]:
    async with AsyncExitStack() as stack:
        client = Client(await target(stack), mode=ASKED["era"])
        yield Session(await stack.enter_async_context(client))


main(connect())
