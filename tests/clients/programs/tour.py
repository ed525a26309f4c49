"""What each Python client is asked to do, whichever its version: one JSON object a line on stdout, `go` on stdin.

argv[1] is a JSON object: transport, era, and command with env, or url with headers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

ASKED = json.loads(sys.argv[1])
CODE = {"code": "print(6 * 7)"}
BLANK = {"code": " "}
SLOW = {"code": "import time; print('before', flush=True); time.sleep(60)", "timeout_s": 1}
ENDLESS = {"code": "import time; time.sleep(120)"}


class Client(Protocol):
    """One connection."""

    async def names(self) -> list[str]:
        """Of the tools."""

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result as on the wire, whether it is a tool error or not."""

    async def cancel(self, arguments: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        """Start a call, wait for go, cancel the call."""


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


async def go() -> None:
    """Wait until the test has seen what it waits for."""
    assert (await asyncio.to_thread(sys.stdin.readline)) == "go\n"


async def walk(connection: AbstractAsyncContextManager[Client]) -> None:
    async with connection as client:
        say(names=await client.names())
        say(call=await client.call(CODE))
        say(error=await client.call(BLANK))
        say(timeout=await client.call(SLOW))
        await go()  # no jail is left of what was before
        await client.cancel(ENDLESS, go)
        if ASKED["leave"]:
            return
        say(cancelled=True)
        await go()  # still connected: going away must not be what ends the call
        say(after=await client.call(CODE))


def main(connection: AbstractAsyncContextManager[Client]) -> None:
    """Exit status 1 and the traceback on stderr where the client raises."""
    try:
        asyncio.run(asyncio.wait_for(walk(connection), 60))
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
