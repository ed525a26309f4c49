"""[server] Paths: /mcp or SSE, the probes, the metrics. An ASGI application around the SDK's transports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_exec.config import Config, Transport
from mcp_exec.http.guard import Guard
from mcp_exec.tool import max_request_bytes

MCP_PATH, MESSAGES_PATH = "/mcp", "/messages/"
_MAX_SESSIONS = 1000
_IDLE_S = 1800.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS_OF_MCP = ("x-mcp-auth", "content-type", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name")


class State(Protocol):
    """What the probes tell."""

    @property
    def draining(self) -> bool:
        """Whether the server is about to end."""


class Exposition(Protocol):
    """What the metrics tell."""

    def render(self) -> bytes:
        """The text exposition format."""


@asynccontextmanager
async def open_app(config: Config, server: Server[Any], state: State, metrics: Exposition) -> AsyncIterator[ASGIApp]:
    """The application, guarded; its sessions end with the context."""
    if config.transport is Transport.SSE:
        yield _guard(config, _Router(_Sse(server, max_request_bytes(config)), state, metrics))
        return
    manager = StreamableHTTPSessionManager(
        server,
        stateless=config.stateless,
        session_idle_timeout=_IDLE_S,
        max_request_body_size=max_request_bytes(config),
        max_sessions=_MAX_SESSIONS,
    )
    async with manager.run():
        yield _guard(config, _Router(_only_mcp(manager), state, metrics))


def _guard(config: Config, app: ASGIApp) -> ASGIApp:
    """A browser asks beforehand, without the token, whether it may send one: that alone is answered outside."""
    guarded = Guard(app, config)
    if not config.allowed_origins:
        return guarded
    return CORSMiddleware(
        guarded,
        allow_origins=sorted(config.allowed_origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=_HEADERS_OF_MCP,
        expose_headers=["mcp-session-id"],
    )


class _Router:
    def __init__(self, sessions: ASGIApp, state: State, metrics: Exposition) -> None:
        self._sessions = sessions
        self._state = state
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._probe(scope["path"])
        if answer is not None and scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("mcp-exec: GET only\n", status_code=405, headers={"Allow": "GET, HEAD"})
        await (answer or self._sessions)(scope, receive, send)

    def _probe(self, path: str) -> Response | None:
        if path == "/healthz":
            return PlainTextResponse("ok\n")
        if path == "/readyz":
            draining = self._state.draining
            return PlainTextResponse("shutting down\n" if draining else "ok\n", status_code=503 if draining else 200)
        if path == "/metrics":
            return Response(self._metrics.render(), media_type=_METRICS_TYPE)
        return None


def _only_mcp(manager: StreamableHTTPSessionManager) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].rstrip("/") == MCP_PATH:
            await manager.handle_request(scope, receive, send)
        else:
            await PlainTextResponse(f"mcp-exec: MCP is at {MCP_PATH}\n", status_code=404)(scope, receive, send)

    return app


class _Sse:
    """GET of any path opens a stream, as with the Go server; messages are posted to the path that it names."""

    def __init__(self, server: Server[Any], max_body: int) -> None:
        self._server = server
        self._transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=max_body)
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(MESSAGES_PATH.rstrip("/")):
            await self._transport.handle_post_message(scope, receive, send)
        elif scope["method"] != "GET":
            words = f"mcp-exec: open a stream with GET, then POST to the {MESSAGES_PATH} path that it names\n"
            await PlainTextResponse(words, status_code=405, headers={"Allow": "GET"})(scope, receive, send)
        elif self._open >= _MAX_SESSIONS:
            await PlainTextResponse(f"mcp-exec: {_MAX_SESSIONS} sessions are open\n", 503)(scope, receive, send)
        else:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open += 1
        try:
            async with self._transport.connect_sse(scope, receive, send) as (reader, writer):
                await self._server.run(reader, writer, self._server.create_initialization_options())
        finally:
            self._open -= 1
