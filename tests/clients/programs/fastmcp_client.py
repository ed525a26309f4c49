"""fastmcp's client, over its own transports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from tour import ASKED, main


class Session:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self._client.call_tool_mcp("exec", arguments)).model_dump(by_alias=True, mode="json")

    async def cancel(self, arguments: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        call = asyncio.create_task(self._client.call_tool_mcp("exec", arguments))
        await go()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call


def transport() -> Any:
    if ASKED["transport"] == "stdio":
        program, *arguments = ASKED["command"]
        return StdioTransport(program, arguments, env=ASKED["env"], keep_alive=False)
    kind = SSETransport if ASKED["transport"] == "sse" else StreamableHttpTransport
    return kind(ASKED["url"], headers=ASKED["headers"])


@asynccontextmanager
async def connect() -> AsyncIterator[Session]:
    async with Client(transport(), mode=ASKED["era"]) as client:
        yield Session(client)


main(connect())
