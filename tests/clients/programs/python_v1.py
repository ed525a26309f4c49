"""The official Python SDK before 2.0. It has no call that cancels: the notification is sent as its users must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from tour import ASKED, main

METHOD = "notifications/cancelled"
#: 1.8.0 logs that a POST was refused, and waits on
PATIENCE = timedelta(seconds=5)


class Session:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self._session.call_tool("exec", arguments)).model_dump(by_alias=True, mode="json")

    async def cancel(self, arguments: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        number = self._session._request_id
        call = asyncio.create_task(self._session.call_tool("exec", arguments))
        await go()
        if not ASKED["leave"]:
            await self._notify_cancelled(number)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def _notify_cancelled(self, number: int) -> None:
        params = {"requestId": number}
        if hasattr(types, "CancelledNotification"):
            note = types.CancelledNotification.model_validate({"method": METHOD, "params": params})
            await self._session.send_notification(types.ClientNotification(note))
        else:  # 1.2.0 knows no such notification
            message = types.JSONRPCNotification(jsonrpc="2.0", method=METHOD, params=params)
            await self._session._write_stream.send(types.JSONRPCMessage(message))


def streams() -> Any:
    if ASKED["transport"] == "stdio":
        program, *arguments = ASKED["command"]
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=ASKED["env"]))
    if ASKED["transport"] == "sse":
        return sse_client(ASKED["url"], headers=ASKED["headers"])
    from mcp.client.streamable_http import streamablehttp_client

    return streamablehttp_client(ASKED["url"], headers=ASKED["headers"])


@asynccontextmanager
async def connect() -> AsyncIterator[Session]:
    async with streams() as (reader, writer, *_), ClientSession(reader, writer, PATIENCE) as session:
        await session.initialize()
        yield Session(session)


main(connect())
