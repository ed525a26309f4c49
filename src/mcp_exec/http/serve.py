"""[server] uvicorn around the application; SIGTERM lets runs at work end, a second one does not."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import uvicorn
from mcp.server.lowlevel import Server
from sse_starlette.sse import AppStatus
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_exec.address import Address, is_loopback
from mcp_exec.config import Config
from mcp_exec.http.app import Exposition, State, open_app
from mcp_exec.http.connections import REQUEST_S, Connection, listen
from mcp_exec.logs import get_logger

#: The official Python client refuses an SSE event of more than 1 MiB
MAX_MESSAGE_BYTES = 1_000_000
#: An answer that is known takes a moment to be written
_WRITE_S = 0.2
_CLOSE_S = 1


class Drainable(State, Protocol):
    """Whose runs are to end before the server does."""

    async def drain(self, seconds: float) -> None:
        """Refuse new runs, wait for the others at most so long."""


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield


class _Gate:
    """After the drain nothing new is begun: an answer of events would end before its first one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if self.closed:
            words = "mcp-exec: the server is shutting down; call again\n"
            app = PlainTextResponse(words, status_code=503, headers={"Connection": "close"})
        await app(scope, receive, send)


async def serve_http(config: Config, server: Server[Any], runs: Drainable, metrics: Exposition) -> None:
    """Serve until SIGTERM or SIGINT and the drain that follows. Raises ConfigError where MCP_EXEC_ADDR is not free."""
    # It would end every answer 0.3 s after SIGTERM.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
    sockets = listen(config.addr)
    stopping = _on_signals()
    _log_addresses(config, sockets)
    async with open_app(config, server, runs, metrics) as app, asyncio.TaskGroup() as group:
        gate = _Gate(app)
        listener = _Uvicorn(
            uvicorn.Config(
                gate,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # who the client is must not be what it says
                timeout_keep_alive=REQUEST_S,
                timeout_graceful_shutdown=_CLOSE_S,
            )
        )
        group.create_task(listener.serve(sockets))
        await stopping.wait()
        get_logger().info("draining", seconds=config.drain_s)
        await runs.drain(config.drain_s)
        gate.closed = True
        await asyncio.sleep(_WRITE_S)
        AppStatus.should_exit = listener.should_exit = True


def _on_signals() -> asyncio.Event:
    """Set by the first signal; the next one cancels the task that called this."""
    stopping, loop, task = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if stopping.is_set() and task is not None:
            task.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stopping


def _log_addresses(config: Config, sockets: list[socket.socket]) -> None:
    addresses = [Address(*one.getsockname()[:2]) for one in sockets]
    get_logger().info("listening", addresses=" ".join(map(str, addresses)))
    if not config.auth_token and not all(is_loopback(address.host) for address in addresses):
        get_logger().warning(
            "anybody who reaches this address can run code here: set MCP_EXEC_AUTH_TOKEN, or listen on 127.0.0.1"
        )
